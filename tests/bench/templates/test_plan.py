"""From templates to plans: defaults, bounds, and what is refused before a run is there."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from bench.templates.seeds import EXAMPLES
from drumbeat.bench.control.modes.allocate import allocate, workers_for
from drumbeat.bench.model import (
    Allocation,
    GuardrailMode,
    LostPolicy,
    Objective,
    OnWorkerLost,
    RunPlan,
    ScalingMode,
)
from drumbeat.bench.model.capacity import HostCapacity, per_worker_cap
from drumbeat.bench.run_state import stored_plan
from drumbeat.bench.templates import parse, plan_of, plan_warnings, run_config
from drumbeat.bench.worker.assemble import engine_settings, target_url
from drumbeat.bench.workloads.config import load_of
from drumbeat.bench.workloads.standard import standard
from drumbeat.core.errors import InvalidInput
from drumbeat.core.run import Run, RunId

HOST = HostCapacity(cpu_cores=4, memory_gb=16)
FOUND = per_worker_cap(HOST)
QPS, FIND_MAX = {"load_mode": "QPS"}, {"load_mode": "FIND_MAX_CONCURRENCY"}
RUNNABLE = {"target": {"url": "sqlite:///x.db"}, "workload": {"standard": "tpcb", "scale": 2}}


def planned(*parts: dict[str, Any], **settings: Any) -> RunPlan:
    return plan_of(parse({key: value for part in parts for key, value in part.items()}), HOST, **settings)


def refusal(*parts: dict[str, Any], **settings: Any) -> str:
    with pytest.raises(InvalidInput) as refused:
        planned(*parts, **settings)
    return str(refused.value)


def warned(*parts: dict[str, Any]) -> tuple[str, ...]:
    document = parse({key: value for part in parts for key, value in part.items()})
    return plan_warnings(document, plan_of(document, HOST))


def test_an_empty_template_is_the_models_own_defaults() -> None:
    plan = planned()

    assert plan == RunPlan(scaling=replace(RunPlan().scaling, cap=FOUND))


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_of_the_seeds_has_a_plan(name: str) -> None:
    plan = planned(EXAMPLES[name])

    assert plan.load_mode == EXAMPLES[name].get("load_mode", plan.load_mode)
    assert plan.scaling.cap >= 1


@pytest.mark.parametrize(
    ("template", "cap"),
    [
        ({}, FOUND),
        ({"concurrent_connections": 7}, FOUND),
        ({"scaling": {"max_connections": 33}}, 33),
        ({**QPS, "concurrent_connections": 44}, 44),
        ({**QPS, "concurrent_connections": 44, "scaling": {"max_connections": 33}}, 33),
        ({**FIND_MAX, "concurrent_connections": 44}, 44),
        ({**FIND_MAX, "concurrent_connections": -1}, FOUND),
        ({**FIND_MAX, "scaling": {"mode": "FIXED", "min_workers": 2, "min_connections": 9}}, 9),
        ({"scaling": {"mode": "FIXED", "min_workers": 2, "min_connections": 9, "max_connections": 5}}, 9),
        ({**QPS, "scaling": {"min_connections": FOUND + 5}}, FOUND + 5),
    ],
)
def test_a_worker_may_hold_what_is_said_or_what_its_host_takes(template: dict[str, Any], cap: int) -> None:
    assert planned(template).scaling.cap == cap


@pytest.mark.parametrize(
    ("template", "connections"),
    [
        ({}, 10),
        ({"concurrent_connections": 77}, 77),
        (EXAMPLES["fixed"], 1000),
        ({**QPS}, None),
        ({**QPS, "concurrent_connections": 44}, 44),
        ({"concurrent_connections": 1, "scaling": {"mode": "FIXED", "min_workers": 3, "min_connections": 4}}, 12),
    ],
)
def test_connections_mean_what_the_load_mode_says(template: dict[str, Any], connections: int | None) -> None:
    assert planned(template).connections == connections


@pytest.mark.parametrize(
    ("template", "allocation"),
    [
        ({}, Allocation.SPREAD),
        (QPS, Allocation.SPREAD),
        (FIND_MAX, Allocation.PACK),
        ({**FIND_MAX, "allocation": "spread"}, Allocation.SPREAD),
        ({**FIND_MAX, "concurrent_connections": 9}, Allocation.SPREAD),
        ({**FIND_MAX, "scaling": {"max_connections": 9}}, Allocation.SPREAD),
        ({**FIND_MAX, "scaling": {"mode": "FIXED", "min_workers": 2, "min_connections": 9}}, Allocation.SPREAD),
        ({"allocation": "pack"}, Allocation.PACK),
    ],
)
def test_only_a_search_by_found_capacity_packs(template: dict[str, Any], allocation: Allocation) -> None:
    assert planned(template).scaling.allocation is allocation


@pytest.mark.parametrize(
    ("scaling", "guardrails", "mode"),
    [
        ({}, {}, GuardrailMode.SOFT),
        ({"mode": "FIXED", "min_workers": 1, "min_connections": 1}, {}, GuardrailMode.WARN),
        ({"mode": "FIXED", "min_workers": 1, "min_connections": 1}, {"mode": "soft"}, GuardrailMode.SOFT),
        ({}, {"mode": "hard"}, GuardrailMode.HARD),
    ],
)
def test_fixed_only_warns_unless_told_otherwise(scaling: Any, guardrails: Any, mode: GuardrailMode) -> None:
    assert planned({"scaling": scaling, "guardrails": guardrails}).guardrails.mode is mode


def test_everything_that_is_said_is_in_the_plan() -> None:
    plan = planned(
        {
            **QPS,
            "target_qps": 250,
            "starting_threads": 3,
            "max_thread_increase": 4,
            "bounds_patience_intervals": 5,
            "control_interval_seconds": 6,
            "warmup": 7,
            "duration": "8s",
            "ramp_seconds": 1,
            "find_max": {"step_duration_seconds": 3, "bisect": False},
            "guardrails": {"enabled": False, "act_patience": 9, "interval_seconds": 2},
            "slo": {"overall": {"p99_ms": 5}, "INSERT": {"max_error_pct": 0}},
            "on_worker_lost": "tolerate:2",
            "prices": {"worker_hour": 0.5, "currency": "EUR"},
        }
    )

    assert (plan.qps.target_qps, plan.qps.starting_connections, plan.qps.max_increase) == (250, 3, 4)
    assert (plan.qps.bounds_patience_intervals, plan.qps.interval) == (5, timedelta(seconds=6))
    assert (plan.warmup, plan.duration, plan.ramp) == (timedelta(seconds=7), timedelta(seconds=8), timedelta(seconds=1))
    assert (plan.find_max.settle, plan.find_max.bisect) == (timedelta(seconds=1), False)
    assert (plan.guardrails.enabled, plan.guardrails.act_patience) == (False, 9)
    assert plan.guardrails.interval == timedelta(seconds=2)
    assert plan.objectives == {"": Objective(p99_ms=5), "INSERT": Objective(max_error_pct=0)}
    assert plan.on_worker_lost == LostPolicy(action=OnWorkerLost.TOLERATE, tolerated=2)
    assert (plan.prices.worker_hour, plan.prices.currency) == (0.5, "EUR")


# What is refused, what is warned of

BOUNDED = {"scaling": {"mode": "BOUNDED", "max_workers": 2, "max_connections": 50}}


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (
            {**QPS, **BOUNDED, "target_qps": 5000, "expected_latency_ms": 25},
            "Target QPS 5000 cannot be reached with max 2 workers × 50 connections: "
            "at 25 ms per operation these complete only 4000 operations per second",
        ),
        (
            {**QPS, "target_qps": 99, "expected_latency_ms": 1000, "scaling": EXAMPLES["fixed"]["scaling"]},
            None,
        ),
        (
            {**QPS, "target_qps": 1001, "expected_latency_ms": 1000, "scaling": EXAMPLES["fixed"]["scaling"]},
            "Target QPS 1001 cannot be reached with max 5 workers × 200 connections",
        ),
        ({**QPS, **BOUNDED, "target_qps": 5000, "expected_latency_ms": 20}, None),
        ({**QPS, **BOUNDED, "target_qps": 5000}, None),
        ({**QPS, "target_qps": 1e9, "expected_latency_ms": 1000}, None),
        ({**BOUNDED, "target_qps": 1e9, "expected_latency_ms": 1000}, None),
        ({"scaling": {"mode": "FIXED", "min_workers": 2}}, "scaling.min_connections: FIXED mode needs both"),
        ({"scaling": {"mode": "FIXED", "min_connections": 2}}, "scaling.min_workers: FIXED mode needs both"),
        ({"scaling": {"mode": "FIXED"}}, "scaling.min_workers and scaling.min_connections: FIXED mode needs both"),
        (
            {**QPS, "concurrent_connections": 4, "scaling": {"min_connections": 5}},
            "min_connections is 5, but the max per worker is 4",
        ),
        ({**BOUNDED, "concurrent_connections": 101}, "concurrent_connections is 101, more than max 2 workers × 50 connections"),
        ({**BOUNDED, "concurrent_connections": 100}, None),
    ],
)
def test_what_can_never_work_is_refused_and_nothing_else(template: dict[str, Any], said: str | None) -> None:
    if said is None:
        planned(template)
    else:
        assert said in refusal(template)


def test_a_measured_latency_counts_before_a_stated_one() -> None:
    template = {**QPS, **BOUNDED, "target_qps": 5000, "expected_latency_ms": 1}

    assert "cannot be reached" in refusal(template, measured_latency_ms=25)
    planned({**template, "expected_latency_ms": 25}, measured_latency_ms=1)


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (
            {**QPS, **BOUNDED, "target_qps": 10_000},
            "Target QPS 10000 cannot be reached with max 2 workers × 50 connections unless operations take less than 10 ms",
        ),
        (
            {**QPS, **BOUNDED, "target_qps": 5000},
            "Target QPS 5000 within max 2 workers × 50 connections needs operations of less than 20 ms on average",
        ),
        ({**QPS, **BOUNDED, "target_qps": 100}, None),
        ({**QPS, **BOUNDED, "target_qps": 5000, "expected_latency_ms": 5}, None),
        (EXAMPLES["fixed"], None),
        ({**EXAMPLES["fixed"], "concurrent_connections": 900}, "concurrent_connections is 900, but FIXED sets 5 workers × 200"),
        ({"scaling": {**EXAMPLES["fixed"]["scaling"], "max_workers": 9}}, "scaling.max_workers: not used in FIXED mode"),
        (
            {**FIND_MAX, "scaling": EXAMPLES["fixed"]["scaling"]},
            "find-max in FIXED mode: exactly 5 workers share each step, up to 200 connections each",
        ),
        ({"scaling": {"min_connections": FOUND + 1}}, f"scaling.min_connections is {FOUND + 1}, which is at or above"),
        ({}, None),
    ],
)
def test_what_may_not_be_meant_is_warned_of(template: dict[str, Any], said: str | None) -> None:
    warnings = warned(template)

    assert (len(warnings) == 1 and said in warnings[0]) if said else warnings == ()


# What a run's row keeps


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_plan_is_read_back_from_a_runs_row_as_it_was(name: str) -> None:
    document = parse({**RUNNABLE, **EXAMPLES[name], "slo": {"INSERT": {"p95_ms": 4}}})
    plan = plan_of(document, HOST)

    kept = msgspec.json.decode(msgspec.json.encode(run_config(document, plan)))

    assert stored_plan(Run(run_id=RunId("r"), name="r", config=kept)) == plan


def test_workers_find_in_it_what_they_read() -> None:
    said = {"seed": 5, "recording": {"sampling": 0.25}, "scaling": {"max_connections": 33}, "use_cached_result": False}
    document = parse({**RUNNABLE, **said})
    config = run_config(document, plan_of(document, HOST))

    assert target_url(config) == "sqlite:///x.db"
    assert load_of(config["workload"]) == standard("tpcb", 2).load
    assert (engine_settings(config).most_connections, engine_settings(config).cached_results) == (33, False)
    assert (config["seed"], config["recording"]["sampling"]) == (5, 0.25)
    assert config["config_hash"] == document.config_hash


def test_the_ceiling_that_was_found_is_what_workers_are_given() -> None:
    document = parse(RUNNABLE)

    assert run_config(document, plan_of(document, HOST))["scaling"]["max_connections"] == FOUND


def test_a_pause_between_operations_reaches_standard_workloads() -> None:
    paused = parse({**RUNNABLE, "workload": {"standard": "ycsb-a", "think_time_ms": 20}})

    block = run_config(paused, plan_of(paused, HOST))["workload"]

    assert load_of(block).think == timedelta(milliseconds=20)
    assert load_of(block).operations == tuple(standard("ycsb-a", 1).load.used)


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ({}, "target.url: expected the URL"),
        ({}, "workload: expected one of standard, operations, preset"),
        ({"target": {"connection": "prod"}, "workload": {"standard": "tpcb"}}, "expected the URL of the connection 'prod'"),
        ({"target": {"url": "postgresql://u:p@h/d"}, "workload": {"standard": "tpcb"}}, "DRUMBEAT_TARGET_PASSWORD"),
        ({"target": {"url": "sqlite:///x", "table": "t"}, "workload": {"preset": "mixed"}}, "call resolved()"),
        (
            {**RUNNABLE, "workload": {"operations": [{"kind": "A", "weight": 100, "sql": "SELECT 1 FROM {table}"}]}},
            "{table} has not been replaced yet",
        ),
    ],
)
def test_what_cannot_be_run_yet_is_refused_with_its_fields(template: dict[str, Any], said: str) -> None:
    document = parse(template)

    with pytest.raises(InvalidInput) as refused:
        run_config(document, plan_of(document, HOST))

    assert said in str(refused.value)


def test_scaling_says_what_bounds_it() -> None:
    fixed = planned(EXAMPLES["fixed"]).scaling

    assert (fixed.mode, fixed.most_workers, fixed.min_connections) == (ScalingMode.FIXED, 5, 200)


def test_a_search_on_fixed_workers_shares_each_step_evenly_among_exactly_them() -> None:
    plan = planned(FIND_MAX, {"scaling": EXAMPLES["fixed"]["scaling"]})

    assert (plan.scaling.min_workers, plan.scaling.most_workers, plan.scaling.cap) == (5, 5, 200)
    assert set(allocate(15, range(workers_for(15, plan.scaling)), plan.scaling).values()) == {3}
    assert plan.guardrails.mode is GuardrailMode.WARN
