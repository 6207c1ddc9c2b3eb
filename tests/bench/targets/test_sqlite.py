"""SQLite as a target keeps the contract, and takes a file as it is."""

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from drumbeat.bench.driver.interface import EngineSettings
from drumbeat.bench.driver.records import FAILED, LOST, OK, TIMED_OUT
from drumbeat.bench.model import ErrorClass
from drumbeat.bench.targets.contract import LOOKUPS, TargetContract, draw
from drumbeat.bench.targets.interface import Target
from drumbeat.bench.targets.sqlite import SqliteTarget, classify, failure_of, sqlite_ddl
from drumbeat.core.errors import InvalidInput, InvalidSettings


class TestSqlite(TargetContract):
    slow_sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000) SELECT MAX(i) FROM n"

    @pytest.fixture
    async def target(self, tmp_path: Path) -> AsyncIterator[Target]:
        async with SqliteTarget(tmp_path / "target.db") as target:
            yield target


def mode_of(path: Path) -> str:
    connection = sqlite3.connect(path)
    try:
        return str(connection.execute("PRAGMA journal_mode").fetchone()[0])
    finally:
        connection.close()


async def test_a_file_that_is_not_there_stays_so_until_something_is_defined(tmp_path: Path) -> None:
    path = tmp_path / "missing.db"
    async with SqliteTarget(path) as target:
        for asked in (target.describe("t"), target.check(LOOKUPS), target.fetch("SELECT 1")):
            with pytest.raises(InvalidSettings, match="bench prepare"):
                await asked
        with pytest.raises(InvalidSettings, match="bench prepare"):
            await target.engine(LOOKUPS, draw(), EngineSettings()).open()
        assert not path.exists()

        await target.define(["CREATE TABLE t (n INTEGER)"])

    assert mode_of(path) == "wal"


async def test_a_file_made_by_others_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (n INTEGER)")
    connection.close()

    async with SqliteTarget(path) as target:
        await target.describe("t")

    assert mode_of(path) == "delete"


@pytest.mark.parametrize("made", ["folder", "text"])
async def test_what_is_no_database_is_refused(tmp_path: Path, made: str) -> None:
    path = tmp_path / "thing"
    if made == "folder":
        path.mkdir()
    else:
        path.write_text("hello " * 1000)
    async with SqliteTarget(path) as target:
        with pytest.raises(InvalidSettings, match="thing"):
            await target.describe("t")


async def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    async with SqliteTarget(tmp_path / "no" / "t.db") as target:
        with pytest.raises(InvalidSettings, match="create it first"):
            await target.define(["CREATE TABLE t (n INTEGER)"])


async def test_a_target_that_is_not_open_says_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="async with"):
        await SqliteTarget(tmp_path / "t.db").fetch("SELECT 1")


async def test_wrong_ddl_is_shown(tmp_path: Path) -> None:
    async with SqliteTarget(tmp_path / "t.db") as target:
        with pytest.raises(InvalidInput, match="CREATE TABEL"):
            await target.define(["CREATE TABEL t (n INTEGER)"])


async def test_a_whole_number_as_key_needs_no_index_besides(tmp_path: Path) -> None:
    async with SqliteTarget(tmp_path / "t.db") as target:
        await target.define(["CREATE TABLE t (id BIGINT NOT NULL, n INTEGER, PRIMARY KEY (id))"])

        assert await target.fetch("SELECT COUNT(*) FROM sqlite_master WHERE type = 'index'") == [(0,)]
        assert sqlite_ddl("a bigint, not_a_bigint_column TEXT") == "a INTEGER, not_a_bigint_column TEXT"


@pytest.mark.parametrize(
    ("code", "outcome", "error_class"),
    [
        (5, TIMED_OUT, ErrorClass.QUERY_TIMEOUT),  # busy for as long as an operation may take
        (9, TIMED_OUT, ErrorClass.QUERY_TIMEOUT),  # interrupted
        (517, FAILED, ErrorClass.DATABASE_ERROR),  # busy snapshot
        (1555, FAILED, ErrorClass.DATABASE_ERROR),  # primary key
        (8, FAILED, ErrorClass.CONFIGURATION),  # read-only
        (266, LOST, ErrorClass.CONNECTION),  # read error
        (11, LOST, ErrorClass.CONNECTION),  # corrupt
        (None, LOST, ErrorClass.CONNECTION),  # closed under us
    ],
)
def test_errors_are_told_apart(code: int | None, outcome: int, error_class: ErrorClass) -> None:
    error = sqlite3.OperationalError("oh")
    if code is not None:
        error.sqlite_errorcode = code

    failure = failure_of(error, 2)

    assert (failure.outcome, failure.code, failure.statement) == (outcome, str(code or ""), 2)
    assert classify(failure.outcome, failure.code) is error_class
    assert classify(OK, "") is None
