from dataclasses import replace
from datetime import timedelta

import pytest

from bench.recorded import BEGAN, record
from drumbeat.bench.model.plan import Prices, RunPlan
from drumbeat.bench.model.record import WorkerRecord
from drumbeat.bench.results.cost import Method, cost, cost_of
from drumbeat.core.worker import WorkerId

BOTH = Prices(worker_hour=0.5, target_hour=4.0, currency="EUR")


def test_hours_times_prices_and_what_was_got_for_it() -> None:
    found = cost(BOTH, worker_hours=2.0, target_hours=0.5, operations=6_000, qps=100.0)

    assert found.method is Method.ACTUAL
    assert (found.workers, found.target, found.total, found.currency) == (1.0, 2.0, 3.0, "EUR")
    assert found.per_hour == 6.0
    assert found.per_operation == pytest.approx(0.0005)
    assert found.per_1000_operations == pytest.approx(0.5)
    assert found.qps_per_money == pytest.approx(100 / 6)
    assert found.per_1000_qps == pytest.approx(60)


def test_a_part_without_a_price_is_not_in_the_total() -> None:
    found = cost(Prices(target_hour=4.0), worker_hours=2.0, target_hours=0.5, operations=0, qps=0.0)

    assert (found.workers, found.total) == (None, 2.0)
    assert (found.per_1000_operations, found.qps_per_money, found.per_1000_qps) == (None, 0.0, None)


@pytest.mark.parametrize(("prices", "hours"), [(Prices(), 1.0), (BOTH, 0.0)])
def test_without_prices_or_hours_the_cost_is_unavailable(prices: Prices, hours: float) -> None:
    found = cost(prices, worker_hours=hours, target_hours=hours, operations=5, qps=1.0)

    assert (found.method, found.total) == (Method.UNAVAILABLE, None)


def test_a_runs_workers_are_paid_from_their_beginning_to_their_end() -> None:
    ended = BEGAN + timedelta(hours=1)
    workers = (
        WorkerRecord(worker_id=WorkerId("a"), began=BEGAN, ended=BEGAN + timedelta(minutes=30)),
        WorkerRecord(worker_id=WorkerId("b"), began=BEGAN),
        WorkerRecord(worker_id=WorkerId("never came")),
    )
    found = cost_of(replace(record(), plan=RunPlan(prices=BOTH), workers=workers, ended=ended))

    assert (found.worker_hours, found.target_hours) == (1.5, 1.0)
    assert found.total == 0.75 + 4.0
