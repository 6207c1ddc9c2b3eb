"""Tests of steps: a run controller's stored decisions, unique by run, type and number."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from drumbeat.core.errors import Fenced, NotFound
from drumbeat.core.run import RunId, Step, StepType
from drumbeat.store.contract.given import Given, new_run, outdated, taken, unique
from drumbeat.store.interface import Store

BEGIN = datetime(2026, 1, 1, 12, 30, 15, 123456, tzinfo=UTC)


def step(run_id: RunId, n: int = 1, type: StepType = StepType.FIND_MAX, **changed: Any) -> Step:  # noqa: A002
    fields: dict[str, Any] = {"from_target": 10, "to_target": 20, "started_at": BEGIN} | changed
    return Step(run_id=run_id, type=type, n=n, **fields)


class StepsContract(Given):
    @pytest.mark.parametrize(
        "fields",
        [
            {},
            {"from_target": None, "is_probe": True, "queue_detected": False, "outcome": "HELD", "reason": "Grüße 🥁"},
            {
                "ended_at": BEGIN + timedelta(seconds=10, microseconds=1),
                "operations": 2**40,
                "errors": 7,
                "failed_connects": 140,
                "qps": 1234.5,
                "target_qps": 2000.0,
                "p50_ms": 0.25,
                "p95_ms": 1.5,
                "p99_ms": 9.75,
                "qps_vs_prior": -12.5,
                "p95_vs_baseline": 130.0,
                "queue_detected": True,
                "outcome": "STABLE",
            },
        ],
        ids=["as it begins", "a probe", "as it ends"],
    )
    async def test_a_step_comes_back_as_it_was_saved(self, store: Store, fields: dict[str, Any]) -> None:
        saved = step((await new_run(store)).run_id, **fields)

        await store.steps.save([saved])

        assert await store.steps.list(saved.run_id) == [saved]

    async def test_a_step_takes_the_place_of_what_was_known_of_it(self, store: Store) -> None:
        begun = step((await new_run(store)).run_id)
        await store.steps.save([begun])

        ended = replace(begun, to_target=30, ended_at=BEGIN + timedelta(seconds=5), operations=9, qps=1.8, outcome="DEGRADED")
        await store.steps.save([ended])

        assert await store.steps.list(begun.run_id) == [ended]

    async def test_steps_are_listed_by_type_then_number(self, store: Store) -> None:
        run = await new_run(store)
        kinds = [(StepType.QPS_SCALING, 2), (StepType.FIND_MAX, 10), (StepType.FIND_MAX, 9), (StepType.QPS_SCALING, 1)]
        await store.steps.save([step(run.run_id, n, type_) for type_, n in kinds])

        listed = [(each.type, each.n) for each in await store.steps.list(run.run_id)]
        scaling = [(each.type, each.n) for each in await store.steps.list(run.run_id, StepType.QPS_SCALING)]

        assert listed == sorted(kinds)
        assert scaling == [(StepType.QPS_SCALING, 1), (StepType.QPS_SCALING, 2)]

    async def test_steps_belong_to_their_run_only(self, store: Store) -> None:
        one, other = [(await new_run(store)).run_id for _ in range(2)]
        await store.steps.save([step(one, to_target=11), step(other, to_target=12)])

        assert [each.to_target for each in await store.steps.list(one)] == [11]
        assert await store.steps.list(RunId("run-nobody-made")) == []

    async def test_steps_need_a_run_and_are_saved_all_or_none(self, store: Store) -> None:
        run = await new_run(store)
        nowhere = RunId(unique("no-run"))

        with pytest.raises(NotFound, match=nowhere):
            await store.steps.save([step(run.run_id), step(nowhere)])

        assert await store.steps.list(run.run_id) == []

    async def test_the_holder_of_the_lease_may_save_steps(self, store: Store) -> None:
        run = await new_run(store)
        lease = await taken(store, run.run_id)

        await store.steps.save([step(run.run_id)], fence=lease.fence)

        assert len(await store.steps.list(run.run_id)) == 1

    async def test_an_outdated_controller_saves_no_step(self, store: Store) -> None:
        run = await new_run(store)
        fence = await outdated(store, await taken(store, run.run_id))

        with pytest.raises(Fenced):
            await store.steps.save([step(run.run_id)], fence=fence)

        assert await store.steps.list(run.run_id) == []
