"""A statement under test reaches its own database and no other file, on every connection a target opens."""

import json
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from drumbeat.bench.driver.interface import EngineSettings
from drumbeat.bench.driver.records import FAILED
from drumbeat.bench.model import ErrorClass, Load, Statement
from drumbeat.bench.targets.contract import draw, load, operation
from drumbeat.bench.targets.contract.given import ContractFixtures
from drumbeat.bench.targets.duckdb import DuckdbTarget
from drumbeat.bench.targets.interface import Target
from drumbeat.bench.targets.sqlite import SqliteTarget
from drumbeat.core.errors import InvalidInput, InvalidSettings

SECRET = "correct horse battery staple"
CREATE = "CREATE TABLE items (n INTEGER)"

DUCKDB = [
    "SELECT * FROM read_csv('{folder}/secret.csv')",
    "SELECT * FROM read_text('{folder}/secret.csv')",
    "SELECT * FROM '{folder}/secret.csv'",
    "SELECT * FROM glob('{folder}/*')",
    "COPY items FROM '{folder}/secret.csv'",
    "COPY items TO '{folder}/written.csv'",
    "EXPORT DATABASE '{folder}/written'",
    "ATTACH '{folder}/written.duckdb' AS other",
    "INSTALL httpfs",
    "LOAD httpfs",
    "LOAD '{folder}/secret.csv'",
    "SET enable_external_access = true",
    "SET lock_configuration = false",
    "SET temp_directory = '{folder}/written'",
    "PRAGMA profiling_output = '{folder}/written.json'",
]
SQLITE = [
    "ATTACH DATABASE '{folder}/written.db' AS other",
    "ATTACH DATABASE '{folder}/' || 'written.db' AS other",
    "DETACH DATABASE main",
    "VACUUM INTO '{folder}/written.db'",
    "VACUUM main INTO '{folder}/' || 'written.db'",
    "SELECT load_extension('{folder}/secret.csv')",
    "SELECT fts3_tokenizer('simple')",
    "SELECT fts3_tokenizer('simple', x'4141414141414141')",
    "PRAGMA temp_store_directory = '{folder}'",
    "PRAGMA hard_heap_limit = 1",
    "PRAGMA soft_heap_limit = 1",
]
CASES = [
    *(pytest.param(DuckdbTarget, sql, id=f"duckdb {sql}") for sql in DUCKDB),
    *(pytest.param(SqliteTarget, sql, id=f"sqlite {sql}") for sql in SQLITE),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secret.csv").write_text(f"n\n{SECRET}\n")
    return tmp_path


@pytest.mark.parametrize(("kind", "sql"), CASES)
class TestOtherFiles(ContractFixtures):
    async def test_the_connection_that_defines_and_fetches_reaches_none(
        self, kind: Callable[[Path], Target], sql: str, folder: Path
    ) -> None:
        statement = sql.format(folder=folder)
        async with kind(folder / "target") as target:
            await target.define([CREATE])
            for asked in (target.define([statement]), target.fetch(statement)):
                with pytest.raises(InvalidInput, match="refused") as caught:
                    await asked
                assert SECRET not in str(caught.value)

        assert written(folder) == set()

    async def test_the_connections_of_a_load_reach_none(self, kind: Callable[[Path], Target], sql: str, folder: Path) -> None:
        given = load(operation("OTHER_FILE", 100, Statement(sql=sql.format(folder=folder))))
        async with kind(folder / "target") as target:
            await target.define([CREATE])
            said = await self.said_by_check(target, given) or await self.said_by_load(target, given)

        assert said
        assert SECRET not in said
        assert written(folder) == set()

    async def said_by_check(self, target: Target, given: Load) -> str:
        """The refusal by which both the check and the opening of the load end; empty where both let the statement pass."""
        said = []
        for asked in (target.check(given), target.engine(given, draw(), EngineSettings()).open()):
            try:
                await asked
            except InvalidInput as refusal:
                said.append(str(refusal))
        assert len(said) in {0, 2}
        return " ".join(said)

    async def said_by_load(self, target: Target, given: Load) -> str:
        async with self.running(target, given, connections=2) as running:
            await running.recorded(4)
            records = await running.drained()
            samples = running.engine.error_samples
        assert set(records["outcome"].tolist()) == {FAILED}
        assert {sample.error_class for sample in samples} == {ErrorClass.CONFIGURATION}
        return " ".join(sample.message for sample in samples)


@pytest.mark.parametrize("name", ["secret.csv", "secret.json", "secret.parquet", "secret.txt"])
@pytest.mark.parametrize("kind", [DuckdbTarget, SqliteTarget])
async def test_a_file_that_is_no_database_is_not_opened_as_one(kind: Callable[[Path], Target], name: str, folder: Path) -> None:
    (folder / "secret.txt").write_text(SECRET)
    (folder / "secret.json").write_text(json.dumps({"n": SECRET}))
    with duckdb.connect() as other:
        other.execute(f"COPY (SELECT '{SECRET}' AS n) TO '{folder / 'secret.parquet'}' (FORMAT parquet)")
    given = load(operation("READ", 100, Statement(sql="SELECT CAST(n AS INTEGER) FROM secret")))

    async with kind(folder / name) as target:
        for asked in (
            target.fetch("SELECT n FROM secret"),
            target.check(given),
            target.define([CREATE]),
            target.describe("secret"),
        ):
            with pytest.raises(
                InvalidSettings, match="as a SQLite database" if kind is SqliteTarget else "DuckDB database"
            ) as caught:
                await asked
            assert SECRET not in str(caught.value)
        with pytest.raises(InvalidSettings):
            await target.engine(given, draw(), EngineSettings()).open()


@pytest.mark.parametrize("kind", [DuckdbTarget, SqliteTarget])
async def test_what_stays_within_the_database_still_works(kind: Callable[[Path], Target], folder: Path) -> None:
    async with kind(folder / "target") as target:
        await target.define([CREATE, "CREATE VIEW seen AS SELECT n FROM items"])
        await target.load_rows("items", ["n"], [[2], [1]])
        await target.define(["CREATE TEMP TABLE sorted AS SELECT n FROM seen ORDER BY n", "VACUUM", "ANALYZE"])

        assert [row[0] for row in await target.fetch("SELECT n FROM sorted")] == [1, 2]


def written(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.name.startswith("written")}
