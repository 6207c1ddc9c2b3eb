"""Loads for fleet_economy.py: random ones from a fixed seed, and the Azure LLM traces if present."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from math import pi, sin
from pathlib import Path
from random import Random

from drumbeat.fleet.simulate import SimulatedLoad
from drumbeat.fleet.trace import read_trace

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "azure-llm-2023"
HOUR = 3600.0


def _load(jobs: Iterator[tuple[float, float]]) -> SimulatedLoad:
    found = sorted(jobs)
    return SimulatedLoad(arrivals=[at for at, _ in found], durations=[lasts for _, lasts in found])


def _poisson(chance: Random, rate: Callable[[float], float], most: float, hours: float) -> Iterator[float]:
    """Yield the arrival times of a Poisson process whose rate changes with time (method: thinning)."""
    at = chance.expovariate(most)
    while at < hours * HOUR:
        if chance.random() * most < rate(at):
            yield at
        at += chance.expovariate(most)


def diurnal(hours: float) -> SimulatedLoad:
    """A day's rise and fall: one to eight workers' worth of one-minute jobs."""
    chance = Random(1)

    def rate(at: float) -> float:
        return 0.075 - 0.06 * sin(2 * pi * at / (24 * HOUR) + pi / 2)

    return _load((at, chance.lognormvariate(4.0, 0.5)) for at in _poisson(chance, rate, 0.14, hours))


def bursty(hours: float) -> SimulatedLoad:
    """A few jobs an hour, and about once an hour a burst of 20 to 60."""
    chance = Random(2)

    def jobs() -> Iterator[tuple[float, float]]:
        yield from ((at, chance.lognormvariate(3.7, 0.5)) for at in _poisson(chance, lambda _: 1 / 300, 1 / 300, hours))
        for at in _poisson(chance, lambda _: 1 / HOUR, 1 / HOUR, hours):
            yield from ((at + chance.random() * 60, chance.lognormvariate(3.7, 0.5)) for _ in range(chance.randint(20, 60)))

    return _load(jobs())


def on_off(hours: float) -> SimulatedLoad:
    """Half an hour of steady work for ten workers, half an hour of nothing."""
    chance = Random(3)

    def rate(at: float) -> float:
        return 0.17 if at % HOUR < HOUR / 2 else 0.0

    return _load((at, chance.lognormvariate(4.0, 0.3)) for at in _poisson(chance, rate, 0.17, hours))


def sessions(hours: float) -> SimulatedLoad:
    """User sessions, more by day, with about eight jobs of 20 s each, one after the other."""
    chance = Random(4)

    def begin(at: float) -> float:
        return (6 - 5 * sin(2 * pi * at / (24 * HOUR) + pi / 2)) / HOUR

    def jobs() -> Iterator[tuple[float, float]]:
        for at in _poisson(chance, begin, 11 / HOUR, hours):
            when = at
            while True:
                yield when, chance.lognormvariate(2.9, 0.5)
                when += chance.expovariate(1 / 45)
                if chance.random() < 1 / 8:
                    break

    return _load(jobs())


@cache
def loads(hours: float) -> Mapping[str, SimulatedLoad]:
    """Every load by name."""
    made = {"diurnal": diurnal(hours), "bursty": bursty(hours), "on/off": on_off(hours), "sessions": sessions(hours)}
    files = {"azure code": DATA / "code.csv", "azure conv": DATA / "conv.csv"}
    return made | {name: read_trace(file) for name, file in files.items() if file.is_file()}
