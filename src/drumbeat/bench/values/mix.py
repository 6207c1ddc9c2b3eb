"""Mixes kinds of operation exactly by weight (smooth weighted round-robin): 100 operations have each kind's percentage."""

from collections.abc import Sequence
from math import gcd


def cycle(weights: Sequence[int]) -> list[int]:
    """Return one round of the mix: indices of ``weights``, evenly interleaved, each as often as its weight requires."""
    shared = gcd(*weights) or 1
    shares = [weight // shared for weight in weights]
    total, current = sum(shares), [0] * len(shares)
    order: list[int] = []
    for _ in range(total):
        current = [credit + share for credit, share in zip(current, shares, strict=True)]
        chosen = max(range(len(shares)), key=lambda index: (current[index], -index))
        current[chosen] -= total
        order.append(chosen)
    return order
