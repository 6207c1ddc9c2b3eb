"""pgbench's workloads: its tables, its statements, its transaction."""

import subprocess
from datetime import datetime

import pytest

from bench.workloads.standard.consistency import Violation, check_consistency
from bench.workloads.standard.given import drive
from drumbeat.bench.model import KeyValue, RandomNumber, SameAs, ValueType
from drumbeat.bench.targets.open import open_target
from drumbeat.bench.workloads.prepare import prepare
from drumbeat.bench.workloads.standard import standard
from servers.postgres import PostgresServer, installation


@pytest.mark.parametrize(
    ("scale", "branches", "tellers", "accounts"), [(0.01, 1, 10, 1_000), (1, 1, 10, 100_000), (2.5, 3, 30, 250_000)]
)
def test_a_branch_has_ten_tellers_and_a_hundred_thousand_accounts(
    scale: float, branches: int, tellers: int, accounts: int
) -> None:
    counts = {table.name: table.count for table in standard("tpcb", scale).tables}

    assert counts == {
        "pgbench_branches": branches,
        "pgbench_tellers": tellers,
        "pgbench_history": 0,
        "pgbench_accounts": accounts,
    }


def test_the_transaction_is_pgbenchs_in_seven_statements() -> None:
    (transaction,) = standard("tpcb", 2).load.operations

    assert [statement.sql for statement in transaction.statements] == [
        "BEGIN",
        "UPDATE pgbench_accounts SET abalance = abalance + $1 WHERE aid = $2",
        "SELECT abalance FROM pgbench_accounts WHERE aid = $1",
        "UPDATE pgbench_tellers SET tbalance = tbalance + $1 WHERE tid = $2",
        "UPDATE pgbench_branches SET bbalance = bbalance + $1 WHERE bid = $2",
        "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES ($1, $2, $3, $4, CURRENT_TIMESTAMP)",
        "COMMIT",
    ]
    assert transaction.statements[1].values == (RandomNumber(low=-5000, high=5000), KeyValue(high=200_000, type=ValueType.INT))
    assert [value.index for value in transaction.statements[5].values if isinstance(value, SameAs)] == [4, 6, 1, 0]


async def test_the_tables_of_pgbench_itself_serve_as_well(postgres: PostgresServer, postgres_url: str) -> None:
    command = [str(installation() / "bin" / "pgbench"), "-i", "-q", "-s", "1", postgres_url]
    subprocess.run(command, check=True, capture_output=True)

    async with open_target(postgres_url) as target:
        report = await prepare(target, standard("tpcb", 1))
        driven = await drive(target, standard("tpcb", 1).load, operations=100)
        violations = await check_consistency(target, standard("tpcb", 1))

    assert (report.added, driven.failed, violations) == (0, 0, ())


async def test_what_was_changed_outside_a_transaction_is_noticed(postgres_url: str) -> None:
    async with open_target(postgres_url) as target:
        workload = standard("tpcb", 0.01)
        await prepare(target, workload)
        await target.define(["UPDATE pgbench_accounts SET abalance = 7 WHERE aid = 5"])

        violations = await check_consistency(target, workload)

    assert violations == (Violation(condition="the accounts' balances add up to the history", count=1, examples=((7, 0),)),)


async def test_the_history_says_when(postgres_url: str) -> None:
    async with open_target(postgres_url) as target:
        await prepare(target, standard("simple-update", 0.01))
        await drive(target, standard("simple-update", 0.01).load, operations=10)

        ((first, count),) = await target.fetch("SELECT MIN(mtime), COUNT(*) FROM pgbench_history")

    assert isinstance(first, datetime)
    assert count >= 10
