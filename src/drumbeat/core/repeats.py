"""Collapses repeated items into one item with a count."""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Generic, TypeVar

T = TypeVar("T")

SOON = timedelta(seconds=10)  #: an equal item within this time is a repetition, even with other items in between


@dataclass(slots=True)
class Repeated(Generic[T]):
    """The first of several equal items, how many of them there were, and the time of the last."""

    first: T
    last_at: datetime
    times: int = 1


def collapsed(items: Iterable[T], key: Callable[[T], Hashable], at: Callable[[T], datetime]) -> list[Repeated[T]]:
    """Collapse repeats: return the first item of each series, with the number of items in it. ``items`` are in order of time.

    An item belongs to a series if it has the same key and comes at most SOON after the last item of the series."""
    found: list[Repeated[T]] = []
    latest: dict[Hashable, Repeated[T]] = {}
    for item in items:
        known = latest.get(key(item))
        if known is not None and at(item) - known.last_at <= SOON:
            known.times, known.last_at = known.times + 1, at(item)
            continue
        latest[key(item)] = Repeated(item, at(item))
        found.append(latest[key(item)])
    return found
