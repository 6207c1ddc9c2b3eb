"""An exact mix by smooth weighted round-robin: every hundred operations have each kind as often as its weight."""

from collections.abc import Sequence
from math import gcd


def cycle(weights: Sequence[int]) -> list[int]:
    """One round of the mix as indices, evenly interleaved; repeated, each index gets exactly its share."""
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
