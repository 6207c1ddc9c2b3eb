"""Every SQL example in the first documents is accepted by the Snowflake target as it stands, one after the other."""

import re
from collections.abc import Iterator

import pytest

from bench.templates.seeds import SEEDS
from drumbeat.bench.targets.snowflake import SnowflakeTarget
from drumbeat.core.event import NewEvent
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.core.run import Run, RunId
from drumbeat.store import open_store
from servers.snowflake import SnowflakeServer

pytestmark = pytest.mark.skipif(not SEEDS.exists(), reason="the seeds are not at hand")

_BLOCK = re.compile(r"```sql\n(.*?)(?=```)", re.DOTALL)  # one block is never closed
_COMMENT = re.compile(r"--[^\n]*")
_NAMED = re.compile(r"(?<!:):([a-z][a-z0-9_]*)")
_VERBS = ("CREATE", "SELECT", "INSERT", "MERGE", "UPDATE", "DELETE")
#: A table that the documents mention without saying how it is made.
_RUN_STATUS = """
CREATE HYBRID TABLE RUN_STATUS (RUN_ID VARCHAR(36) PRIMARY KEY, STATUS VARCHAR(50), UPDATED_AT TIMESTAMP_NTZ,
 SCENARIO_CONFIG VARIANT, CPU_PERCENT FLOAT, MEMORY_PERCENT FLOAT)
"""
#: Columns that a later document reads and the first definition lacks.
_LATER = (
    "ALTER TABLE WORKER_HEARTBEATS ADD COLUMN CPU_PERCENT FLOAT",
    "ALTER TABLE WORKER_HEARTBEATS ADD COLUMN MEMORY_PERCENT FLOAT",
)


def examples() -> list[str]:
    """The statements of every SQL block, those that define tables first."""
    found = [each for file in sorted(SEEDS.glob("00[012]*.txt")) for each in _statements(file.read_text(encoding="utf-8"))]
    return sorted(found, key=lambda sql: not sql.startswith("CREATE"))


def _statements(text: str) -> Iterator[str]:
    for block in _BLOCK.findall(text):
        for part in _COMMENT.sub("", block).split(";"):
            if part.strip().startswith(_VERBS):
                yield part.strip()


def positional(sql: str) -> tuple[str, list[object]]:
    """Named parameters as $1, $2 …, with a value for each: the connector refuses names."""
    names = list(dict.fromkeys(_NAMED.findall(sql)))
    values = [_value(name) for name in names]
    return _NAMED.sub(lambda found: f"${names.index(found[1]) + 1}", sql), values


def _value(name: str) -> object:
    if name.endswith("_json"):
        return '{"a": 1}'
    return "x" if name.endswith(("run_id", "test_id", "worker_id", "snapshot_id", "status", "phase", "last_error")) else 1


async def test_every_sql_example_runs(snowflake: SnowflakeServer) -> None:
    found = examples()
    async with SnowflakeTarget(snowflake.new_database()) as target:
        for sql in [each for each in found if each.startswith("CREATE")]:
            await target.fetch(sql)
        for sql in (_RUN_STATUS, *_LATER):
            await target.fetch(sql)
        for sql in [each for each in found if not each.startswith("CREATE")]:
            text, values = positional(sql.replace("RUN_ID = ?", "RUN_ID = :run_id"))
            await target.fetch(text, values)
        kinds = {name.rpartition(".")[2]: kind for name, kind in snowflake.state()["table_kinds"].items()}
        heartbeats = await target.describe("worker_heartbeats")
        [(beats,)] = await target.fetch("SELECT COUNT(*) FROM WORKER_HEARTBEATS")

    assert len(found) >= 10, "the documents have at least ten statements"
    assert (kinds["WORKER_HEARTBEATS"], kinds["RUN_CONTROL_EVENTS"]) == ("hybrid", "hybrid")
    assert (kinds["WORKER_METRICS_SNAPSHOTS"], kinds["TEST_LOGS"]) == ("standard", "standard")
    assert (heartbeats.key, beats) == (None, 1)
    assert "last_heartbeat" in [column.name for column in heartbeats.columns]


async def test_every_query_of_the_documents_reads_a_store_in_snowflake(snowflake: SnowflakeServer) -> None:
    """Its views have the documents' names and columns; the documents' own changes are the store's business."""
    url = snowflake.new_database()
    queries = [each for each in examples() if each.startswith("SELECT")]
    async with open_store(url, create=True) as store:
        run = Run(run_id=RunId("x"), name="a run", config={"target": {}}, template_id="t1", expected_workers=1)
        await store.runs.create(run, pool("x", PoolKind.BENCH))
        await store.events.append(PoolId("x"), [NewEvent(type="START"), NewEvent(type="STOP")])
        async with SnowflakeTarget(url) as reader:
            answers = {}
            for sql in queries:
                text, values = positional(sql.replace("RUN_ID = ?", "RUN_ID = :run_id"))
                answers[sql.split()[1]] = await reader.fetch(text, values)

    assert [(row[1], row[3]) for row in answers["EVENT_ID,"]] == [("STOP", 2)], "those after the first"
    assert len(answers["SCENARIO_CONFIG"]) == 1
    assert len(answers) == len(queries) >= 4
