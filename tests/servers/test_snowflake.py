"""The Snowflake emulator does what Snowflake does where fakesnow does not, seen through the real connector."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import pytest

from servers.snowflake import PASSWORD, USER, SnowflakeServer
from servers.snowflake_client import Client


@pytest.fixture
def jobs(client: Client) -> str:
    client(
        "CREATE HYBRID TABLE jobs (id NUMBER PRIMARY KEY, state VARCHAR NOT NULL, n INT, INDEX by_state (state) INCLUDE (n))"
    )
    client("INSERT INTO jobs VALUES (1, 'ready', 0), (2, 'ready', 0)")
    return "jobs"


def test_a_hybrid_table_enforces_its_key(client: Client, jobs: str) -> None:
    assert client.refused("INSERT INTO jobs VALUES (1, 'again', 0)") == (200001, "22000")
    assert client("SELECT COUNT(*) FROM jobs") == [(2,)]


def test_a_hybrid_table_needs_a_key(client: Client) -> None:
    assert client.refused("CREATE HYBRID TABLE keyless (id NUMBER)")[0] == 391402


def test_an_account_without_hybrid_tables_refuses_them(snowflake: SnowflakeServer, client: Client) -> None:
    snowflake.command("account", hybrid_tables=False)
    try:
        assert client.refused("CREATE HYBRID TABLE t (id NUMBER PRIMARY KEY)")[0] == 391420
    finally:
        snowflake.command("account", hybrid_tables=True)


def test_a_standard_table_does_not_enforce_its_key(client: Client) -> None:
    client("CREATE TABLE plain (id NUMBER PRIMARY KEY, v VARCHAR UNIQUE)")
    client("INSERT INTO plain VALUES (1, 'a')")
    client("INSERT INTO plain VALUES (1, 'a')")
    assert client("SELECT COUNT(*) FROM plain") == [(2,)]
    assert client.refused("INSERT INTO plain VALUES (NULL, 'a')")[0] == 100072


def test_an_interactive_table_is_read_only(client: Client, jobs: str) -> None:
    client("CREATE INTERACTIVE TABLE seen CLUSTER BY (id) AS SELECT * FROM jobs")
    assert client("SELECT COUNT(*) FROM seen") == [(2,)]
    assert client.refused("UPDATE seen SET n = 1")[1] == "0A000"


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE jobs SET n = 1 WHERE id = 1 RETURNING n",
        "INSERT INTO jobs VALUES (9, 'x', 1) RETURNING id",
        "DELETE FROM jobs RETURNING id",
    ],
)
def test_returning_is_refused(client: Client, jobs: str, sql: str) -> None:
    assert client.refused(sql) == (1003, "42000")
    assert client("SELECT SUM(n), COUNT(*) FROM jobs") == [(0, 2)]


def test_a_missing_table_and_a_missing_column_are_told_apart(client: Client, jobs: str) -> None:
    assert client.refused("SELECT * FROM nowhere") == (2003, "42S02")
    assert client.refused("SELECT nothing FROM jobs") == (904, "42000")


def test_a_failed_statement_leaves_its_transaction_open(client: Client, jobs: str) -> None:
    client("BEGIN")
    client("UPDATE jobs SET n = 5 WHERE id = 1")
    client.refused("INSERT INTO jobs VALUES (1, 'again', 0)")
    client("UPDATE jobs SET n = 6 WHERE id = 2")
    client("COMMIT")
    assert client("SELECT n FROM jobs ORDER BY id") == [(5,), (6,)]


def test_a_rollback_undoes_the_transaction(client: Client, jobs: str) -> None:
    client("BEGIN TRANSACTION")
    client("UPDATE jobs SET n = 5")
    client("ROLLBACK")
    assert client("SELECT SUM(n) FROM jobs") == [(0,)]


def test_without_autocommit_a_change_waits_for_its_commit(
    snowflake: SnowflakeServer, database: str, client: Client, jobs: str
) -> None:
    writer = Client(snowflake, database, autocommit=False)
    writer("UPDATE jobs SET n = 5 WHERE id = 1")
    assert client("SELECT n FROM jobs WHERE id = 1") == [(0,)]
    writer.connection.commit()
    assert client("SELECT n FROM jobs WHERE id = 1") == [(5,)]
    writer.connection.close()


def test_concurrent_updates_of_one_row_wait_for_each_other(
    snowflake: SnowflakeServer, database: str, client: Client, jobs: str
) -> None:
    clients = [Client(snowflake, database) for _ in range(4)]

    def increment(each: Client) -> None:
        for _ in range(5):
            each("BEGIN")
            each("UPDATE jobs SET n = n + 1 WHERE id = 1")
            each("COMMIT")

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(increment, clients))
    assert client("SELECT n FROM jobs WHERE id = 1") == [(20,)]
    for each in clients:
        each.connection.close()


def test_a_writer_waits_for_an_open_transaction(snowflake: SnowflakeServer, client: Client, other: Client, jobs: str) -> None:
    client("BEGIN")
    client("UPDATE jobs SET n = 10 WHERE id = 1")
    waiting = threading.Thread(target=lambda: other("UPDATE jobs SET n = n + 1 WHERE id = 1"))
    waiting.start()
    while snowflake.state()["waiting_for_lock"] == 0:
        time.sleep(0.01)
    client("COMMIT")
    waiting.join()
    assert client("SELECT n FROM jobs WHERE id = 1") == [(11,)]


def test_a_lock_timeout_is_an_error(client: Client, other: Client, jobs: str) -> None:
    client("BEGIN")
    client("UPDATE jobs SET n = 10 WHERE id = 1")
    other("ALTER SESSION SET LOCK_TIMEOUT = 1")
    assert other.refused("UPDATE jobs SET n = 0") == (625, "57014")
    client("ROLLBACK")


def test_an_abandoned_transaction_is_rolled_back_while_others_wait(
    snowflake: SnowflakeServer, client: Client, other: Client, jobs: str
) -> None:
    snowflake.command("account", abandoned_after=0.3)
    try:
        client("BEGIN")
        client("UPDATE jobs SET n = 10 WHERE id = 1")
        other("UPDATE jobs SET n = n + 1 WHERE id = 1")
        assert other("SELECT n FROM jobs WHERE id = 1") == [(1,)]
    finally:
        snowflake.command("account", abandoned_after=300.0)


def test_for_update_has_its_rules(client: Client, other: Client, jobs: str) -> None:
    client("CREATE TABLE plain (id NUMBER)")
    assert client.refused("SELECT * FROM jobs WHERE id = 1 FOR UPDATE")[1] == "0A000", "not in autocommit"
    client("BEGIN")
    assert client("SELECT id FROM jobs WHERE id = 1 FOR UPDATE NOWAIT") == [(1,)]
    other("BEGIN")
    assert other.refused("SELECT id FROM plain FOR UPDATE")[1] == "0A000", "hybrid tables only"
    assert other.refused("SELECT id FROM jobs FOR UPDATE")[0] == 625, "NOWAIT is the default"
    assert other.refused("SELECT a.id FROM jobs a JOIN jobs b ON a.id = b.id FOR UPDATE")[1] == "0A000"
    client("COMMIT")
    assert other("SELECT id FROM jobs WHERE id = 2 FOR UPDATE WAIT 5") == [(2,)]


def test_a_script_is_one_transaction_and_returns_rows(client: Client, jobs: str) -> None:
    rows = client(
        """EXECUTE IMMEDIATE $$
        BEGIN
            BEGIN TRANSACTION;
            UPDATE jobs SET n = n + 1, state = 'claimed' WHERE id = 1 AND state = 'ready';
            LET changed := SQLROWCOUNT;
            IF (changed = 0) THEN
                ROLLBACK;
                RETURN 'nothing';
            END IF;
            LET total INTEGER := (SELECT SUM(n) FROM jobs);
            INSERT INTO jobs VALUES (3, 'event', :total);
            COMMIT;
            LET found RESULTSET := (SELECT id, n FROM jobs WHERE state <> 'ready' ORDER BY id);
            RETURN TABLE(found);
        EXCEPTION
            WHEN OTHER THEN
                ROLLBACK;
                RAISE;
        END;
        $$"""
    )
    assert rows == [(1, 1), (3, 1)]


def test_a_script_that_fails_undoes_its_transaction(client: Client, jobs: str) -> None:
    script = """
    BEGIN
        BEGIN TRANSACTION;
        UPDATE jobs SET n = 99;
        INSERT INTO jobs VALUES (1, 'again', 0);
        COMMIT;
    EXCEPTION
        WHEN OTHER THEN
            ROLLBACK;
            RAISE;
    END"""
    assert client.refused(script) == (200001, "22000")
    assert client("SELECT SUM(n) FROM jobs") == [(0,)]


def test_a_script_may_loop_and_decide(client: Client) -> None:
    script = """
    DECLARE total INTEGER DEFAULT 0;
    BEGIN
        FOR i IN 1 TO 4 DO
            IF (i = 2) THEN total := total + 10; ELSEIF (i = 3) THEN NULL; ELSE total := total + i; END IF;
        END FOR;
        RETURN total;
    END"""
    assert client(script) == [(15,)]


def test_a_sequence_may_be_ordered(client: Client) -> None:
    client("CREATE SEQUENCE IF NOT EXISTS ids START 1 INCREMENT 1 ORDER")
    assert [client("SELECT ids.NEXTVAL")[0][0] for _ in range(2)] == [1, 2]


def test_a_null_timestamp_and_a_word_that_duckdb_reserves_come_back(client: Client) -> None:
    client("CREATE TABLE t (id INT, at TIMESTAMP_NTZ, end TIMESTAMP_TZ)")
    client("INSERT INTO t VALUES (1, NULL, '2026-01-02T03:04:05+00:00'), (2, '2026-01-02 03:04:05.678', NULL)")
    rows = client("SELECT at, end FROM t ORDER BY id")
    assert rows[0][0] is None
    assert rows[1] == (datetime(2026, 1, 2, 3, 4, 5, 678_000), None)  # noqa: DTZ001


def test_session_settings_are_kept_and_seen(snowflake: SnowflakeServer, client: Client) -> None:
    client("ALTER SESSION SET QUERY_TAG = 'run=7', USE_CACHED_RESULT = FALSE")
    client("SELECT 1")
    assert snowflake.statements()[-1].tag == "run=7"
    assert snowflake.state()["sessions"][-1]["parameters"]["USE_CACHED_RESULT"] == "FALSE"
    assert client("SELECT CURRENT_WAREHOUSE()") == [("COMPUTE_WH",)]


def test_the_result_of_the_last_statement_can_be_queried(client: Client) -> None:
    client("SHOW WAREHOUSES LIKE 'COMPUTE_WH'")
    assert client('SELECT "name", "queued" FROM TABLE(RESULT_SCAN(LAST_QUERY_ID()))') == [("COMPUTE_WH", 0)]


def test_a_warehouse_is_changed_suspended_and_resumed(client: Client) -> None:
    client("CREATE WAREHOUSE small WITH WAREHOUSE_SIZE = 'XSMALL' INITIALLY_SUSPENDED = TRUE AUTO_RESUME = FALSE")
    client("ALTER WAREHOUSE small SET WAREHOUSE_SIZE = 'MEDIUM' MAX_CLUSTER_COUNT = 3")
    assert client("SHOW WAREHOUSES LIKE 'SMALL'")[0][:6] == ("SMALL", "SUSPENDED", "STANDARD", "Medium", 1, 3)
    client("CREATE TABLE t (id INT)")
    client("USE WAREHOUSE small")
    assert client.refused("SELECT * FROM t")[0] == 606
    client("ALTER WAREHOUSE small RESUME IF SUSPENDED")
    assert client("SELECT * FROM t") == []
    client("DROP WAREHOUSE small")


def test_the_history_holds_tags_queue_times_and_errors(snowflake: SnowflakeServer, client: Client, jobs: str) -> None:
    client("ALTER SESSION SET QUERY_TAG = 'history'")
    snowflake.queue("SELECT id FROM jobs", overload_ms=250, provisioning_ms=40)
    client("SELECT id FROM jobs")
    client.refused("SELECT * FROM nowhere")
    columns = "query_text, execution_status, queued_overload_time, queued_provisioning_time, error_code"
    where = "WHERE query_tag = 'history' AND query_type = 'SELECT' ORDER BY start_time"
    expected = [("SELECT id FROM jobs", "SUCCESS", 250, 40, None), ("SELECT * FROM nowhere", "FAIL", 0, 0, "002003")]
    live = client(f"SELECT {columns} FROM TABLE(INFORMATION_SCHEMA.QUERY_HISTORY(RESULT_LIMIT => 1000)) {where}")
    assert live[:2] == expected
    assert client(f"SELECT {columns} FROM SNOWFLAKE.ACCOUNT_USAGE.QUERY_HISTORY {where}")[:2] == expected


def test_the_history_function_returns_a_hundred_rows_unless_asked_for_more(client: Client) -> None:
    for _ in range(110):
        client("SHOW WAREHOUSES")
    assert client("SELECT COUNT(*) FROM TABLE(INFORMATION_SCHEMA.QUERY_HISTORY())") == [(100,)]
    assert client("SELECT COUNT(*) FROM TABLE(INFORMATION_SCHEMA.QUERY_HISTORY(RESULT_LIMIT => 10000))")[0][0] > 100


def test_rows_of_the_history_can_be_late(snowflake: SnowflakeServer, client: Client) -> None:
    snowflake.delay_history(hold="late one")
    client("SELECT 'late one'")
    count = "SELECT COUNT(*) FROM TABLE(INFORMATION_SCHEMA.QUERY_HISTORY()) WHERE query_text LIKE 'SELECT ''late%'"
    assert client(count) == [(0,)]
    snowflake.release_history()
    assert client(count) == [(1,)]


def test_a_full_warehouse_queues_statements(snowflake: SnowflakeServer, client: Client, other: Client) -> None:
    client("CREATE OR REPLACE WAREHOUSE narrow")
    client("CREATE TABLE t (id INT)")
    other("USE WAREHOUSE narrow")
    client("USE WAREHOUSE narrow")
    snowflake.limit_warehouse("NARROW", slots=1, service_seconds=1.0)
    first = threading.Thread(target=lambda: other("SELECT * FROM t"))
    first.start()
    while snowflake.state()["warehouses"]["NARROW"]["running"] == 0:
        time.sleep(0.01)
    client("SELECT * FROM t")
    first.join()
    client("USE WAREHOUSE compute_wh")
    query = "SELECT MAX(queued_overload_time) FROM SNOWFLAKE.ACCOUNT_USAGE.QUERY_HISTORY WHERE warehouse_name = 'NARROW'"
    assert client(query)[0][0] > 0


def test_a_statement_can_fail_on_command(snowflake: SnowflakeServer, client: Client) -> None:
    snowflake.fail("SELECT 42", number=604, sqlstate="57014")
    assert client.refused("SELECT 42") == (604, "57014")
    assert client("SELECT 42") == [(42,)]


def test_a_statement_can_be_answered_wrongly(snowflake: SnowflakeServer, client: Client) -> None:
    snowflake.lie("SELECT 42", ["N"], [[41]])
    assert client("SELECT 42") == [(41,)]


def test_a_statement_whose_answer_is_lost_runs_once(snowflake: SnowflakeServer, client: Client, jobs: str) -> None:
    snowflake.leave_unanswered("UPDATE jobs")
    assert client.changed("UPDATE jobs SET n = n + 1 WHERE id = 1") == 1
    assert client("SELECT n FROM jobs WHERE id = 1") == [(1,)]


def test_a_slow_statement_meets_the_statement_timeout(snowflake: SnowflakeServer, client: Client) -> None:
    client("ALTER SESSION SET STATEMENT_TIMEOUT_IN_SECONDS = 1")
    assert client.refused("SELECT SYSTEM$WAIT(30)") == (630, "57014")


def test_sign_in_is_checked_once_there_is_a_user(snowflake: SnowflakeServer) -> None:
    from snowflake.connector.errors import DatabaseError

    snowflake.add_user(USER, password=PASSWORD)
    Client(snowflake, "TEST").connection.close()
    with pytest.raises(DatabaseError) as caught:
        _connect(snowflake, password="wrong")
    assert "390100" in str(caught.value) or caught.value.errno == 390100
    assert snowflake.state()["sign_ins"][-1] == {"user": USER, "authenticator": "SNOWFLAKE"}


def _connect(server: SnowflakeServer, **options: Any) -> Any:
    import snowflake.connector

    return snowflake.connector.connect(**{**server.parameters(), **options})


def test_everything_a_client_sent_can_be_read(snowflake: SnowflakeServer, client: Client) -> None:
    client("SELECT 'a needle'")
    assert any("a needle" in each.sql for each in snowflake.statements())
