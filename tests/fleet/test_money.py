"""What workers cost, and how many may be before a ceiling would be passed."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from drumbeat.core.recovery import ListedInstance
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.fleet.decide import decide
from drumbeat.fleet.model import AskToDrain, FleetPolicy, FleetView, Provider, Spawn, Spending, Tariff
from drumbeat.fleet.money import affordable, burn, granule_left, paid_until, settle, spend, spend_since
from fleet.given import NOW, job, queued, ready_worker, seconds, view, worker

HOURLY = timedelta(hours=1)
BY_SECOND = Tariff(price=2.0, granule=seconds(1))
BY_HOUR = Tariff(price=2.0, granule=HOURLY)
AT = NOW + timedelta(minutes=30)  # 12:30 on the first of January


def made(ago: float, **fields: Any) -> Worker:
    return worker(0, created_at=AT - seconds(ago), **fields)


def gone(lived: float, ago: float, **fields: Any) -> Worker:
    ended = AT - seconds(ago)
    return made(ago + lived, status=WorkerStatus.TERMINATED, reaped_at=ended, ended_at=ended, **fields)


@pytest.mark.parametrize(
    ("row", "tariff", "expected"),
    [
        (made(900), BY_SECOND, (0.5, 0.5, 0.5)),
        (made(3600), BY_SECOND, (1.0, 2.0, 2.0)),
        (made(900), BY_HOUR, (2.0, 2.0, 2.0)),
        (gone(900, ago=0), BY_SECOND, (0.5, 0.5, 0.5)),
        (gone(900, ago=7200), BY_SECOND, (0.0, 0.5, 0.5)),
        (gone(900, ago=7200), BY_HOUR, (0.0, 2.0, 2.0)),
        (made(900, meta={"price_per_hour": 4.0}), BY_SECOND, (1.0, 1.0, 1.0)),
        (made(900, meta={"spawn_failed": True}), BY_SECOND, (0.0, 0.0, 0.0)),
        (made(900, status=WorkerStatus.LOST), BY_SECOND, (0.5, 0.5, 0.5)),
    ],
    ids=[
        "now",
        "over the hour",
        "a whole granule",
        "ended",
        "ended before",
        "its granule",
        "its price",
        "never was",
        "not reaped",
    ],
)
def test_what_a_worker_costs_in_the_hour_the_day_and_the_month(
    row: Worker, tariff: Tariff, expected: tuple[float, float, float]
) -> None:
    told = spend([row], AT, tariff)

    assert (told.hour, told.day, told.month) == pytest.approx(expected)


def test_paid_time_is_rounded_up() -> None:
    assert paid_until(made(10), AT, HOURLY) == AT - seconds(10) + HOURLY
    assert paid_until(made(3601), AT, HOURLY) == AT - seconds(3601) + 2 * HOURLY
    hourly = queued(ready_worker(0, age=3590), provider=Provider(billing_granule=HOURLY))
    assert granule_left(hourly.workers[0], hourly) == seconds(10)


@pytest.mark.parametrize("granule", [1, 60, 3600, 86_400])
@pytest.mark.parametrize("begins", [NOW, datetime(2026, 1, 31, 20, 30, tzinfo=UTC)], ids=["a day", "a month ends"])
def test_money_added_up_from_beat_to_beat_is_that_of_all_workers(granule: int, begins: datetime) -> None:
    """Each beat reads only the workers that are not reaped or were reaped since what the last one settled."""
    for seed in range(6):
        chance, now, settled = Random(seed), begins, None
        rates, rows = Tariff(price=2.0, granule=seconds(granule)), list[Worker]()
        for n in range(60):
            now += seconds(chance.choice([0.5, 30, 30, 600, 5000, 40_000]))
            rows = [each if each.reaped_at or chance.random() < 0.6 else reaped(each, now, chance) for each in rows]
            rows += [worker(n, created_at=now, meta=chance.choice([{}, {"price_per_hour": 0.7}])) for _ in range(3)]
            read = [each for each in rows if settled is None or not each.reaped_at or each.reaped_at >= settled.until]
            settled = settle(settled, read, now, rates)
            found, expected = spend_since(settled, read), spend(rows, now, rates)

            assert (found.hour, found.day, found.month) == pytest.approx((expected.hour, expected.day, expected.month))
            assert n < 50 or len(read) < len(rows)


def reaped(row: Worker, now: datetime, chance: Random) -> Worker:
    """The worker's row after it was reaped; the store's clock may have gone back meanwhile."""
    return replace(row, status=WorkerStatus.TERMINATED, reaped_at=now - seconds(chance.choice([0, 0, 20, 3000])))


def test_everyone_whose_instance_may_exist_burns() -> None:
    rows = [made(1), made(1, status=WorkerStatus.LOST), gone(5, ago=1), made(1, meta={"spawn_failed": True})]

    assert burn(rows, BY_SECOND) == 4.0


def priced(*rows: Worker, price: float | None = 1.0, spent: Spending | None = None, **fields: Any) -> FleetView:
    return queued(*rows, price_per_hour=price, spent=spent or Spending(), **fields)


def test_the_hours_ceiling_is_also_on_what_runs_at_once() -> None:
    seen = priced(ready=90, max_per_hour=3.5, max_workers=50)

    assert affordable(seen, ()) == (3, "hour")
    assert sum(isinstance(each, Spawn) for each in decide(seen).actions) == 3


@pytest.mark.parametrize(
    ("own", "cap", "allowed"),
    [(3.0, 1.0, 2), (0.5, 2.0, 7), (2.0, 2.0, 3), (4.0, 1.0, 1), (0.0, 2.0, 8)],
    ids=["cap lowered", "cap raised", "as capped", "more than the ceiling", "free"],
)
def test_the_hours_ceiling_counts_running_workers_at_their_own_price(own: float, cap: float, allowed: int) -> None:
    """Two workers run, or five if they are cheap, each at its ``own`` price per hour; a new one costs ``cap``."""
    rows = tuple(ready_worker(n, meta={"price_per_hour": own}) for n in range(5 if own < 1 else 2))
    seen = priced(*rows, price=None, max_per_hour=6.5, max_workers=50, provider=Provider(price_per_hour=cap))

    assert affordable(seen, rows) == (allowed, "hour")


def test_who_leaves_or_is_not_reaped_is_reserved_for() -> None:
    rows = (ready_worker(0), worker(1, status=WorkerStatus.LOST), worker(2, status=WorkerStatus.DRAINING))

    assert affordable(priced(*rows, max_per_hour=4.0), rows[:1])[0] == 2


def test_no_ceiling_no_limit() -> None:
    assert affordable(priced(), ())[0] >= 1_000_000


def test_a_new_worker_is_counted_until_it_could_be_gone() -> None:
    each = (90 + 600 + 1) / 3600

    assert affordable(priced(max_per_day=each * 2 + 0.001, max_per_hour=None), ())[0] == 2
    assert affordable(priced(max_per_day=each * 2 - 0.001), ())[0] == 1


def test_a_whole_granule_is_reserved() -> None:
    hourly = Provider(billing_granule=HOURLY)

    assert affordable(priced(max_per_day=2.5, provider=hourly), ())[0] == 2


@pytest.mark.parametrize(("spent", "leave"), [(9.4, 0), (9.75, 2), (10.0, 3)])
def test_workers_are_asked_to_leave_before_the_ceiling_is_passed(spent: float, leave: int) -> None:
    rows = [ready_worker(n) for n in range(3)]
    held = tuple(job(f"j{n}", n) for n in range(3))
    seen = priced(*rows, held=held, max_per_day=10.0, spent=Spending(day=spent))

    asked = [each for each in decide(seen).actions if isinstance(each, AskToDrain)]

    assert len(asked) == leave
    assert all(each.within == timedelta(minutes=10) for each in asked)


@pytest.mark.parametrize(
    ("left", "stay"), [(690 * 2.4, 1), (690 * 1.8, 0)], ids=["either is paid for", "only the cheap one is"]
)
def test_so_many_may_stay_that_it_does_not_matter_who(left: float, stay: int) -> None:
    rows = tuple(ready_worker(n, meta={"price_per_hour": price}) for n, price in enumerate((1.0, 2.0)))
    seen = priced(*rows, max_per_day=10.0, spent=Spending(day=10.0 - left / 3600))

    assert affordable(seen, rows) == (stay, "day")


@pytest.mark.parametrize(("spent", "leave"), [(9.4, 0), (9.75, 2), (10.0, 3)])
def test_who_cannot_be_paid_for_leaves_at_once_however_short_it_was_idle(spent: float, leave: int) -> None:
    rows = [ready_worker(n) for n in range(3)]
    seen = priced(*rows, ready=9, max_per_day=10.0, spent=Spending(day=spent))

    assert sum(isinstance(each, AskToDrain) for each in decide(seen).actions) == leave


def test_the_minimum_does_not_pass_a_ceiling() -> None:
    seen = priced(min_workers=5, max_per_hour=2.0)

    assert sum(isinstance(each, Spawn) for each in decide(seen).actions) == 2
    assert decide(seen).summary["limits"][-1]["name"] == "money per hour"


def test_at_the_end_of_a_period_only_its_rest_is_reserved() -> None:
    late = replace(priced(max_per_hour=10.0, spent=Spending(hour=9.0)), now=NOW + timedelta(minutes=59))

    assert affordable(late, ())[0] == 10


@pytest.mark.parametrize(("name", "end"), [("day", NOW + timedelta(hours=12)), ("month", NOW + timedelta(days=30, hours=12))])
def test_what_falls_into_the_next_period_must_be_within_its_ceiling(name: str, end: datetime) -> None:
    """Half a minute before midnight everybody would be paid for, until midnight."""
    each = (90 + 600 + 1 - 30) / 3600
    ceiling: dict[str, Any] = {f"max_per_{name}": each * 2 + 0.001}
    seen = replace(priced(**ceiling), now=end - seconds(30))
    kept = tuple(ready_worker(n, created_at=end - seconds(300)) for n in range(4))

    assert affordable(seen, ()) == (2, name)
    assert affordable(replace(seen, workers=kept), kept) == (2, name)


def test_prices_and_ceilings_are_kept_with_what_is_spawned() -> None:
    (spawned,) = decide(priced(ready=1, price=0.4)).actions

    assert isinstance(spawned, Spawn)
    assert spawned.price_per_hour == 0.4


@pytest.mark.parametrize("ceiling", [{"max_per_hour": 3.5}, {"max_per_day": 3 * 691 / 3600}])
def test_an_instance_without_a_row_is_reserved_for_until_it_is_gone(ceiling: dict[str, Any]) -> None:
    stray = ListedInstance(worker_id=WorkerId("worker-9"), running=True)
    over = ListedInstance(worker_id=WorkerId("worker-8"), running=False)
    seen = priced(ready=90, max_workers=50, **ceiling)

    assert affordable(replace(seen, instances=(stray, over)), ())[0] == affordable(seen, ())[0] - 1


EXEMPT = {"capacity_exempt": True}


@pytest.mark.parametrize(("spent", "leave"), [(9.4, []), (9.5, [0]), (9.7, [0, 2]), (10.0, [0, 2, 1])])
def test_the_exempt_are_asked_to_leave_once_they_alone_would_pass_a_ceiling(spent: float, leave: list[int]) -> None:
    rows = [ready_worker(0, age=60), *(ready_worker(n, age=60, meta=EXEMPT) for n in (1, 2))]
    seen = priced(*rows, ready=9, max_per_day=10.0, spent=Spending(day=spent), min_workers=1)

    asked = [each for each in decide(seen).actions if isinstance(each, AskToDrain)]

    assert [each.worker_id for each in asked] == [f"worker-{n}" for n in leave]


def test_an_exempt_worker_without_a_queue_is_bound_by_the_hours_ceiling_too() -> None:
    rows = [ready_worker(n, age=60, meta=EXEMPT) for n in range(3)]
    seen = view(*rows, policy=FleetPolicy(workers=0, price_per_hour=1.0, max_per_hour=2.0))

    (asked,) = decide(seen).actions

    assert isinstance(asked, AskToDrain)
    assert "the money ceiling per hour" in asked.reason
