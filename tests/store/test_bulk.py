"""Executions are loaded by the thousand: a transaction a batch, whatever there is already."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from drumbeat.core.errors import InvalidInput, StoreUnavailable
from drumbeat.core.run import RunId
from drumbeat.store.contract.executions import execution
from drumbeat.store.contract.given import new_run
from drumbeat.store.interface import Store
from drumbeat.store.open import open_store
from drumbeat.store.sql.executions import BULK
from drumbeat.store.sql.store import SqlStore


@pytest.fixture(params=["sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    sqlite = request.param == "sqlite"
    url = f"sqlite:///{tmp_path}/drumbeat.db" if sqlite else request.getfixturevalue("postgres_url")
    async with open_store(url, create=True) as store:
        yield store


@pytest.fixture
async def run_id(store: Store) -> RunId:
    return (await new_run(store)).run_id


@pytest.fixture
def transactions(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every script that is run from now on."""
    assert isinstance(store, SqlStore)
    scripts: list[Any] = []
    transact = store.database.transact

    async def counted(script: Any) -> Any:
        scripts.append(script)
        return await transact(script)

    monkeypatch.setattr(store.database, "transact", counted)
    return scripts


async def test_a_batch_is_one_transaction(store: Store, run_id: RunId, transactions: list[Any]) -> None:
    await store.executions.load(execution(run_id, n) for n in range(2 * BULK + 1))

    assert len(transactions) == 3


async def test_what_failed_half_way_is_loaded_again_from_the_start(
    store: Store, run_id: RunId, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(store, SqlStore)
    whole, transact = [execution(run_id, n) for n in range(BULK + 5)], store.database.transact
    answers = iter([transact, None])

    async def once(script: Any) -> Any:
        answer = next(answers)
        if answer is None:
            script.close()
            raise StoreUnavailable("gone")
        return await answer(script)

    with monkeypatch.context() as broken:
        broken.setattr(store.database, "transact", once)
        with pytest.raises(StoreUnavailable):
            await store.executions.load(whole)
    assert await store.executions.count(run_id) == BULK

    assert await store.executions.load(whole) == 5
    assert await store.executions.count(run_id) == BULK + 5


@pytest.mark.parametrize("bad", [{"connection": 2**70}, {"error": "half a letter: \ud83e"}], ids=["too large", "no text"])
async def test_a_value_that_cannot_be_kept_is_bad_input_and_takes_its_batch_with_it(
    store: Store, run_id: RunId, bad: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput):
        await store.executions.load([execution(run_id, 1), execution(run_id, 2, **bad)])

    assert await store.executions.count(run_id) == 0
    assert await store.executions.load([execution(run_id, 1)]) == 1
