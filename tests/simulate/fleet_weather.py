"""What goes wrong in a run of the fleet, and how often: drawn from its seed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from random import Random

from spawn.runpod.faults import Answers, ArrivesLate, Duplicates, Fault, Invents, KeepsOnDelete, Loses, Omits
from spawn.runpod.simulator import NO_STOCK

CALLS = ("createPod", "createPod", "listPods", "listPods", "getPod", "deletePod", "listGpuTypes")
LATE = 60  #: seconds for which a call may be under way, at the most
HIDDEN = 100  #: seconds for which a pod may be in no list, at the most: with LATE less than a provider is given to settle
HIDDEN_FROM_LEAPS = 30  #: the same where the clock jumps by which that time is counted
LEAP = 45  #: seconds by which the store's clock may jump, at the most


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """Chances: of each call of a controller, of each request to the provider, of each minute."""

    dies: float = 0.0  #: the controller is killed, before the call takes effect or after
    fails: float = 0.0  #: the store gives no answer, whether or not it did what was asked
    lags: float = 0.0  #: the call takes up to a minute, and goes on if its caller does not
    provider: float = 0.0  #: faults of the provider in a minute
    leaps: float = 0.0  #: of the store's clock, in a minute
    kills: float = 0.0  #: of a worker: its process is gone, and its pod says so or does not
    freezes: float = 0.0  #: of a worker: silent for minutes, and then it goes on


CALM = Weather()


def drawn(chance: Random) -> Weather:
    """Weather for one run: some of it bad, none of it always."""

    def pick(*choices: float) -> float:
        return chance.choice(choices)

    return Weather(
        dies=pick(0.0, 0.003, 0.01, 0.03),
        fails=pick(0.0, 0.003, 0.01, 0.03),
        lags=pick(0.0, 0.003, 0.01, 0.03),
        provider=pick(0.0, 0.3, 1.0, 2.0),
        leaps=pick(0.0, 0.0, 0.1, 0.3),
        kills=pick(0.0, 0.0, 0.02, 0.1),
        freezes=pick(0.0, 0.0, 0.02, 0.1),
    )


def contested(weather: Weather) -> Weather:
    """Controllers live long, their calls take long, and the clock by which they lead jumps: two often believe to lead."""
    return replace(weather, dies=0.0, fails=0.0, lags=0.06, leaps=1.0)


def without(weather: Weather, *names: str) -> Weather:
    return replace(weather, **dict.fromkeys(names, 0.0))


def provider_faults(chance: Random, workers: Sequence[str], hidden: int = HIDDEN) -> Fault:
    """One thing that goes wrong at the provider."""
    call, times = chance.choice(CALLS), chance.randint(1, 3)
    name = chance.choice(list(workers) or ["nobody"])
    status = chance.choice([400, 401, 402, 403, 422, 429, 500, 502, 503, 504])
    return chance.choice(
        [
            Loses(operation=call, times=times),
            Loses(operation=call, done=False, times=times),
            Loses(operation="createPod"),
            Answers(operation=call, status=status, times=times),
            Answers(operation="createPod", status=chance.choice([500, 502, 504]), done=True),
            Answers(operation="createPod", status=400, detail=NO_STOCK, times=times),
            Answers(operation=call, status=200, body=b"garbage"),
            Duplicates(),
            *[ArrivesLate(by=timedelta(seconds=chance.randint(1, hidden)))] * 2,
            Omits(times=chance.randint(1, 2)),
            Omits(names=[name], times=times),
            Invents(names=[name, "drumbeat.p.nobody", "not-ours"]),
            KeepsOnDelete(operation="deletePod", times=times),
        ]
    )
