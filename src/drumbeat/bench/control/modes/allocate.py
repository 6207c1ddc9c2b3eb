"""Distributes connections over workers: evenly, or filling each worker to its limit before the next. Deterministic."""

from collections.abc import Mapping, Sequence
from math import ceil

from drumbeat.bench.model import Allocation, Scaling, ScalingMode


def ceiling(scaling: Scaling) -> int:
    """Return the maximum number of connections of one worker. In FIXED mode, this is the exact number that was configured."""
    return scaling.min_connections if scaling.mode is ScalingMode.FIXED else scaling.cap


def fewest_held(scaling: Scaling) -> int:
    """Return the configured minimum of connections for a worker that gets any, but at most its maximum."""
    return min(scaling.min_connections, ceiling(scaling))


def workers_for(total: int, scaling: Scaling) -> int:
    """Return how many workers are needed for ``total`` connections, within the configured minimum and maximum."""
    needed = max(1, scaling.min_workers, ceil(total / max(1, ceiling(scaling))))
    return needed if scaling.most_workers is None else max(1, min(needed, scaling.most_workers))


def allocate(total: int, slots: Sequence[int], scaling: Scaling, ceilings: Mapping[int, int] | None = None) -> dict[int, int]:
    """Return the number of connections for each slot (the number of a worker in its run).

    They add up to ``total``, or to as much of it as the limits per worker allow. A worker that would get less than the minimum
    gets none; but if ``total`` itself is below the minimum, the lowest slot gets all of it. ``ceilings``: the maximum of each
    slot that a guardrail has limited; the other slots take over the connections above this maximum.
    """
    caps = {slot: _cap(slot, scaling, ceilings or {}) for slot in sorted(slots)}
    able = [slot for slot, cap in caps.items() if cap > 0]
    used = able[: _how_many(total, len(able), fewest_held(scaling))]
    deal = _pack if scaling.allocation is Allocation.PACK else _spread
    return dict.fromkeys(caps, 0) | deal(total, {slot: caps[slot] for slot in used}, fewest_held(scaling))


def _cap(slot: int, scaling: Scaling, ceilings: Mapping[int, int]) -> int:
    return max(0, min(ceiling(scaling), ceilings.get(slot, ceiling(scaling))))


def _how_many(total: int, slots: int, least: int) -> int:
    """Return how many workers can share ``total`` connections with ``least`` or more each, at least 1; 0 if ``total`` is 0."""
    if total <= 0:
        return 0
    return min(slots, max(1, total // max(1, least)))


def _spread(total: int, caps: Mapping[int, int], least: int) -> dict[int, int]:
    """Distribute connections evenly over slots (workers). What a slot with a low limit cannot take goes to the others."""
    targets: dict[int, int] = {}
    remaining = total
    for slot in sorted(caps, key=lambda slot: (caps[slot], -slot)):
        targets[slot] = min(caps[slot], remaining // (len(caps) - len(targets)))
        remaining -= targets[slot]
    return targets


def _pack(total: int, caps: Mapping[int, int], least: int) -> dict[int, int]:
    """Distribute connections over as few workers as possible: each gets the minimum, then each is filled to its limit."""
    needed = _fewest(total, caps)
    targets = {slot: min(least, caps[slot], total) for slot in needed}
    remaining = total - sum(targets.values())
    for slot in needed:
        more = min(caps[slot] - targets[slot], remaining)
        targets[slot] += more
        remaining -= more
    return targets


def _fewest(total: int, caps: Mapping[int, int]) -> list[int]:
    needed: list[int] = []
    for slot in sorted(caps):
        if sum(caps[each] for each in needed) >= total:
            break
        needed.append(slot)
    return needed
