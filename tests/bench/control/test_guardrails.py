"""What guardrails do, one look at a time, and a run whose workers are put to too much."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from drumbeat.bench.control.guardrails import guard, soft_guardrails
from drumbeat.bench.model import FailThreshold, GuardrailMode, Guardrails, Scaling, ScalingMode
from drumbeat.bench.model.guarding import GuardedWorker, GuardrailDecision, GuardState, GuardView
from drumbeat.core.event import EventType, NewEvent
from drumbeat.core.worker import WorkerId

NOW = datetime(2024, 1, 15, 10, 30, tzinfo=UTC)
INTERVAL = timedelta(seconds=5)
AUTO = Scaling(min_connections=50)
BOUNDED = Scaling(mode=ScalingMode.BOUNDED, max_workers=4, min_connections=50)
FIXED = Scaling(mode=ScalingMode.FIXED, min_workers=4, min_connections=500)
SOFT = Guardrails()


def workers(*cpu: float, target: int = 500, memory: float = 10.0) -> tuple[GuardedWorker, ...]:
    """One for each figure; their names are their slots'."""
    return tuple(
        GuardedWorker(worker_id=WorkerId(f"worker-{n}"), slot=n, target=target, cpu_percent=each, memory_percent=memory)
        for n, each in enumerate(cpu)
    )


def looks(
    *seen: tuple[GuardedWorker, ...], rails: Guardrails = SOFT, scaling: Scaling = BOUNDED, state: GuardState | None = None
) -> list[GuardrailDecision]:
    """One look after the other, each from the state the last one left, as it comes back from JSON."""
    done: list[GuardrailDecision] = []
    state = state or GuardState()
    since = state.looked_at or NOW - INTERVAL
    for n, each in enumerate(seen, start=1):
        view = GuardView(
            now=since + n * INTERVAL, guardrails=rails, scaling=scaling, workers=each, most_workers=scaling.most_workers
        )
        done.append(guard(view, state))
        state = msgspec.convert(msgspec.json.decode(msgspec.json.encode(msgspec.to_builtins(done[-1].state))), GuardState)
    return done


ONE_OF_FOUR = workers(50, 50, 85.2, 50)
ALL = workers(90, 90, 90, 90)
CALM = workers(50, 50, 50, 50)


@pytest.mark.parametrize(
    ("seen", "rails", "scaling", "state", "banner"),
    [
        pytest.param([CALM], SOFT, BOUNDED, "normal", None, id="nobody is over"),
        pytest.param([ONE_OF_FOUR], SOFT, BOUNDED, "warning", "1/4 workers over CPU threshold", id="one of four"),
        pytest.param([workers(80, 79.9)], SOFT, BOUNDED, "warning", "1/2 workers over CPU threshold", id="at it is over it"),
        pytest.param(
            [workers(1, 1)[:1] + workers(1, 1, memory=90)[1:]],
            SOFT,
            BOUNDED,
            "warning",
            "1/2 workers over memory threshold",
            id="memory",
        ),
        pytest.param([ALL, ALL], SOFT, BOUNDED, "critical", "All workers over threshold (2/3 intervals)", id="all of them"),
        pytest.param([ALL, ALL, ALL], SOFT, BOUNDED, "critical", "Resource exhaustion", id="all of them for long"),
        pytest.param([ALL, ALL, CALM, ALL], SOFT, BOUNDED, "critical", "All workers over threshold (1/3 intervals)", id="anew"),
        pytest.param([ONE_OF_FOUR] * 2, SOFT, BOUNDED, "degraded", "Running at reduced capacity", id="backed off, no room"),
        pytest.param([ONE_OF_FOUR] * 2, SOFT, AUTO, "warning", "1/4 workers over CPU threshold", id="backed off, with room"),
        pytest.param(
            [ONE_OF_FOUR] * 2 + [CALM], SOFT, AUTO, "degraded", "Running at reduced capacity", id="calm, still lowered"
        ),
        pytest.param([ONE_OF_FOUR] * 2, SOFT, FIXED, "degraded", "Running at reduced capacity", id="FIXED has no room"),
        pytest.param(
            [workers(90, 90, 1)] * 2,
            replace(SOFT, fail_threshold=FailThreshold.MAJORITY),
            AUTO,
            "critical",
            "2/3 workers over threshold (2/3 intervals)",
            id="a majority",
        ),
        pytest.param(
            [ALL] * 9,
            replace(SOFT, mode=GuardrailMode.WARN),
            FIXED,
            "critical",
            "All workers over threshold (3/3 intervals)",
            id="only a warning",
        ),
        pytest.param([ALL] * 9, replace(SOFT, enabled=False), AUTO, "normal", None, id="switched off"),
    ],
)
def test_state_and_banner(
    seen: list[tuple[GuardedWorker, ...]], rails: Guardrails, scaling: Scaling, state: str, banner: str | None
) -> None:
    last = looks(*seen, rails=rails, scaling=scaling)[-1]

    assert (str(last.state.state), last.banner) == (state, banner)


