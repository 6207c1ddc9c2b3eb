"""A plan knows how many workers its engine can run: it refuses more, and never scales beyond."""

from typing import Any

import pytest

from bench.control.test_preflight import FIND_MAX, HOST, POSTGRES
from drumbeat.bench.control.create import preview_run
from drumbeat.bench.control.inspect import inspect_offline
from drumbeat.bench.control.preflight import EnginePlan, Preflight, preflight, within_slots
from drumbeat.bench.model import Prices
from drumbeat.bench.targets.connections import ConnectionService
from drumbeat.bench.targets.vault import Vault
from drumbeat.bench.templates import parse, plan_of
from drumbeat.core.clock import ManualClock
from drumbeat.core.engine import EngineCapacity
from drumbeat.core.errors import InvalidInput
from drumbeat.store.memory import MemoryStore

A = EngineCapacity(engines="a", slots=5, elsewhere=True)
FIXED_8 = {"scaling": {"mode": "FIXED", "min_workers": 8, "min_connections": 2}}
QPS = {"load_mode": "QPS", "target_qps": 1000, "expected_latency_ms": 10}


def planned(template: dict[str, Any], capacity: EngineCapacity = A) -> Preflight:
    document = parse({**POSTGRES, **template})
    plan = within_slots(plan_of(document, HOST), capacity.slots)
    return preflight(document, plan, inspect_offline(document), EnginePlan(capacity=capacity, model=HOST))


@pytest.mark.parametrize(
    "template",
    [
        FIXED_8,
        {"scaling": {"mode": "BOUNDED", "min_workers": 8, "max_workers": 9}},
        {"concurrent_connections": 80, "scaling": {"max_connections": 10}},
        {**FIND_MAX, **FIXED_8},
    ],
)
def test_a_run_that_needs_more_workers_than_its_engine_has_slots_is_refused(template: dict[str, Any]) -> None:
    [error] = planned(template).errors

    assert error == (
        "the run needs 8 workers, but engine a has 5 slots; use fewer workers (scaling.min_workers), more connections per "
        "worker (scaling.max_connections), or raise the slots of the engine"
    )


@pytest.mark.parametrize(
    ("template", "most"),
    [
        ({"load_mode": "QPS"}, 5),
        ({"load_mode": "QPS", "scaling": {"mode": "BOUNDED", "max_workers": 3}}, 3),
        ({"load_mode": "QPS", "scaling": {"mode": "BOUNDED", "max_workers": 9}}, 5),
        (FIND_MAX, 5),
        ({"scaling": {"mode": "FIXED", "min_workers": 4, "min_connections": 2}}, 4),
    ],
)
def test_a_run_never_scales_beyond_the_slots_of_its_engine(template: dict[str, Any], most: int) -> None:
    found = planned(template)

    assert (found.most_workers, found.errors, found.slots) == (most, (), 5)


def test_a_limit_above_the_slots_is_pointed_out() -> None:
    found = planned({"load_mode": "QPS", "scaling": {"mode": "BOUNDED", "max_workers": 9, "max_connections": 10}})

    assert "scaling.max_workers is 9, but engine a has 5 slots; at most 5 workers are started" in found.warnings


def test_an_engine_without_known_slots_limits_nothing() -> None:
    assert planned({"load_mode": "QPS"}, EngineCapacity(engines="a", elsewhere=True)).most_workers is None
    assert planned(FIXED_8, EngineCapacity()).errors == ()


@pytest.mark.parametrize(
    ("what", "template", "capacity", "says"),
    [
        ("its hosts are not known", {"load_mode": "QPS"}, A, True),
        ("the template says how many", {"load_mode": "QPS", "scaling": {"max_connections": 20}}, A, False),
        (
            "the template says exactly how many",
            {"scaling": {"mode": "FIXED", "min_workers": 1, "min_connections": 2}},
            A,
            False,
        ),
        ("the workers run here", {"load_mode": "QPS"}, EngineCapacity(engines="here", slots=5), False),
    ],
)
def test_a_plan_says_if_this_machine_was_taken_as_the_model(
    what: str, template: dict[str, Any], capacity: EngineCapacity, says: bool
) -> None:
    model = "estimated from this machine (4 cores, 16.0 GiB), as the hosts of engine a are not known"

    assert any(model in warning for warning in planned(template, capacity).warnings) is says, what


async def test_a_throughput_that_the_slots_cannot_reach_is_refused() -> None:
    connections = ConnectionService(MemoryStore(ManualClock()), Vault())
    document = parse({**POSTGRES, **QPS, "target": {}, "scaling": {"mode": "BOUNDED", "max_workers": 9, "max_connections": 2}})

    assert (await preview_run(document, HOST, connections, Prices(), EngineCapacity())).most_workers == 9
    with pytest.raises(InvalidInput, match="cannot be reached with max 4 workers"):
        await preview_run(document, HOST, connections, Prices(), EngineCapacity(engines="a", slots=4))
