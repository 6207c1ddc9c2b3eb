"""drumbeat bench export: which runs it sends, what it prints, and what it refuses."""

import json
from pathlib import Path

import pytest

from cli.given import invoke, make_store
from drumbeat.core.errors import InvalidInput, NotFound, Refused
from drumbeat.core.pool import PoolId
from drumbeat.core.run import Result, RunId, RunStatus
from drumbeat.store import Store
from drumbeat.store.contract.given import heartbeat, joined, new_run, sample
from drumbeat.store.interface import RunChange


async def two_runs(store: Store) -> None:
    """A run that has ended, with a worker, a sample and a result; and one that is under way."""
    run = await new_run(store)
    worker = await joined(store, await store.pools.get(PoolId(run.run_id)))
    await store.membership.beat(heartbeat(worker, sample=sample(1, 10)))
    await store.results.save([Result(run_id=run.run_id, operations=7)])
    await store.runs.update(run, RunChange(status=RunStatus.CANCELLED, ended=True))
    await new_run(store)


@pytest.fixture
def there(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/there.db"


@pytest.fixture
def runs(url: str) -> dict[str, str]:
    """The ids of both runs by their status."""
    make_store(url, two_runs)
    return {run["status"]: run["run_id"] for run in json.loads(invoke("bench", "list", "--json", store=url).output)}


def test_ended_runs_are_sent_once(url: str, there: str, runs: dict[str, str]) -> None:
    first = invoke("bench", "export", "--to", there, store=url)
    second = invoke("bench", "export", "--to", there, "--json", store=url)

    ended = runs["CANCELLED"]
    assert (first.code, first.errors) == (0, "")
    assert first.output.splitlines() == [f"{ended}: 6 rows", "exported 1 of 1 runs"]
    assert json.loads(second.output) == [{"run_id": ended, "rows": 0}]
    listed = json.loads(invoke("bench", "list", "--json", store=there).output)
    assert [run["run_id"] for run in listed] == [ended]


def test_a_run_that_has_changed_is_sent_again(url: str, there: str, runs: dict[str, str]) -> None:
    async def change(store: Store) -> None:
        run = await store.runs.get(RunId(runs["CANCELLED"]))
        await store.runs.update(run, RunChange(operations=99))

    invoke("bench", "export", "--to", there, store=url)
    make_store(url, change)
    again = invoke("bench", "export", runs["CANCELLED"], "--to", there, store=url)

    assert again.output.splitlines()[-1] == "exported 1 of 1 runs"
    [run] = json.loads(invoke("bench", "list", "--json", store=there).output)
    assert run["operations"] == 99


def test_what_cannot_be_sent_is_refused(url: str, there: str, runs: dict[str, str]) -> None:
    with pytest.raises(Refused, match="only a run that has ended can be exported"):
        invoke("bench", "export", runs["PREPARED"], "--to", there, store=url)
    with pytest.raises(NotFound, match="there is no run 'none'"):
        invoke("bench", "export", "none", "--to", there, store=url)
    with pytest.raises(Refused, match="twice; name another store to export to"):
        invoke("bench", "export", "--to", url, store=url)
    with pytest.raises(InvalidInput, match="got a Redis store"):
        invoke("bench", "export", "--to", "redis://h", store=url)


def test_nothing_has_ended(url: str, there: str) -> None:
    make_store(url, new_run)

    assert invoke("bench", "export", "--to", there, store=url).output == "no run has ended yet; nothing to export\n"
