"""RUN_UPDATE as the seed lists it, from runs in a store."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from drumbeat.bench.model import LoadMode, QpsPlan, RunPlan
from drumbeat.bench.results.watch import RunWatch
from drumbeat.core.clock import ManualClock
from drumbeat.core.pool import PoolKind, pool
from drumbeat.core.run import Run, RunStatus, Step, StepType
from drumbeat.store.memory import MemoryStore
from drumbeat.web.snapshot import log_document, run_document
from web.stream.scene import PLAN, RUN, SEARCH, Scene, search_state

BACKED_OFF = {"action": "back_off", "worker_id": "a", "previous_target": 8, "new_target": 6}
UNDER_WAY = (RunStatus.STARTING, RunStatus.RUNNING)
LISTED = {
    "test_id", "status", "phase", "timestamp", "run", "ops", "operations", "latency", "errors", "connections",
    "latency_aggregation_method", "workers", "warehouse", "find_max", "qps_controller_state", "guardrails", "bounds", "slo",
    "decisions", "custom_metrics", "enrichment_progress", "warehouse_details", "cancellation_reason", "error", "timing",
}  # fmt: skip
AGGREGATES = {
    "total_ops", "qps", "p50_ms", "p95_ms", "p99_ms", "avg_ms", "error_rate", "total_errors", "failed_connects",
    "active_connections", "target_connections", "read_count", "write_count",
}  # fmt: skip


async def running(scene: Scene, plan: RunPlan = PLAN, seconds: int = 5) -> Scene:
    await scene.made(plan)
    await scene.led_to(*UNDER_WAY)
    await scene.joined("a", "b")
    await scene.worked(seconds)
    return scene


async def told(store: MemoryStore) -> dict[str, Any]:
    return run_document(await RunWatch(store, RUN).poll())


async def test_a_document_has_everything_the_seed_lists_and_is_json(scene: Scene, store: MemoryStore) -> None:
    await running(scene)
    await scene.changed(operations=110, errors=10)

    found = await told(store)

    assert found.keys() == LISTED
    assert found["run"]["aggregate_metrics"].keys() == AGGREGATES
    assert msgspec.json.decode(msgspec.json.encode(found))["run"]["run_id"] == RUN


async def test_figures_are_those_of_now(scene: Scene, store: MemoryStore) -> None:
    await running(scene)
    await scene.changed(operations=110, errors=10)

    found = await told(store)

    assert (round(found["ops"]["current_per_sec"]), found["ops"]["total"]) == (22, 110)
    assert found["errors"] == {"count": 10, "failed_connects": 0, "rate": pytest.approx(10 / 110)}
    assert found["connections"]["active"] == 8
    assert found["latency"]["avg"] == pytest.approx(2, rel=0.01)
    assert found["latency_aggregation_method"] == "merged histograms (exact)"
    assert {kind: round(rate) for kind, rate in found["custom_metrics"]["ops_by_kind"].items()} == {"read": 20, "write": 2}
    assert found["custom_metrics"]["resources"] == {"cpu_percent": 40.0, "memory_percent": 20.0}


async def test_workers_have_health_and_the_age_of_their_heartbeat(scene: Scene, store: MemoryStore, clock: ManualClock) -> None:
    await running(scene)
    await scene.worked(40, ["a"])

    found = (await told(store))["workers"]

    assert [(each["worker_id"], each["health"], each["heartbeat_age_seconds"]) for each in found] == [
        ("a", "healthy", 0),
        ("b", "stale", 40),
    ]
    assert found[0]["metrics"]["qps"] == 11


async def test_timers_are_by_the_stores_clock(scene: Scene, store: MemoryStore) -> None:
    await running(scene, seconds=7)

    found = (await told(store))["timing"]

    assert found == {
        "elapsed_display_seconds": 7,
        "phase_elapsed_seconds": 7,
        "warmup_seconds": 2,
        "duration_seconds": 20,
    }


@pytest.mark.parametrize(
    ("state", "banner", "told_state", "colour", "icon"),
    [
        ("normal", None, "normal", None, None),
        ("warning", "1/4 workers over CPU threshold", "warning", "yellow", None),
        ("critical", "All workers over threshold (2/3 intervals)", "critical", "orange", None),
        ("degraded", "Running at reduced capacity", "degraded", "yellow", "info"),
    ],
)
async def test_guardrails_speak_in_the_seeds_words_and_colours(
    scene: Scene, store: MemoryStore, state: str, banner: str | None, told_state: str, colour: str | None, icon: str | None
) -> None:
    await running(scene, seconds=1)
    await scene.changed(custom_metrics={"soft_guardrails": {"state": state}}, controller_state={"guard": {"banner": banner}})

    found = (await told(store))["guardrails"]

    assert (found["state"], found["message"], found["color"], found["icon"]) == (told_state, banner, colour, icon)


async def test_a_run_that_exhausted_its_hosts_says_so_in_red(scene: Scene, store: MemoryStore) -> None:
    await running(scene, seconds=1)
    await scene.led_to(RunStatus.STOPPING, RunStatus.FAILED)

    found = (await told(store))["guardrails"]

    assert (found["message"], found["color"]) == ("Resource exhaustion", "red")


@pytest.mark.parametrize(
    ("told_of", "detail"),
    [
        ({"state": "warning", "workers_over_cpu": ["a"]}, "CPU of a 40 %, limit 80 %"),
        (
            {"state": "critical", "workers_over_memory": ["a", "b"]},
            "memory of a 20 %, limit 85 %; memory of b 20 %, limit 85 %",
        ),
        (
            {"state": "degraded", "actions_taken": [BACKED_OFF]},
            "a was reduced from 8 to 6 connections (limits: CPU 80 %, memory 85 %)",
        ),
    ],
)
async def test_guardrails_name_metric_value_and_limit(
    scene: Scene, store: MemoryStore, told_of: dict[str, Any], detail: str
) -> None:
    await running(scene, seconds=1)
    await scene.changed(custom_metrics={"soft_guardrails": told_of}, controller_state={"guard": {"banner": "it is too much"}})

    assert (await told(store))["guardrails"]["detail"] == detail


async def test_bounds_are_told_unless_the_mode_is_auto(scene: Scene, store: MemoryStore) -> None:
    await running(scene, seconds=1)
    reached = {"at_max_workers": True, "message": "At max workers (2/2)"}
    await scene.changed(custom_metrics={"bounds_state": reached})

    found = (await told(store))["bounds"]

    assert (found["max_workers"], found["at_max_workers"], found["message"]) == (2, True, "At max workers (2/2)")


async def test_no_bounds_where_there_are_none(scene: Scene, store: MemoryStore) -> None:
    await scene.made(RunPlan())

    assert (await told(store))["bounds"] is None


def step(n: int, **known: Any) -> Step:
    fields: dict[str, Any] = {"type": StepType.FIND_MAX, "from_target": 5, "to_target": 15, **known}
    return Step(run_id=RUN, n=n, started_at=ManualClock().now(), qps=100.0, outcome="STABLE", **fields)


async def test_a_search_tells_its_step_its_best_and_its_countdown(scene: Scene, store: MemoryStore) -> None:
    await running(scene, SEARCH)
    until = (await store.now() + timedelta(seconds=12)).isoformat()
    best = {"connections": 5, "qps": 90.0, "p95_ms": 2.0, "p99_ms": 3.0, "stable": True}
    await scene.changed(controller_state=search_state(best=best, baseline=best, window={"since": until, "until": until}))
    await store.steps.save([step(1), step(2)])

    found = (await told(store))["find_max"]

    assert (found["step"], found["connections"], found["next_connections"], found["countdown_seconds"]) == (2, 15, 25, 12)
    assert (found["best"]["connections"], found["last"]["n"], len(found["steps"])) == (5, 2, 2)
    assert found["badge"] is None


@pytest.mark.parametrize(("kind", "badge"), [("BOUNDED_MAX", "BOUNDED_MAX"), ("TRUE_MAX", "TRUE_MAX")])
async def test_a_search_that_ended_has_its_badge(scene: Scene, store: MemoryStore, kind: str, badge: str) -> None:
    await running(scene, SEARCH)
    await scene.led_to(RunStatus.STOPPING, RunStatus.COMPLETED)
    await scene.resulted(find_max_result={"max_type": kind, "message": "as it is", "knee": {"connections": 15}})

    found = (await told(store))["find_max"]

    assert (found["badge"], found["message"], found["knee"], found["countdown_seconds"]) == (
        badge,
        "as it is",
        {"connections": 15},
        None,
    )


async def test_bounds_that_are_reached_are_a_badge_before_the_end(scene: Scene, store: MemoryStore) -> None:
    await running(scene, SEARCH)
    await scene.changed(controller_state=search_state(ceiling_reached=True))

    assert (await told(store))["find_max"]["badge"] == "BOUNDED_MAX"


async def test_the_throughput_controller_tells_how_far_off_it_is_and_its_changes(scene: Scene, store: MemoryStore) -> None:
    await running(scene, replace(PLAN, load_mode=LoadMode.QPS, qps=QpsPlan(target_qps=44.0)))
    await store.steps.save([step(n, type=StepType.QPS_SCALING, target_qps=44.0) for n in range(1, 15)])

    found = (await told(store))["qps_controller_state"]

    assert (found["target_qps"], round(found["error_pct"])) == (44, -50)
    assert [each["n"] for each in found["history"]] == list(range(5, 15))


async def test_decisions_come_with_their_reasons(scene: Scene, store: MemoryStore) -> None:
    await running(scene, seconds=1)
    await scene.decided("Spawn", "1 of 2 workers are here", worker_id="c")

    found = (await told(store))["decisions"]

    assert [(each["what"], each["reason"], each["offset_seconds"]) for each in found] == [
        ("Spawn c", "1 of 2 workers are here", 1)
    ]


async def test_an_ended_run_tells_its_result_its_end_and_its_enrichment(scene: Scene, store: MemoryStore) -> None:
    await running(scene)
    await scene.led_to(RunStatus.STOPPING, RunStatus.COMPLETED)
    await scene.resulted(failure_reason=None)

    found = await told(store)

    assert (found["status"], found["phase"]) == ("COMPLETED", "COMPLETED")
    assert found["enrichment_progress"] == {"status": "SKIPPED", "error": None}
    assert found["operations"] == {"reads": 200, "writes": 20}
    assert found["connections"]["target"] == 10
    assert found["latency"]["p95"] == pytest.approx(2, rel=0.01)


async def test_an_ended_run_tells_its_verdict_and_which_objective_it_missed(scene: Scene, store: MemoryStore) -> None:
    await running(scene)
    await scene.led_to(RunStatus.STOPPING, RunStatus.COMPLETED)
    await scene.resulted()

    found = (await told(store))["run"]

    assert (found["verdict"], found["verdict_reason"]) == ("MISSED", "p95 of all kinds: 2 ms, limit 1 ms")


async def test_a_run_whose_orchestrator_is_gone_is_an_orphan_until_another_leads_it(scene: Scene, store: MemoryStore) -> None:
    await running(scene)
    alone = (await told(store))["run"]
    await store.leases.acquire(RUN, "another", timedelta(seconds=10))
    led = (await told(store))["run"]
    await scene.led_to(RunStatus.STOPPING)
    await scene.clock.advance(timedelta(seconds=11))
    await scene.led_to(RunStatus.CANCELLING)

    changed = (await told(store))["run"]

    assert (alone["verdict"], alone["is_orphan"], led["is_orphan"]) == ("PENDING", True, False)
    assert not changed["is_orphan"]
    assert "drumbeat bench orchestrate" in alone["verdict_reason"]


async def test_a_cancelled_run_says_by_whom(scene: Scene, store: MemoryStore) -> None:
    await running(scene)
    await scene.led_to(RunStatus.CANCELLING, RunStatus.CANCELLED)

    found = await told(store)

    assert (found["phase"], found["cancellation_reason"]) == ("CANCELLED", "USER")


async def test_a_run_that_keeps_no_plan_is_told_all_the_same(store: MemoryStore) -> None:
    await store.runs.create(Run(run_id=RUN, name="of another program", config={}), pool(RUN, PoolKind.BENCH))

    assert (await told(store))["status"] == "PREPARED"


async def test_a_log_line_is_told_with_its_level_and_source(scene: Scene, store: MemoryStore) -> None:
    await running(scene, seconds=1)
    await scene.logged("it is slow", level="WARNING", worker="a")

    (line,) = (await RunWatch(store, RUN).poll()).logs

    assert {name: log_document(line)[name] for name in ("level", "worker_id", "message")} == {
        "level": "WARNING",
        "worker_id": "a",
        "message": "it is slow",
    }
