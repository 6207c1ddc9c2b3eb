"""Throughput × latency is the connections; where it is not, the check says so, and why."""

from collections.abc import Callable
from datetime import timedelta

import numpy as np
import pytest

from drumbeat.bench.driver.littles_law_check import LittlesLawCheck
from drumbeat.bench.driver.records import FAILED, LOST, OK, Records, empty
from drumbeat.bench.model import KeyValue, Load, Operation, Statement
from drumbeat.bench.model.littles_law import explain_deviation
from drumbeat.bench.model.words import texts_that_differ
from drumbeat.bench.targets.postgres import PostgresTarget
from drumbeat.bench.worker.drive import DriveSettings, drive
from drumbeat.core.clock import SystemClock

MS = 1_000_000
SECOND = 1000 * MS


def busy(connection: int, *, took: int, gap: int = 0, outcome: int = OK, begin: int = 1, until: int = SECOND) -> Records:
    """One connection's operations, one after the other."""
    starts = np.arange(begin, until, took + gap)
    made = empty(len(starts))
    made["connection"], made["start"], made["duration"], made["outcome"] = connection, starts, took, outcome
    return made


def checked(*records: Records, held: int) -> dict[str, float]:
    little = LittlesLawCheck()
    little.sample(held)
    for each in records:
        little.absorb(each)
    found = little.check(1.0)
    assert found is not None
    return dict(found)


def test_connections_that_are_always_busy_add_up() -> None:
    found = checked(busy(0, took=2 * MS), busy(1, took=5 * MS), held=2)

    assert found["throughput_times_latency"] == pytest.approx(2, rel=0.001)
    assert explain_deviation(found) is None


def test_operations_that_fail_count_too() -> None:
    found = checked(busy(0, took=2 * MS), busy(1, took=2 * MS, outcome=FAILED), held=2)

    assert explain_deviation(found) is None


def test_time_between_operations_is_the_clients() -> None:
    found = checked(busy(0, took=9 * MS, gap=MS), busy(1, took=9 * MS, gap=MS), held=2)

    assert found["client_share"] == pytest.approx(0.1, rel=0.02)
    assert found["off_by"] == pytest.approx(0.1, rel=0.02)
    assert found["unexplained"] < 0.01
    assert "waited for the client, 9.9% of the time" in str(explain_deviation(found))


def test_what_differs_is_said_with_as_many_digits_as_it_takes() -> None:
    off = {"connections": 2.0, "throughput_times_latency": 1.95, "off_by": 0.025, "client_share": 0.0, "unexplained": 0.025}
    doubled = {**off, "throughput_times_latency": 1.999, "off_by": 0.0005, "client_share": 0.03, "unexplained": 0.0295}
    hair = {**off, "connections": 1000.0, "throughput_times_latency": 979.9, "off_by": 0.0201, "unexplained": 0.0201}

    assert "throughput × latency is 1.95, not 2, the number of open connections (-2.5%)" in str(explain_deviation(off))
    assert "throughput × latency plus the pauses between operations is 2.06, not 2, the number" in str(
        explain_deviation(doubled)
    )
    assert "is 980, not 1,000, the number of open connections" in str(explain_deviation(hair))
    assert texts_that_differ(10.0003, 10.0) == ("10.0003", "10")


def test_gaps_are_seen_between_batches_and_in_any_order() -> None:
    whole = np.concatenate([busy(connection, took=9 * MS, gap=MS) for connection in range(3)])
    early, late = whole[whole["start"] < SECOND // 2], whole[whole["start"] >= SECOND // 2]

    in_batches = checked(np.random.default_rng(1).permutation(early), late, held=3)

    assert in_batches == pytest.approx(checked(whole, held=3))


def test_a_connection_that_did_nothing_is_unexplained() -> None:
    found = checked(busy(0, took=2 * MS), held=2)

    assert found["unexplained"] == pytest.approx(0.5, rel=0.01)
    assert "not reliable" in str(explain_deviation(found))


def test_the_time_it_takes_to_replace_a_lost_connection_is_not_the_clients() -> None:
    lost = busy(0, took=10 * MS, until=2)
    lost["outcome"] = LOST

    found = checked(np.concatenate([lost, busy(0, took=10 * MS, begin=500 * MS)]), held=1)

    assert found["client_share"] == 0


async def test_a_load_full_of_conflicts_adds_up(new_database: Callable[[], str]) -> None:
    same = Statement(sql="INSERT INTO t VALUES ($1)", values=(KeyValue(low=1, high=1),))
    work = Load(name="x", operations=(Operation(kind="INSERT", weight=100, statements=(same,)),))
    settings = DriveSettings(connections=8, duration=timedelta(seconds=1.5), warmup=timedelta(seconds=0.2))
    async with PostgresTarget(new_database()) as target:
        await target.define(["CREATE TABLE t (k bigint PRIMARY KEY)"])
        result = await drive(target, work, settings, SystemClock())

    assert result.tally.errors >= result.tally.operations - 1 > 0
    assert result.little is not None
    assert result.little["unexplained"] < 0.5, "far less on a quiet machine; before, all of it was missing"
