"""A run explained by a language model: asked with figures only, kept with the run, in any store, and never in its way."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bench.explain.given import MARK, marked_run
from drumbeat.bench.model import LoadMode, RunExplanation, stored_explanation
from drumbeat.bench.model.explanation import STORED_UNDER
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.clock import SystemClock
from drumbeat.core.errors import InvalidSettings, LanguageModelFailed, NotFound, Refused
from drumbeat.core.run import Run, RunId, RunStatus
from drumbeat.settings import Settings
from drumbeat.store import open_store
from drumbeat.store.interface import Store
from drumbeat.store.memory import MemoryStore
from servers.language_model import KEY, MODEL, Endpoint, language_model

TEXT = "It ran at 1,235 operations/s on 8 connections.\nThe clients were the limit; try 16 connections."


@pytest.fixture(scope="module")
def shared() -> Iterator[Endpoint]:
    with language_model() as endpoint:
        yield endpoint


@pytest.fixture
def endpoint(shared: Endpoint, monkeypatch: pytest.MonkeyPatch) -> Endpoint:
    monkeypatch.setenv("DRUMBEAT_LANGUAGE_MODEL_KEY", KEY)
    shared.asked.clear()
    shared.says(TEXT)
    return shared


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    if request.param == "memory":
        yield MemoryStore(SystemClock())
    else:
        async with open_store(f"sqlite:///{tmp_path}/s.db", create=True) as opened:
            yield opened


def plane(store: Store, tmp_path: Path, **table: Any) -> ControlPlane:
    return ControlPlane(Settings(state_dir=tmp_path / "state", language_model=table), store, SystemClock())


async def test_what_it_wrote_is_kept_with_the_run_and_marked(store: Store, endpoint: Endpoint, tmp_path: Path) -> None:
    run = await marked_run(store)
    before = await store.now()

    written = await plane(store, tmp_path, **endpoint.table).bench().explain(run.run_id)

    kept = await store.runs.get(run.run_id)
    assert stored_explanation(kept) == written
    assert (written.text, written.model, written.unknown_numbers) == (TEXT, MODEL, ("16",))
    assert before <= written.at <= await store.now()
    assert f"Written by the language model {MODEL} on " in written.label
    assert "not by Drumbeat" in written.label
    assert written.warning == "Numbers in this text that are not among the run's figures: 16."
    assert _without_words(kept) == _without_words(run)


def _without_words(run: Run) -> dict[str, Any]:
    fields = {name: getattr(run, name) for name in Run.__slots__ if name not in ("updated_at", "custom_metrics")}
    return fields | {"metrics": {name: value for name, value in run.custom_metrics.items() if name != STORED_UNDER}}


@pytest.mark.parametrize("mode", LoadMode)
async def test_no_request_holds_a_name(endpoint: Endpoint, tmp_path: Path, mode: LoadMode) -> None:
    store = MemoryStore(SystemClock())
    await marked_run(store, "before", mode)
    run = await marked_run(store, "after", mode)
    endpoint.says("It was slow.")

    await plane(store, tmp_path, **endpoint.table).bench().explain(run.run_id)

    (asked,) = endpoint.asked
    assert MARK not in asked.body.decode().lower()
    assert MARK not in f"{asked.path} {asked.headers}".lower()
    assert KEY not in asked.body.decode()
    assert 900 <= max(asked.figures["run_before"]["figures"].values()) <= 1234.5


async def test_it_is_written_anew_when_asked_again(store: Store, endpoint: Endpoint, tmp_path: Path) -> None:
    run = await marked_run(store)
    bench = plane(store, tmp_path, **endpoint.table).bench()

    await bench.explain(run.run_id)
    endpoint.says("Second thoughts.")
    await bench.explain(run.run_id)

    found = stored_explanation(await store.runs.get(run.run_id))
    assert found is not None
    assert found.text == "Second thoughts."


@pytest.mark.parametrize("how", ["refuses", "lies", "invents", "markup", "hangs up"])
async def test_a_model_that_fails_leaves_the_run_as_it_was(store: Store, endpoint: Endpoint, tmp_path: Path, how: str) -> None:
    run = await marked_run(store)
    match how:
        case "refuses":
            endpoint.refuses(429)
        case "lies":
            endpoint.sends(b"<html>", content_type="text/html")
        case "invents":
            endpoint.says("71 of 72 were 73 ms, then 74.")
        case "markup":
            endpoint.says("<b>x</b>")
        case _:
            endpoint.hangs_up = True

    with pytest.raises(LanguageModelFailed):
        await plane(store, tmp_path, **endpoint.table).bench().explain(run.run_id)

    assert await store.runs.get(run.run_id) == run


async def test_only_an_ended_run_is_explained(store: Store, endpoint: Endpoint, tmp_path: Path) -> None:
    from drumbeat.core.pool import PoolKind, pool

    bench = plane(store, tmp_path, **endpoint.table).bench()
    await store.runs.create(Run(run_id=RunId("new"), name="n", config={}), pool("new", PoolKind.BENCH))

    with pytest.raises(Refused, match="got new, which is PREPARED"):
        await bench.explain(RunId("new"))
    with pytest.raises(NotFound):
        await bench.explain(RunId("nowhere"))
    assert endpoint.asked == []


async def test_without_a_model_nothing_is_asked(store: Store, tmp_path: Path) -> None:
    run = await marked_run(store)

    with pytest.raises(Refused, match="no language model is set up"):
        await plane(store, tmp_path).bench().explain(run.run_id)


async def test_wrong_settings_hinder_only_the_explanation(store: Store, tmp_path: Path) -> None:
    run = await marked_run(store)
    bench = plane(store, tmp_path, url="http://elsewhere", model="m").bench()

    assert await bench.summary(run)
    with pytest.raises(InvalidSettings):
        await bench.explain(run.run_id)


async def test_it_goes_with_the_run(store: Store, endpoint: Endpoint, tmp_path: Path) -> None:
    run = await marked_run(store)
    bench = plane(store, tmp_path, **endpoint.table).bench()
    await bench.explain(run.run_id)

    await bench.remove(run.run_id)

    assert await store.notes.list() == []
    with pytest.raises(NotFound):
        await store.runs.get(run.run_id)


async def test_reports_show_it_apart_from_the_summary(store: Store, endpoint: Endpoint, tmp_path: Path) -> None:
    run = await marked_run(store)
    bench = plane(store, tmp_path, **endpoint.table).bench()
    assert "language model" not in await bench.report(run.run_id, "markdown")
    await bench.explain(run.run_id)

    markdown, html = await bench.report(run.run_id, "markdown"), await bench.report(run.run_id, "html")

    assert "## Explanation by a language model (AI)" in markdown
    assert f"Written by the language model {MODEL}" in markdown
    assert (
        html.index('<section id="summary">') < html.index('<section id="verdict">') < html.index('<section id="explanation">')
    )
    assert "try 16 connections." in html
    assert "not among the run&#39;s figures: 16." in html


AUTOMATIC = {"automatic": True}


@pytest.mark.parametrize(("table", "times"), [({}, 0), (AUTOMATIC, 1)])
async def test_a_run_that_ends_is_explained_by_itself_only_if_set(
    endpoint: Endpoint, tmp_path: Path, table: dict[str, Any], times: int
) -> None:
    store = MemoryStore(SystemClock())
    run = await marked_run(store)
    bench = plane(store, tmp_path, **endpoint.table, **table).bench()

    assert await bench.conduct(run.run_id, asyncio.Event()) is RunStatus.COMPLETED
    assert await bench.conduct(run.run_id, asyncio.Event()) is RunStatus.COMPLETED

    assert len(endpoint.asked) == times


@pytest.mark.parametrize("fails", [False, True])
async def test_processes_that_conduct_a_run_together_ask_the_model_once(
    store: Store, endpoint: Endpoint, tmp_path: Path, fails: bool
) -> None:
    run = await marked_run(store)
    if fails:
        endpoint.refuses(500)
    processes = [plane(store, tmp_path, **endpoint.table, automatic=True).bench() for _ in range(3)]

    await asyncio.gather(*(bench.conduct(run.run_id, asyncio.Event()) for bench in processes))

    assert len(endpoint.asked) == 1


async def test_a_failing_model_does_not_hinder_the_end_of_a_run(endpoint: Endpoint, tmp_path: Path) -> None:
    store = MemoryStore(SystemClock())
    run = await marked_run(store)
    endpoint.refuses(500)
    bench = plane(store, tmp_path, **endpoint.table, automatic=True).bench()

    assert await bench.conduct(run.run_id, asyncio.Event()) is RunStatus.COMPLETED
    assert await store.runs.get(run.run_id) == run


@pytest.mark.parametrize(
    "stored",
    [
        None,
        5,
        {},
        {"text": "x"},
        {"text": "x", "model": "m", "at": "soon"},
        {"text": "x", "model": "m", "at": "2026-01-01", "unknown_numbers": 5},
    ],
)
def test_what_cannot_be_read_is_not_shown(stored: object) -> None:
    assert stored_explanation(Run(run_id=RunId("r"), name="r", config={}, custom_metrics={STORED_UNDER: stored})) is None


def test_what_somebody_else_wrote_into_the_store_is_cleaned() -> None:
    stored = {"text": "\x1b[2Jhello\u202e", "model": "m\n\x07", "at": "2026-01-01T00:00:00"}

    found = stored_explanation(Run(run_id=RunId("r"), name="r", config={}, custom_metrics={STORED_UNDER: stored}))

    assert found == RunExplanation(text="[2Jhello", model="m", at=datetime(2026, 1, 1, tzinfo=UTC))
