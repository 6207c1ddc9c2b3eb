from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from bench.recorded import record, run, search
from drumbeat.bench.model.capacity import HostCapacity
from drumbeat.bench.model.plan import LoadMode, QpsPlan, RunPlan, Scaling, ScalingMode
from drumbeat.bench.model.record import RunRecord
from drumbeat.bench.results.compare.similarity import Confidence, Similarity, near, similarity, sizes_alike, target_kind
from drumbeat.bench.templates import parse, plan_of, run_config

SNOWFLAKE = {"url": "snowflake://account/d/s?warehouse=W"}
HOST = HostCapacity(cpu_cores=4, memory_gb=16)


def sized(size: str, plan: RunPlan | None = None, **fields: Any) -> RunRecord:
    """A run whose configuration is made from a template, as a run's is."""
    target = {**SNOWFLAKE, "warehouse": {"size": size}, "use_cached_result": False}
    document = parse({"target": target, "workload": {"standard": "ycsb-c"}, **fields})
    return replace(record(), run=run(config=run_config(document, plan_of(document, HOST))), plan=plan or RunPlan())


@pytest.mark.parametrize(
    ("score", "confidence"),
    [
        (0.85, Confidence.HIGH),
        (0.84, Confidence.MEDIUM),
        (0.70, Confidence.MEDIUM),
        (0.69, Confidence.LOW),
        (0.54, Confidence.EXCLUDED),
    ],
)
def test_the_score_says_how_far_a_comparison_can_be_trusted(score: float, confidence: Confidence) -> None:
    assert Similarity(score=score, parts={}).confidence is confidence


def test_a_gate_excludes_whatever_the_score() -> None:
    assert Similarity(score=1.0, parts={}, gates=("another mode",)).confidence is Confidence.EXCLUDED


def test_numbers_are_alike_by_their_distance() -> None:
    assert (near(10, 20), near(-1, 1), near(0, 0), near(0.1, 0.2)) == (0.5, -1, 1, 0.9)


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [("XS", "xsmall", 1), ("M", "Large", 0.5), ("X-Small", "M", 0), ("huge", "M", 0), ("huge", "huge", 1)],
)
def test_neighbouring_sizes_are_half_alike(one: str, other: str, alike: float) -> None:
    assert sizes_alike(one, other) == alike


def test_the_same_run_twice_is_wholly_alike() -> None:
    assert similarity(sized("Medium"), sized("Medium")).score == pytest.approx(1)


@pytest.mark.parametrize(
    ("plan", "lost"),
    [
        (RunPlan(scaling=Scaling(mode=ScalingMode.FIXED)), 0.20),
        (RunPlan(connections=5), 0.125),
        (RunPlan(duration=timedelta(seconds=150)), 0.075),
    ],
)
def test_each_difference_costs_its_weight(plan: RunPlan, lost: float) -> None:
    assert similarity(sized("Medium"), sized("Medium", plan)).score == pytest.approx(1 - lost)


@pytest.mark.parametrize(("other", "lost"), [("LARGE", 0.10), ("x-large", 0.20)])
def test_another_size_of_the_warehouse_costs_its_weight(other: str, lost: float) -> None:
    assert similarity(sized("Medium"), sized(other)).score == pytest.approx(1 - lost)


def test_the_size_of_the_warehouse_counts_under_its_older_name_too() -> None:
    older = {**SNOWFLAKE, "warehouse_size": "Large", "use_cached_result": False}

    assert similarity(sized("Medium"), sized("Medium", target=older)).parts["size"] == 0.5


def test_what_is_not_known_counts_half() -> None:
    plain = similarity(record(), record())

    assert (plain.parts["size"], plain.parts["cache"]) == (0.5, 0.5)
    assert plain.score == pytest.approx(0.875)


def test_a_throughput_runs_target_weighs_most() -> None:
    one, other = (sized("Medium", RunPlan(load_mode=LoadMode.QPS, qps=QpsPlan(target_qps=qps))) for qps in (100, 50))

    assert similarity(one, other).score == pytest.approx(0.85)


def test_searches_are_alike_by_what_they_found() -> None:
    assert similarity(search(), search()).score == pytest.approx(1)
    assert similarity(search(), search(best=20, qps=1000)).confidence is Confidence.EXCLUDED


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ({"url": "postgres://h/d"}, "postgresql"),
        ({"url": "postgresql+asyncpg://h/d"}, "postgresql"),
        ({"kind": "MySQL"}, "mysql"),
        ({}, "unknown"),
    ],
)
def test_the_target_is_known_by_its_url_or_kind(target: dict[str, str], kind: str) -> None:
    assert target_kind(replace(record(), run=run(config={"target": target}))) == kind


def jumping(name: str) -> RunRecord:
    """A run whose throughput fell to a tenth for half of its time."""
    fast, slow = record(name, qps=1000), record(name, qps=100)
    half = len(fast.timeline) // 2
    return replace(fast, run=run(name), timeline=(*fast.timeline[:half], *slow.timeline[half:]))


def test_a_run_that_was_never_steady_is_no_measure_for_another() -> None:
    found = similarity(record("steady"), jumping("jumping"))

    assert found.confidence is Confidence.EXCLUDED
    assert [gate.partition(":")[0] for gate in found.gates] == ["jumping was not steady"]


def test_a_search_that_found_nothing_stable_is_no_measure_for_another() -> None:
    nothing = replace(search(), steps=(), results=())

    assert similarity(search(), nothing).gates == (f"{nothing.run.run_id} found no stable level",)
    assert similarity(search(), search()).gates == ()
