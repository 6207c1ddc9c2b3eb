"""Orders kinds of operation so that of 100 operations each kind has exactly its percentage (smooth weighted round-robin)."""

from collections.abc import Sequence
from math import gcd


def cycle(weights: Sequence[int]) -> list[int]:
    """Return the shortest list in which each index of ``weights`` occurs in proportion to its weight, evenly interleaved."""
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
