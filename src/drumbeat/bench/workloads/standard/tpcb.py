"""pgbench's workloads, with its table names and columns, so that tables made by ``pgbench -i`` work as well."""

from collections.abc import Callable, Sequence
from typing import Any

from drumbeat.bench.model import KeyValue, Kind, Load, Operation, RandomNumber, ValueType
from drumbeat.bench.workloads.standard.rows import scaled_count
from drumbeat.bench.workloads.standard.scaled import Condition, Scaled, Standard
from drumbeat.bench.workloads.standard.script import Named, operation, transaction
from drumbeat.bench.workloads.standard.table import Rows, StandardTable, table

ACCOUNTS, TELLERS = 100_000, 10  #: how many of them each branch has

_UPDATE_ACCOUNT = "UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid"
_SELECT_ACCOUNT = "SELECT abalance FROM pgbench_accounts WHERE aid = :aid"
_UPDATE_TELLER = "UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid"
_UPDATE_BRANCH = "UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid"
_INSERT_HISTORY = (
    "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP)"
)


_BRANCH = {"bid": "INTEGER NOT NULL", "bbalance": "INTEGER", "filler": "CHAR(88)"}
_TELLER = {"tid": "INTEGER NOT NULL", "bid": "INTEGER", "tbalance": "INTEGER", "filler": "CHAR(84)"}
_ACCOUNT = {"aid": "INTEGER NOT NULL", "bid": "INTEGER", "abalance": "INTEGER", "filler": "CHAR(84)"}
_HISTORY = {
    "tid": "INTEGER",
    "bid": "INTEGER",
    "aid": "INTEGER",
    "delta": "INTEGER",
    "mtime": "TIMESTAMP",
    "filler": "CHAR(22)",
}


def tables(scale: float) -> tuple[StandardTable, ...]:
    """Return pgbench's tables at a scale: branches, tellers, an empty history, and 100,000 accounts per branch."""
    accounts = scaled_count("tpcb", scale, ACCOUNTS)
    branches = branches_for(accounts)
    branch, teller = _rows(lambda row: (row + 1, 0, None)), _rows(lambda row: (row + 1, row // TELLERS + 1, 0, None))
    account, none = _rows(lambda row: (row + 1, row // ACCOUNTS + 1, 0, "")), _rows(lambda row: ())
    return (
        table("pgbench_branches", _BRANCH, key=("bid",), rows=branch, count=branches),
        table("pgbench_tellers", _TELLER, key=("tid",), rows=teller, count=branches * TELLERS),
        table("pgbench_history", _HISTORY, key=("tid",), rows=none, count=0, unique=False, changes=True),
        table("pgbench_accounts", _ACCOUNT, key=("aid",), rows=account, count=accounts),
    )


def _rows(row: Callable[[int], Sequence[Any]]) -> Rows:
    return lambda begin, end: [row(number) for number in range(begin, end)]


def branches_for(accounts: int) -> int:
    return -(-accounts // ACCOUNTS)


def values(scale: float) -> Named:
    accounts = scaled_count("tpcb", scale, ACCOUNTS)
    branches = branches_for(accounts)
    return {
        "aid": KeyValue(high=accounts, type=ValueType.INT),
        "bid": KeyValue(high=branches, type=ValueType.INT),
        "tid": KeyValue(high=branches * TELLERS, type=ValueType.INT),
        "delta": RandomNumber(low=-5000, high=5000),
    }


def tpcb_like(scale: float) -> Operation:
    return transaction(
        "TPCB", 100, values(scale), _UPDATE_ACCOUNT, _SELECT_ACCOUNT, _UPDATE_TELLER, _UPDATE_BRANCH, _INSERT_HISTORY
    )


def simple_update(scale: float) -> Operation:
    return transaction("SIMPLE_UPDATE", 100, values(scale), _UPDATE_ACCOUNT, _SELECT_ACCOUNT, _INSERT_HISTORY)


def select_only(scale: float) -> Operation:
    return operation(Kind.POINT_LOOKUP, 100, values(scale), _SELECT_ACCOUNT, reads=True)


_ACCOUNTS_ADD_UP = Condition(
    name="the accounts' balances add up to the history",
    sql="SELECT accounts, changed FROM (SELECT"
    " (SELECT COALESCE(SUM(abalance), 0) FROM pgbench_accounts) AS accounts,"
    " (SELECT COALESCE(SUM(delta), 0) FROM pgbench_history) AS changed) AS totals WHERE accounts <> changed",
)
_BRANCHES_ADD_UP = Condition(
    name="the branches' balances add up to the tellers'",
    sql="SELECT branches, tellers FROM (SELECT"
    " (SELECT COALESCE(SUM(bbalance), 0) FROM pgbench_branches) AS branches,"
    " (SELECT COALESCE(SUM(tbalance), 0) FROM pgbench_tellers) AS tellers) AS totals WHERE branches <> tellers",
)


def _scaled(name: str, scale: float, transaction: Operation, *conditions: Condition) -> Scaled:
    load = Load(name=name, operations=(transaction,))
    return Scaled(name=name, scale=scale, tables=tables(scale), load=load, conditions=conditions)


TPCB = (
    Standard(
        name="tpcb",
        summary="pgbench default: three updates, a select and an insert in a transaction; scale 1 is 100,000 accounts",
        at=lambda scale: _scaled("tpcb", scale, tpcb_like(scale), _ACCOUNTS_ADD_UP, _BRANCHES_ADD_UP),
    ),
    Standard(
        name="simple-update",
        summary="pgbench -N: like tpcb, without the contended tellers and branches; scale 1 is 100,000 accounts",
        at=lambda scale: _scaled("simple-update", scale, simple_update(scale), _ACCOUNTS_ADD_UP),
    ),
    Standard(
        name="select-only",
        summary="pgbench -S: one account by its key; scale 1 is 100,000 accounts",
        at=lambda scale: _scaled("select-only", scale, select_only(scale)),
    ),
)