HALF = workers(90, 90, 1, 1)
MOST = workers(90, 90, 90, 1)


@pytest.mark.parametrize(
    ("threshold", "seen", "fails"),
    [
        (FailThreshold.ALL, ALL, True),
        (FailThreshold.ALL, MOST, False),
        (FailThreshold.MAJORITY, MOST, True),
        (FailThreshold.MAJORITY, HALF, False),
        (FailThreshold.ANY, ONE_OF_FOUR, True),
        (FailThreshold.ANY, CALM, False),
    ],
)
def test_the_run_fails_when_enough_are_over_for_long_enough(
    threshold: FailThreshold, seen: tuple[GuardedWorker, ...], fails: bool
) -> None:
    done = looks(*[seen] * 6, rails=replace(SOFT, fail_threshold=threshold))
    failures = [each.failure.completion_reason if each.failure else None for each in done]

    assert failures[:2] == [None, None]
    assert failures[2] == ("RESOURCE_EXHAUSTION" if fails else None)


def test_hard_mode_fails_at_once() -> None:
    (hard,) = looks(ONE_OF_FOUR, rails=replace(SOFT, mode=GuardrailMode.HARD))

    assert hard.failure is not None
    assert hard.failure.completion_reason == "GUARDRAIL"
    assert hard.failure.reason == "worker-2: CPU 85.20 %, limit 80.00 %"
    assert looks(CALM, rails=replace(SOFT, mode=GuardrailMode.HARD))[0].failure is None


def test_the_reason_names_memory_if_that_is_over_its_limit() -> None:
    (hard,) = looks(workers(1, memory=90), rails=replace(SOFT, mode=GuardrailMode.HARD))

    assert hard.failure is not None
    assert hard.failure.reason == f"worker-0: memory 90.00 %, limit {SOFT.max_memory_percent:.2f} %"


@pytest.mark.parametrize(("mode", "times"), [(GuardrailMode.HARD, 1), (GuardrailMode.SOFT, 3)])
def test_a_run_that_failed_by_it_is_critical_and_says_why(mode: GuardrailMode, times: int) -> None:
    last = looks(*[ALL] * times, rails=replace(SOFT, mode=mode))[-1]

    assert last.failure is not None
    assert (soft_guardrails(last.state)["state"], last.banner) == ("critical", "Resource exhaustion")
    assert last.reason == last.failure.reason


def test_warn_mode_changes_nothing_but_says_so() -> None:
    done = looks(*[ALL] * 9, rails=replace(SOFT, mode=GuardrailMode.WARN))

    assert all((each.ceilings, each.extra_workers, each.failure) == ({}, 0, None) for each in done)
    assert {fact.type for each in done for fact in each.facts} == {EventType.GUARDRAIL_WARNING}


def as_shown(fact: NewEvent) -> dict[str, Any]:
    """As the view RUN_CONTROL_EVENTS shows it."""
    subject = {} if fact.worker_id is None else {"worker_id": fact.worker_id}
    return {"event_type": str(fact.type), "event_data": {"scope": str(fact.scope), **subject, **fact.payload}}


def test_what_is_recorded_reads_as_the_seed_shows_it() -> None:
    first, second = looks(ONE_OF_FOUR, ONE_OF_FOUR, scaling=FIXED)

    assert [as_shown(fact) for fact in first.facts] == [
        {
            "event_type": "GUARDRAIL_WARNING",
            "event_data": {
                "scope": "RUN",
                "workers_over_threshold": ["worker-2"],
                "threshold_type": "cpu",
                "intervals_remaining": 2,
            },
        }
    ]
    assert as_shown(second.facts[0]) == {
        "event_type": "SCALE_DOWN",
        "event_data": {
            "scope": "WORKER",
            "worker_id": "worker-2",
            "reason": "soft_guardrail",
            "detail": "CPU 85.2 %, limit 80.0 %",
            "previous_target_connections": 500,
            "new_target_connections": 400,
        },
    }
    assert soft_guardrails(second.state) == {
        "workers_over_cpu": ["worker-2"],
        "workers_over_memory": [],
        "over_threshold_intervals": 2,
        "actions_taken": [
            {
                "timestamp": "2024-01-15T10:30:05Z",
                "action": "back_off",
                "worker_id": "worker-2",
                "previous_target": 500,
                "new_target": 400,
            }
        ],
        "state": "degraded",
    }


