"""DuckDB as a target keeps the contract; one process at a time has the file."""

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from drumbeat.bench.driver.interface import EngineSettings
from drumbeat.bench.driver.records import FAILED, LOST, TIMED_OUT
from drumbeat.bench.model import ErrorClass, Load, Operation, Statement
from drumbeat.bench.targets.contract import LOOKUPS, TargetContract, draw
from drumbeat.bench.targets.duckdb import DuckdbTarget, classify, connect, failure_of
from drumbeat.bench.targets.interface import Target
from drumbeat.core.errors import InvalidInput, InvalidSettings

HOLDS_THE_FILE = """
import sys, duckdb
connection = duckdb.connect(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
"""


class TestDuckdb(TargetContract):
    slow_sql = "SELECT COUNT(*) FROM range(1000000) a, range(1000000) b WHERE (a.range + b.range) % 7 = 3"

    @pytest.fixture
    async def target(self, tmp_path: Path) -> AsyncIterator[Target]:
        async with DuckdbTarget(tmp_path / "target.duckdb") as target:
            yield target


async def test_a_file_that_is_not_there_stays_so(tmp_path: Path) -> None:
    path = tmp_path / "missing.duckdb"
    async with DuckdbTarget(path) as target:
        with pytest.raises(InvalidSettings, match="bench prepare"):
            await target.check(LOOKUPS)
        with pytest.raises(InvalidSettings, match="bench prepare"):
            await target.engine(LOOKUPS, draw(), EngineSettings()).open()

    assert not path.exists()


class _CommitsSecond:
    """A connection that commits after another one has added the same key."""

    def __init__(self, path: Path) -> None:
        self._own, self._other = connect(path), connect(path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def begin(self) -> None:
        self._other.begin()
        self._other.execute("INSERT INTO t VALUES (1)")
        self._own.begin()

    def commit(self) -> None:
        self._other.commit()
        self._own.commit()

    def close(self) -> None:
        self._other.close()
        self._own.close()


async def test_rows_whose_commit_fails_are_refused_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drumbeat.bench.targets.duckdb.connect", _CommitsSecond)
    async with DuckdbTarget(tmp_path / "shared.duckdb") as target:
        await target.define(["CREATE TABLE t (k BIGINT PRIMARY KEY)"])

        with pytest.raises(InvalidInput, match=r"refused the rows of t: .*Failed to commit: PRIMARY KEY"):
            await target.load_rows("t", ["k"], [(1,)])


async def test_a_file_that_another_process_has_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "theirs.duckdb"
    command = [sys.executable, "-c", HOLDS_THE_FILE, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        async with DuckdbTarget(path) as target:
            with pytest.raises(InvalidSettings, match="theirs"):
                await target.describe("t")
        other.communicate("")


async def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "thing"
    path.write_text("hello " * 1000)
    async with DuckdbTarget(path) as target:
        with pytest.raises(InvalidSettings, match="thing"):
            await target.describe("t")


async def test_two_statements_at_once_are_refused_and_neither_is_run(tmp_path: Path) -> None:
    async with DuckdbTarget(tmp_path / "t.duckdb") as target:
        await target.define(["CREATE TABLE t (n INTEGER)"])
        both = Statement(sql="SELECT 1; INSERT INTO t VALUES (1)")
        load = Load(name="x", operations=(Operation(kind="TWO", weight=100, statements=(both,)),))

        with pytest.raises(InvalidInput, match="TWO: expected one statement, got 2"):
            await target.check(load)

        assert await target.fetch("SELECT COUNT(*) FROM t") == [(0,)]


@pytest.mark.parametrize(
    ("error", "code", "outcome", "error_class"),
    [
        (duckdb.InterruptException, "57014", TIMED_OUT, ErrorClass.QUERY_TIMEOUT),
        (duckdb.ConstraintException, "23000", FAILED, ErrorClass.DATABASE_ERROR),
        (duckdb.TransactionException, "40001", FAILED, ErrorClass.DATABASE_ERROR),
        (duckdb.CatalogException, "42P01", FAILED, ErrorClass.CONFIGURATION),
        (duckdb.IOException, "58030", LOST, ErrorClass.CONNECTION),
        (duckdb.ConnectionException, "08003", LOST, ErrorClass.CONNECTION),
        (duckdb.SequenceException, "HY000", FAILED, ErrorClass.DATABASE_ERROR),
    ],
)
def test_errors_are_told_apart(error: type[Exception], code: str, outcome: int, error_class: ErrorClass) -> None:
    failure = failure_of(error("Some Error: oh\n\nLINE 1"), 1)

    assert (failure.code, failure.outcome, str(failure)) == (code, outcome, "Some Error: oh")
    assert classify(failure.outcome, failure.code) is error_class
