"""What the Snowflake emulator tells of tables and statements, and how it cancels, merges and scripts."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from servers.snowflake import SnowflakeServer
from servers.snowflake_client import Client
from snowflake_account import URL_VARIABLE


def test_tables_are_shown_with_their_kind(client: Client) -> None:
    client("CREATE HYBRID TABLE a_b (id INT PRIMARY KEY)")
    client("CREATE TABLE axb (id INT)")
    client("INSERT INTO a_b VALUES (1), (2)")

    shown = client("SHOW TABLES LIKE 'a\\\\_b'")

    assert [(row[1], row[7], row[12]) for row in shown] == [("A_B", 2, "Y")]
    assert [row[1] for row in client("SHOW TABLES LIKE 'a_b'")] == ["AXB", "A_B"]


def test_keys_are_shown_also_where_they_are_not_enforced(client: Client) -> None:
    client('CREATE TABLE pairs (a INT, "b" INT, PRIMARY KEY (a, "b"))')

    assert [(row[4], row[5]) for row in client("SHOW PRIMARY KEYS IN TABLE pairs")] == [("A", 1), ("b", 2)]
    assert client.refused("SHOW PRIMARY KEYS IN TABLE absent") == (2003, "42S02")


def test_a_table_that_is_replaced_changes_its_kind_and_one_that_is_dropped_has_none(
    snowflake: SnowflakeServer, client: Client, database: str
) -> None:
    client("CREATE HYBRID TABLE t (id INT PRIMARY KEY)")
    client("CREATE TABLE IF NOT EXISTS t (id INT)")
    assert snowflake.state()["table_kinds"][f"{database}.PUBLIC.T"] == "hybrid"
    client("CREATE OR REPLACE TABLE t (id INT)")
    assert snowflake.state()["table_kinds"][f"{database}.PUBLIC.T"] == "standard"
    client("DROP TABLE t")
    assert f"{database}.PUBLIC.T" not in snowflake.state()["table_kinds"]


def test_a_statement_is_described_without_being_run(client: Client) -> None:
    client("CREATE TABLE t (id INT, v VARCHAR)")
    with client.connection.cursor() as cursor:
        assert [column.name for column in cursor.describe("SELECT v, id FROM t")] == ["V", "ID"]
        cursor.describe("INSERT INTO t VALUES (1, 'x')")

    assert client("SELECT COUNT(*) FROM t") == [(0,)]


def test_a_session_can_cancel_the_statements_of_another(snowflake: SnowflakeServer, client: Client, other: Client) -> None:
    found: list[tuple[int, str | None]] = []
    waiting = threading.Thread(target=lambda: found.append(client.refused("SELECT SYSTEM$WAIT(60)")))
    waiting.start()
    while not any("SYSTEM$WAIT" in each.sql for each in snowflake.statements()):
        time.sleep(0.01)

    other(f"SELECT SYSTEM$CANCEL_ALL_QUERIES({client.connection.session_id})")
    waiting.join()

    assert found == [(604, "57014")]


def test_a_merge_may_be_part_of_a_transaction(client: Client) -> None:
    client("CREATE HYBRID TABLE t (id INT PRIMARY KEY, v VARCHAR(10))")
    merge = "MERGE INTO t USING (SELECT {} AS id, '{}' AS v) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v"
    merge += " WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.v)"

    client("BEGIN")
    client(merge.format(1, "a"))
    client(merge.format(1, "b"))
    client("COMMIT")

    assert client("SELECT * FROM t") == [(1, "b")]


def test_many_rows_are_inserted_all_or_none(snowflake: SnowflakeServer, database: str, client: Client) -> None:
    client("CREATE HYBRID TABLE t (id INT PRIMARY KEY)")
    binding = Client(snowflake, database, paramstyle="qmark")
    with binding.connection.cursor() as cursor:
        cursor.executemany("INSERT INTO t VALUES (?)", [(n,) for n in range(50)])
        assert cursor.rowcount == 50
        with pytest.raises(Exception, match="200001"):
            cursor.executemany("INSERT INTO t VALUES (?)", [(100,), (101,), (7,)])
    binding.connection.close()

    assert client("SELECT COUNT(*) FROM t") == [(50,)]


def test_a_script_takes_no_bound_values(snowflake: SnowflakeServer, database: str) -> None:
    binding = Client(snowflake, database, paramstyle="qmark")
    with binding.connection.cursor() as cursor, pytest.raises(Exception, match="002049"):
        cursor.execute("BEGIN RETURN ?; END", (1,))
    binding.connection.close()


@pytest.mark.parametrize("url", [None, "snowflake://ANNA@acme/SALES?warehouse=W"])
def test_a_run_on_a_real_account_says_first_what_it_costs(url: str | None) -> None:
    tests = Path(__file__).parents[1]
    environment = {name: value for name, value in os.environ.items() if name != URL_VARIABLE}
    environment |= {URL_VARIABLE: url} if url else {}
    done = subprocess.run(
        [sys.executable, str(tests / "snowflake_account.py")], env=environment, capture_output=True, text=True, check=False
    )

    assert "Estimated credits by warehouse size: X-Small 1.0" in done.stdout, done.stderr
    assert (done.returncode, URL_VARIABLE in done.stdout) == (0, not url)