def test_a_warning_is_not_repeated_while_it_says_the_same() -> None:
    done = looks(*[ONE_OF_FOUR] * 8, rails=replace(SOFT, mode=GuardrailMode.WARN))

    assert [len(each.facts) for each in done] == [1, 1, 1, 0, 0, 0, 0, 0]


def test_it_looks_once_an_interval() -> None:
    (first,) = looks(ONE_OF_FOUR)
    soon = GuardView(now=NOW + INTERVAL / 2, guardrails=SOFT, scaling=BOUNDED, workers=ONE_OF_FOUR, most_workers=4)

    again = guard(soon, first.state)

    assert again.state == first.state
    assert (again.banner, again.facts) == (first.banner, ())


def test_figures_that_are_not_fresh_say_nothing() -> None:
    stale = tuple(replace(worker, fresh=False) for worker in workers(99, 99))
    hot_and_stale = workers(50, 99)[:1] + stale[1:]

    assert looks(stale)[0].state == GuardState()
    assert looks(*[hot_and_stale] * 4)[-1].banner is None


def test_a_single_worker_is_backed_off_before_it_fails_the_run() -> None:
    first, second, third = looks(workers(95), workers(95), workers(95, target=400), scaling=AUTO)

    assert (first.ceilings, first.failure) == ({}, None)
    assert (second.ceilings, second.failure, second.extra_workers) == ({"worker-0": 400}, None, 0)
    assert third.failure is not None


def test_the_same_worker_is_left_alone_between_two_times() -> None:
    def over(target: int) -> tuple[GuardedWorker, ...]:
        return (*workers(50), replace(workers(50, 95)[1], target=target))

    done = looks(over(500), over(500), over(400), over(400), over(400), over(320))

    assert [each.ceilings.get(WorkerId("worker-1")) for each in done] == [None, 400, 400, 400, 320, 320]


def test_nobody_is_backed_off_below_the_floor_except_where_it_is_the_whole() -> None:
    near = (*workers(50), *workers(50, 95, target=55)[1:])
    at = (*workers(50), *workers(50, 95, target=50)[1:])

    assert looks(near, near)[-1].ceilings == {"worker-1": 50}
    assert looks(at, at)[-1].ceilings == {}
    assert looks(ONE_OF_FOUR, ONE_OF_FOUR, scaling=FIXED)[-1].ceilings == {"worker-2": 400}


@pytest.mark.parametrize(
    ("scaling", "seen", "extra"),
    [
        pytest.param(AUTO, ONE_OF_FOUR, 1, id="AUTO"),
        pytest.param(replace(BOUNDED, max_workers=5), ONE_OF_FOUR, 1, id="BOUNDED, with room"),
        pytest.param(BOUNDED, ONE_OF_FOUR, 0, id="BOUNDED, full"),
        pytest.param(FIXED, ONE_OF_FOUR, 0, id="FIXED"),
        pytest.param(AUTO, ALL, 0, id="all are over: a new one would be too"),
    ],
)
def test_one_more_worker_takes_what_was_shed_if_bounds_allow(
    scaling: Scaling, seen: tuple[GuardedWorker, ...], extra: int
) -> None:
    first, second = looks(seen, seen, scaling=scaling)

    assert (first.extra_workers, second.extra_workers) == (0, extra)


def test_a_calm_worker_is_raised_again_step_by_step_and_later_after_a_relapse() -> None:
    def seen(cpu: float, target: int) -> tuple[GuardedWorker, ...]:
        return (*workers(50), replace(workers(50, cpu)[1], target=target))

    done = looks(*[seen(95, 500)] * 2, *[seen(50, 400)] * 3)
    assert [len(each.ceilings) for each in done] == [0, 1, 1, 1, 0]
    assert done[-1].state.actions_taken[-1].action == "restore"
    assert str(done[-1].state.state) == "normal"

    again = looks(*[seen(95, 500)] * 2, *[seen(50, 400)] * 6, state=done[-1].state)
    assert [len(each.ceilings) for each in again] == [0, 1, 1, 1, 1, 1, 1, 0]


