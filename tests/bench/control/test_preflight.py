"""Preflight: what would be started, what it costs, and what stands in its way."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bench.people import people
from bench.workloads.standard.given import empty_database, empty_file
from drumbeat.bench.control.inspect import free_connections, inspect, inspect_offline
from drumbeat.bench.control.preflight import PlannedPhase, Preflight, preflight
from drumbeat.bench.model.capacity import HostCapacity
from drumbeat.bench.targets.interface import Target
from drumbeat.bench.targets.open import open_target
from drumbeat.bench.templates import parse, plan_of
from drumbeat.bench.workloads.prepare import prepare
from drumbeat.bench.workloads.standard import standard
from drumbeat.core.run import Phase

HOST = HostCapacity(cpu_cores=4, memory_gb=16)
POSTGRES = {"target": {"url": "postgresql://u@h/d"}, "workload": {"standard": "tpcb", "scale": 0.01}}
FIND_MAX = {"load_mode": "FIND_MAX_CONCURRENCY", "slo": {"p95_ms": 50}}


@pytest.fixture
async def sqlite(tmp_path: Path) -> AsyncIterator[Target]:
    async with empty_file("sqlite", tmp_path) as target:
        await prepare(target, standard("tpcb", 0.01))
        await people(target, 20)
        yield target


async def looked_at(template: dict[str, Any], target: Target | None = None) -> Preflight:
    document = parse({**POSTGRES, **template})
    seen = inspect_offline(document) if target is None else await inspect(document, target)
    return preflight(document, plan_of(document, HOST), seen)


@pytest.mark.parametrize(
    ("template", "connections", "most_workers", "most"),
    [
        ({"concurrent_connections": 7, "scaling": {"max_connections": 3}}, (3, 2, 2), 3, 7),
        ({"scaling": {"mode": "FIXED", "min_workers": 2, "min_connections": 9}}, (9, 9), 2, 18),
        ({"load_mode": "QPS"}, (1,), None, None),
        (
            {"load_mode": "QPS", "scaling": {"mode": "BOUNDED", "min_workers": 2, "max_workers": 10, "max_connections": 50}},
            (1, 1),
            10,
            500,
        ),
        (
            {"load_mode": "QPS", "starting_threads": 2, "scaling": {"mode": "FIXED", "min_workers": 2, "min_connections": 4}},
            (4, 4),
            2,
            8,
        ),
        ({"load_mode": "QPS", "starting_threads": 5, "scaling": {"max_connections": 3}}, (3, 2), None, None),
        ({**FIND_MAX, "find_max": {"start_connections": 6}}, (6,), None, None),
        ({**FIND_MAX, "scaling": {"mode": "FIXED", "min_workers": 2, "min_connections": 9}}, (3, 2), 2, 18),
    ],
)
async def test_it_says_what_would_be_started(
    template: dict[str, Any], connections: tuple[int, ...], most_workers: int | None, most: int | None
) -> None:
    found = await looked_at(template)

    assert (found.workers, found.connections) == (len(connections), connections)
    assert (found.most_workers, found.most_connections) == (most_workers, most)
    assert found.can_proceed


TO_40 = {"max_workers": 2, "max_connections": 20}


@pytest.mark.parametrize(
    ("template", "measured", "is_estimate"),
    [
        ({"duration": "2m"}, timedelta(minutes=2), False),
        (FIND_MAX, None, False),
        ({**FIND_MAX, "scaling": TO_40}, (5 + 1 + 4) * timedelta(seconds=30 + 2 + 1), True),
        ({**FIND_MAX, "scaling": TO_40, "find_max": {"bisect": False}}, (5 + 1) * timedelta(seconds=30 + 2 + 1), True),
        ({**FIND_MAX, "scaling": {"max_workers": 1, "max_connections": 5}}, timedelta(seconds=30 + 2 + 1), True),
    ],
)
async def test_it_says_how_long_each_phase_takes(
    template: dict[str, Any], measured: timedelta | None, is_estimate: bool
) -> None:
    """Of a search: 5 steps up, the best again, 4 halvings of the last 10 connections; each settles and is noticed."""
    found = await looked_at({**template, "warmup": 5})

    assert found.phases == (
        PlannedPhase(phase=Phase.PREPARING),
        PlannedPhase(phase=Phase.WARMUP, duration=timedelta(seconds=5)),
        PlannedPhase(phase=Phase.MEASUREMENT, duration=measured, is_estimate=is_estimate),
        PlannedPhase(phase=Phase.COOLDOWN),
        PlannedPhase(phase=Phase.PROCESSING),
    )


@pytest.mark.parametrize(
    ("template", "cost"),
    [
        ({"prices": {"worker_hour": 2, "target_hour": 3}}, 0.5 * (3 * 2 + 3)),
        ({"prices": {"worker_hour": 2}}, 0.5 * 3 * 2),
        ({}, None),
        ({**FIND_MAX, "prices": {"worker_hour": 2}}, None),
    ],
)
async def test_it_says_what_that_costs(template: dict[str, Any], cost: float | None) -> None:
    half_an_hour = {"warmup": "10m", "duration": "20m", "concurrent_connections": 9, "scaling": {"max_connections": 3}}

    assert (await looked_at({**half_an_hour, **template})).estimated_cost == (None if cost is None else pytest.approx(cost))


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ({"target": {}}, "target.url: expected the URL"),
        ({"workload": {}}, "workload: expected one of"),
        ({"target": {"url": "postgresql://u:s3cret@h/d"}}, "target.url: holds a password"),
        (
            {"scaling": {"mode": "FIXED", "min_workers": 65, "min_connections": 1}},
            "65 workers are too many: keys are distributed over at most 64",
        ),
        (
            {"target": {"url": "duckdb:///x"}, "scaling": {"mode": "FIXED", "min_workers": 2, "min_connections": 1}},
            "duckdb can be used by one process at a time, but the run can have 2 workers",
        ),
        ({"slo": {"INSRT": {"p95_ms": 5}}}, "slo.INSRT: the workload has no such operation; expected overall, "),
        ({"sharding": {"enabled": True}}, "sharding.total_partitions: expected the number of partitions"),
        (
            {"sharding": {"enabled": True, "total_partitions": 4, "key_column": "nobody"}},
            "expected an operation with a 'key' value in a statement that names nobody, got none",
        ),
    ],
)
async def test_what_stands_in_its_way_is_an_error(template: dict[str, Any], said: str) -> None:
    found = await looked_at(template)

    assert len(found.errors) == 1
    assert said in found.errors[0]
    assert "s3cret" not in found.errors[0]
    assert not found.can_proceed


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ({"load_mode": "FIND_MAX"}, "no slo: the search looks only at stability"),
        (
            {"load_mode": "QPS", "target_qps": 900, "scaling": {"mode": "FIXED", "min_workers": 1, "min_connections": 9}},
            "Target QPS 900 cannot be reached with max 1 workers × 9 connections unless operations take less than 10 ms",
        ),
        ({"target": {"url": "sqlite:///x"}}, "sqlite lets one connection write at a time"),
        ({"target": {"url": "sqlite:///x"}, "concurrent_connections": 1}, None),
        ({"target": {"url": "sqlite:///x"}, "workload": {"standard": "read-only"}}, None),
        (
            {"target": {"url": "duckdb:///x"}, "load_mode": "QPS", "workload": {"standard": "read-only"}},
            "duckdb can be used by one process at a time; set scaling.max_workers to 1",
        ),
        ({"sharding": {"enabled": False}}, None),
        ({}, None),
    ],
)
async def test_what_to_beware_of_is_a_warning(template: dict[str, Any], said: str | None) -> None:
    found = await looked_at(template)

    assert (len(found.warnings) == 1 and said in found.warnings[0]) if said else found.warnings == ()
    assert found.can_proceed


# With the database open


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        ({"standard": "tpcb", "scale": 0.01}, None),
        ({"preset": "read-only", "table": "people"}, None),
        ({"preset": "read-only", "table": "nobody"}, "no table 'nobody'"),
        ({"standard": "ycsb-a"}, "no table 'usertable'"),
        (
            {"operations": [{"kind": "LOOK", "weight": 100, "sql": "SELECT colour FROM people"}]},
            "LOOK: no such column: colour",
        ),
        ({"operations": [{"kind": "LOOK", "weight": 100, "sql": "SELEC 1"}]}, "LOOK: "),
    ],
)
async def test_tables_and_statements_are_looked_at_in_the_database(
    sqlite: Target, workload: dict[str, Any], said: str | None
) -> None:
    found = await looked_at({"workload": workload}, sqlite)

    assert (len(found.errors) == 1 and said in found.errors[0]) if said else found.errors == ()


async def test_a_query_cache_that_is_not_there_cannot_be_switched_off(sqlite: Target) -> None:
    workload = {"preset": "read-only", "table": "people"}
    off = await looked_at({"workload": workload, "target": {"use_cached_result": False}}, sqlite)
    on = await looked_at({"workload": workload}, sqlite)

    assert set(off.warnings) - set(on.warnings) == {"target.use_cached_result: false has no effect: sqlite has no query cache"}


async def test_a_server_says_what_is_wrong_with_a_statement(postgres_url: str) -> None:
    wrong = {"operations": [{"kind": "LOOK", "weight": 100, "sql": "SELECT colour FROM people"}]}
    async with open_target(postgres_url) as target:
        await people(target, 20)
        found = await looked_at({"workload": wrong}, target)

    assert len(found.errors) == 1
    assert "LOOK" in found.errors[0]
    assert "colour" in found.errors[0]


async def test_nothing_is_changed_in_the_database(sqlite: Target) -> None:
    before = await sqlite.fetch("SELECT * FROM people ORDER BY id")

    await looked_at({"workload": {"preset": "write-only", "table": "people"}}, sqlite)

    assert await sqlite.fetch("SELECT * FROM people ORDER BY id") == before


@pytest.mark.parametrize("kind", ["postgresql", "mysql"])
async def test_more_connections_than_the_server_has_free_are_warned_of(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    async with empty_database(kind, request, tmp_path) as target:
        await people(target, 20)
        free = await free_connections(target)
        assert free is not None
        assert free > 0
        template = {"workload": {"preset": "read-only", "table": "people"}, "scaling": {"max_connections": 10_000}}

        few = await looked_at({**template, "concurrent_connections": 1}, target)
        many = await looked_at({**template, "concurrent_connections": free + 1}, target)

    assert (few.errors, few.warnings, many.errors) == ((), (), ())
    assert "connections (5 of them to observe the database) are more than the" in many.warnings[0]


async def test_a_file_has_no_such_limit(sqlite: Target) -> None:
    assert await free_connections(sqlite) is None


async def test_a_scale_that_was_not_loaded_is_warned_of(sqlite: Target) -> None:
    loaded = await looked_at({"workload": {"standard": "tpcb", "scale": 0.01}}, sqlite)
    larger = await looked_at({"workload": {"standard": "tpcb", "scale": 0.1}}, sqlite)

    assert not any("at scale" in warning for warning in loaded.warnings)
    assert any("tpcb at scale 0.1 needs keys up to" in warning for warning in larger.warnings)
