"""Runs are started from a terminal, prepared ones and ones like earlier ones; a store that workers cannot reach is told."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from cli.given import Said, drumbeat, invoke, make_store, ran
from drumbeat.composition.engines import Engines
from drumbeat.composition.plane import open_control_plane
from drumbeat.core.errors import NotFound, Refused
from drumbeat.core.pool import PoolKind, pool
from drumbeat.core.run import Run, RunId
from drumbeat.settings import Settings
from drumbeat.store import Store

WARNING = "the store's URL names localhost, which is another machine"


def prepared(url: str, **config: Any) -> str:
    """A store with a run that was created but not started."""

    async def build(store: Store) -> None:
        await store.runs.create(Run(run_id=RunId("new"), name="new", config=config), pool("new", PoolKind.BENCH))

    make_store(url, build)
    return url


def status(url: str, run_id: str = "new") -> str:
    return str(json.loads(invoke("bench", "status", run_id, "--json", store=url).output)["run"]["status"])


def test_a_prepared_run_is_started_once(url: str) -> None:
    prepared(url)

    said = invoke("bench", "start", "new", "--detach", store=url)
    with pytest.raises(Refused, match="expected status PREPARED to start it, got STARTING"):
        invoke("bench", "start", "new", "--detach", store=url)

    assert (said.code, said.output) == (0, "started new; run it with: drumbeat bench orchestrate\n")
    assert status(url) == "STARTING"


def test_its_id_is_printed_as_json(url: str) -> None:
    assert json.loads(invoke("bench", "start", "new", "--detach", "--json", store=prepared(url)).output) == {"run_id": "new"}


def test_a_run_that_does_not_exist_is_not_started(empty: str) -> None:
    with pytest.raises(NotFound, match="new"):
        invoke("bench", "start", "new", store=empty)


def test_a_run_whose_engine_is_unknown_here_stays_prepared(url: str, tmp_path: Path) -> None:
    prepared(url, scaling={"engine": "nowhere"})

    said = ran("bench", "start", "new", "--detach", cwd=tmp_path, DRUMBEAT_STORE=url)

    assert said.code == 1
    assert "nowhere" in said.errors
    assert status(url) == "PREPARED"


def test_a_run_whose_workers_cannot_reach_the_store_stays_prepared(url: str, tmp_path: Path) -> None:
    prepared(url, scaling={"engine": "runpod"})

    said = ran("bench", "start", "new", "--detach", cwd=tmp_path, DRUMBEAT_STORE=url)

    assert said.code == 1
    assert "got sqlite, which only this machine can reach" in said.errors
    assert status(url) == "PREPARED"


def test_a_prepared_run_is_run_to_its_end(tmp_path: Path) -> None:
    target, store = f"sqlite:///{tmp_path}/target.db", f"sqlite:///{tmp_path}/store.db"
    invoke("bench", "prepare", target, "--workload", "read-only", "--scale", "0.01")
    run_id = created(tmp_path, store, target)

    said = drumbeat("bench", "start", run_id, "--report", "out.md", cwd=tmp_path, DRUMBEAT_STORE=store)

    assert said.code == 0, said
    assert f"started {run_id}: it" in said.output
    assert status(store, run_id) == "COMPLETED"
    assert (tmp_path / "out.md").is_file()


def created(folder: Path, store: str, target: str) -> str:
    """The id of a prepared run, as a page or the API makes it."""
    document = {
        "name": "it",
        "target": {"url": target},
        "workload": {"standard": "read-only", "scale": 0.01},
        "concurrent_connections": 2,
        "timing": {"warmup_seconds": 0, "duration_seconds": 1},
    }

    async def create() -> str:
        async with open_control_plane(Settings(store=store, state_dir=folder / "state"), create=True) as plane:
            bench = plane.bench()
            run, _ = await bench.create(await bench.document(json.dumps(document), is_text=True))
            return run.run_id

    return asyncio.run(create())


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an engine, whose workers may not reach the store."""
    (tmp_path / "engines.toml").write_text('[engines.here]\nkind = "local"\n')
    monkeypatch.setattr(Engines, "reach_warning", lambda self, engines: f"{WARNING} for the workers of {engines}")
    return tmp_path


def started(folder: Path, *words: str) -> Said:
    return ran("bench", *words, "--detach", cwd=folder, DRUMBEAT_STORE=f"sqlite:///{folder}/store.db")


def test_whatever_starts_a_run_warns_that_workers_elsewhere_may_not_reach_the_store(elsewhere: Path) -> None:
    target = f"sqlite:///{elsewhere}/target.db"
    invoke("bench", "prepare", target, "--workload", "read-only", "--scale", "0.01")
    run_id = created(elsewhere, f"sqlite:///{elsewhere}/store.db", target)

    plain = started(elsewhere, "start", run_id)
    named = started(elsewhere, "rerun", run_id, "--engine", "here")
    again = json.loads(started(elsewhere, "rerun", run_id, "--engine", "here", "--json").output)["run_id"]
    inherited = started(elsewhere, "rerun", again)

    assert (plain.code, plain.errors) == (0, "")
    for said in (named, inherited):
        assert said.code == 0, said
        assert f"{WARNING} for the workers of here" in said.errors


def test_a_rerun_elsewhere_is_refused_before_a_store_is_opened_that_workers_cannot_reach(tmp_path: Path) -> None:
    said = started(tmp_path, "rerun", "old", "--engine", "runpod")

    assert said.code == 1
    assert "got sqlite, which only this machine can reach" in said.errors