def test_a_worker_that_is_gone_is_forgotten() -> None:
    done = looks(ONE_OF_FOUR, ONE_OF_FOUR, ONE_OF_FOUR[:2])

    assert done[1].ceilings == {"worker-2": 400}
    assert done[2].ceilings == {}


def simulated(load: dict[int, float], looked: int, scaling: Scaling) -> tuple[list[GuardrailDecision], dict[int, int]]:
    """Workers whose CPU is so many percent a connection by slot; targets follow the ceilings as the orchestrator sets them."""
    state, targets, done = GuardState(), dict.fromkeys(load, 100), []
    for n in range(looked):
        seen = tuple(
            GuardedWorker(
                worker_id=WorkerId(f"worker-{slot}"),
                slot=slot,
                target=targets[slot],
                cpu_percent=min(100.0, each * targets[slot]),
            )
            for slot, each in load.items()
        )
        view = GuardView(
            now=NOW + n * INTERVAL, guardrails=SOFT, scaling=scaling, workers=seen, most_workers=scaling.most_workers
        )
        done.append(guard(view, state))
        state = done[-1].state
        targets = {slot: done[-1].ceilings.get(WorkerId(f"worker-{slot}"), 100) for slot in load}
        if done[-1].failure:
            break
    return done, targets


def test_one_overloaded_worker_is_backed_off_and_the_run_survives_degraded() -> None:
    done, targets = simulated({0: 0.5, 1: 0.5, 2: 1.2}, 200, Scaling(mode=ScalingMode.BOUNDED, max_workers=3))
    over = [bool(each.state.workers_over_cpu) for each in done]

    assert not any(each.failure for each in done)
    assert done[10].banner == "Running at reduced capacity"
    assert targets[0] == targets[1] == 100
    assert sum(over[100:]) <= 10


def test_a_whole_fleet_that_recovers_when_backed_off_survives() -> None:
    done, _ = simulated({0: 0.9, 1: 0.9}, 3, Scaling())

    assert [each.failure for each in done] == [None, None, None]


def test_a_fleet_overloaded_whatever_it_holds_exhausts_its_resources() -> None:
    done, _ = simulated({0: 9.0, 1: 9.0}, 50, Scaling())

    assert len(done) == 3
    assert done[-1].failure is not None
    assert done[-1].failure.completion_reason == "RESOURCE_EXHAUSTION"
    assert done[-1].banner == "Resource exhaustion"


class TestServerQueue:
    RAILS = Guardrails(max_queued_percent=10, patience_intervals=2)

    def queued(self, *waiting: int | None, rails: Guardrails = RAILS) -> list[GuardrailDecision]:
        """One check after the other of four workers with 500 connections each."""
        done, state = list[GuardrailDecision](), GuardState()
        for n, count in enumerate(waiting):
            view = GuardView(now=NOW + n * INTERVAL, guardrails=rails, scaling=BOUNDED, workers=CALM, waiting=count)
            done.append(guard(view, state))
            state = done[-1].state
        return done

    def test_a_queue_that_lasts_fails_the_run(self) -> None:
        first, second = self.queued(201, 300)

        assert first.failure is None
        assert [event.payload["threshold_type"] for event in first.facts] == ["queue"]
        assert second.failure is not None
        assert second.failure.completion_reason == "SERVER_QUEUE"
        assert "300 of 2000 connections waited in the server, more than 10 %" in second.failure.reason

    @pytest.mark.parametrize("waiting", [(200, 200, 200), (300, 0, 300), (None, None, None)])
    def test_a_short_or_small_queue_does_not(self, waiting: tuple[int | None, ...]) -> None:
        assert [each.failure for each in self.queued(*waiting)] == [None] * 3

    def test_without_a_limit_a_queue_is_no_reason(self) -> None:
        assert [each.failure for each in self.queued(2000, 2000, 2000, rails=SOFT)] == [None] * 3

    def test_hard_fails_at_once_and_warn_never(self) -> None:
        hard, warn = (replace(self.RAILS, mode=mode) for mode in (GuardrailMode.HARD, GuardrailMode.WARN))

        assert self.queued(201, rails=hard)[0].failure is not None
        assert [each.failure for each in self.queued(201, 201, 201, rails=warn)] == [None] * 3
