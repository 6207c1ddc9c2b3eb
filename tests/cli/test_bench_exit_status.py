"""The exit code of a run can be asked for afterwards, and lists show its verdict."""

import json
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from cli.given import invoke, make_store
from drumbeat.bench.model import LoadMode, Objective, QpsPlan, RunPlan
from drumbeat.bench.model.plan import ALL_KINDS
from drumbeat.bench.results import judgement
from drumbeat.cli.live import not_started
from drumbeat.core.histogram import Histogram
from drumbeat.core.pool import PoolKind, pool
from drumbeat.core.run import Result, Run, RunId, RunStatus
from drumbeat.store import Store
from drumbeat.store.interface import RunChange

PLANS = {
    "asked-nothing": RunPlan(),
    "kept": RunPlan(objectives={ALL_KINDS: Objective(p95_ms=100)}),
    "missed": RunPlan(load_mode=LoadMode.QPS, qps=QpsPlan(target_qps=2000)),
    "empty": RunPlan(objectives={ALL_KINDS: Objective(p95_ms=100)}),
    "under-way": RunPlan(),
}
EXPECTED = {
    "asked-nothing": (0, "NO_OBJECTIVE"),
    "kept": (0, "PASSED"),
    "missed": (4, "MISSED"),
    "empty": (3, "NOT_MEASURED"),
    "under-way": (6, "PENDING"),
}


async def scene(store: Store) -> None:
    """Runs that ended before rows kept verdicts, and one that has not ended."""
    latency = Histogram()
    latency.record_all([1_000_000] * 5870)
    for name, plan in PLANS.items():
        config: dict[str, Any] = {"plan": msgspec.to_builtins(plan, str_keys=True)}
        run = await store.runs.create(Run(run_id=RunId(name), name=name, config=config), pool(name, PoolKind.BENCH))
        ends = () if name == "under-way" else (RunStatus.STOPPING, RunStatus.COMPLETED)
        for status in (RunStatus.STARTING, RunStatus.RUNNING, *ends):
            run = await store.runs.update(run, RunChange(status=status, ended=status is RunStatus.COMPLETED))
        if name != "empty":
            await store.results.save([Result(run_id=run.run_id, operations=5870, qps=587.0, latency=latency)])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('status')}/s.db"
    make_store(url, scene)
    return url


@pytest.mark.parametrize("name", PLANS)
def test_show_ends_with_the_exit_code_of_the_run_when_asked(store: str, name: str) -> None:
    code, verdict = EXPECTED[name]

    plain, asked, told = (
        invoke("bench", "show", name, *options, store=store)
        for options in ((), ("--exit-status",), ("--exit-status", "--json"))
    )

    assert (plain.code, asked.code, told.code) == (0, code, code)
    assert json.loads(told.output)["verdict"] == verdict
    assert "verdict: " in plain.output


@pytest.mark.parametrize("name", [name for name in PLANS if name != "under-way"])
def test_watch_ends_with_it_too(store: str, name: str) -> None:
    assert invoke("bench", "watch", name, store=store).code == 0
    assert invoke("bench", "watch", name, "--exit-status", store=store).code == EXPECTED[name][0]


def test_a_run_that_was_not_started_is_pending_at_once_and_watching_says_why(url: str) -> None:
    async def prepared(store: Store) -> None:
        await store.runs.create(Run(run_id=RunId("new"), name="new", config={}), pool("new", PoolKind.BENCH))

    make_store(url, prepared)

    watched, shown = (invoke("bench", word, "new", "--exit-status", store=url) for word in ("watch", "show"))

    assert (watched.code, watched.output) == (shown.code, "")
    assert watched.code == 6
    assert watched.errors == f"{not_started(RunId('new'))}\n"


def test_lists_show_the_verdict(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judgement, "TAKEN_OVER_WITHIN", timedelta(days=1))
    shown = invoke("bench", "list", store=store).output
    told = json.loads(invoke("bench", "list", "--json", store=store).output)

    assert {row["name"]: row["verdict"] for row in told} == {name: verdict for name, (_, verdict) in EXPECTED.items()}
    assert next(row for row in told if row["name"] == "missed")["verdict_reason"] == "throughput: 587 of 2,000 operations/s"
    for name, (_, verdict) in EXPECTED.items():
        assert any(line.startswith(name) and verdict in line for line in shown.splitlines())


def test_every_list_and_view_of_runs_shows_the_verdict(store: str) -> None:
    listed = invoke("runs", "list", store=store).output
    told = json.loads(invoke("runs", "list", "--json", store=store).output)
    status = invoke("bench", "status", "missed", store=store).output
    status_json = json.loads(invoke("bench", "status", "missed", "--json", store=store).output)

    assert {row["name"]: row["verdict"] for row in told} == {name: verdict for name, (_, verdict) in EXPECTED.items()}
    assert "MISSED" in listed
    assert "verdict: MISSED: throughput: 587 of 2,000 operations/s" in status
    assert (status_json["verdict"], status_json["is_orphan"], status_json["workers"]) == ("MISSED", False, [])


def test_every_list_and_view_of_runs_says_that_no_orchestrator_leads_a_run(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judgement, "TAKEN_OVER_WITHIN", timedelta())

    lists = [invoke(*words, "list", store=store).output for words in (("runs",), ("bench",))]
    views = [invoke("bench", word, "under-way", store=store).output for word in ("show", "status")]
    told = [json.loads(invoke(*words, "--json", store=store).output) for words in (("runs", "list"), ("bench", "list"))]

    assert all("not controlled (no orchestrator)" in shown for shown in lists)
    assert all(f"verdict: PENDING: {judgement.NO_LEADER}" in shown for shown in views)
    assert [[row["name"] for row in rows if row["is_orphan"]] for rows in told] == [["under-way"], ["under-way"]]
