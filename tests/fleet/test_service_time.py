"""How long jobs take: as seen, or as the policy expects, or no less than one has been held."""

from dataclasses import replace
from datetime import timedelta
from itertools import permutations
from typing import Any

import pytest

from drumbeat.core.worker import WorkerId
from drumbeat.fleet.decide import decide_step
from drumbeat.fleet.decide.learned import service_time
from drumbeat.fleet.model import AskToDrain, Finished, FleetState, FleetView, HeldJob, ServiceTime
from fleet.given import NOW, job, queued, ready_worker, seconds

SEEN = (ServiceTime(type="", count=10, mean=seconds(40), longest=seconds(60)),)


def known(*held: HeldJob, services: tuple[ServiceTime, ...] = (), expects: timedelta | None = None) -> float | None:
    view = queued(ready_worker(0), ready=3, held=held, policy="lag_aware", expected_service=expects)
    return service_time(view, services)


@pytest.mark.parametrize(
    ("held", "services", "expects", "found"),
    [
        ((), (), None, None),
        ((), (), seconds(90), 90),
        ((job("a", 0, held_for=0),), (), None, None),
        ((job("a", 0, held_for=50),), (), None, 50),
        ((job("a", 0, held_for=50),), (), seconds(90), 90),
        ((job("a", 0, held_for=150),), (), seconds(90), 150),
        ((job("a", 0, held_for=150),), SEEN, seconds(90), 40),
    ],
)
def test_what_was_seen_counts_more_than_the_hint_and_the_hint_more_than_nothing(
    held: tuple[HeldJob, ...], services: tuple[ServiceTime, ...], expects: timedelta | None, found: float | None
) -> None:
    assert known(*held, services=services, expects=expects) == found


def finishing(*took: float) -> FleetView:
    finished = tuple(Finished(worker_id=WorkerId("worker-0"), took=seconds(each), at=NOW) for each in took)
    return replace(queued(ready_worker(0), policy="lag_aware"), finished=finished, state=FleetState(services=SEEN))


def test_jobs_that_end_in_one_beat_count_alike_in_any_order() -> None:
    found = {decide_step(finishing(*order)).state.services[0].mean for order in permutations([2.0, 8.0, 20.0, 40.0])}

    assert max(found) - min(found) < timedelta(milliseconds=1)


@pytest.mark.parametrize(("ready_for", "leave"), [(140, 0), (160, 1)])
def test_an_idle_worker_stays_for_a_restarts_worth_after_it_was_ready(ready_for: float, leave: int) -> None:
    made: dict[str, Any] = {"created_at": NOW - seconds(ready_for + 120), "ready_at": NOW - seconds(ready_for)}
    long_idle = FleetState(levels=((False, 0.0),), counted_from=NOW - seconds(9000), arrivals=((8970.0, 0),))
    view = queued(ready_worker(0, **made), policy="lag_aware", state=long_idle)

    assert len([each for each in decide_step(view).actions if isinstance(each, AskToDrain)]) == leave
