"""Skewed key distributions: draws Zipf-distributed ranks, and scatters them over the key range."""

from math import gcd

import numpy as np
from numpy.typing import NDArray

_TABLE = 65_536  #: how many ranks have their probability in a table; later ranks use an integral
_GOLDEN = 0.6180339887498949
_SCRAMBLE = 0x9E3779B97F4A7C15


class Zipf:
    """Draws Zipf-distributed ranks, counted from 0: rank r has a probability proportional to 1/(r+1)^theta.

    The fast method of Gray et al., which YCSB uses, draws the third rank a fifth too often. This class uses a table for the
    first ranks and an integral for later ones, and is right for every rank.
    """

    def __init__(self, keys: int, theta: float) -> None:
        self._keys = keys
        self._rest = 1 - theta
        self._sums = np.cumsum(np.arange(1, min(keys, _TABLE) + 1, dtype=np.float64) ** -theta)
        self._total = float(self._sums[-1]) + self._integral(keys)

    def ranks(self, chance: NDArray[np.float64]) -> NDArray[np.int64]:
        share = chance * self._total
        ranks = np.searchsorted(self._sums, share, side="right")
        beyond = ranks >= _TABLE
        if self._keys > _TABLE and beyond.any():
            ranks[beyond] = self._inverted(share[beyond] - self._sums[-1])
        return np.minimum(ranks, self._keys - 1)

    def _integral(self, keys: int) -> float:
        """Return the sum of 1/i^theta for i from 65,537 (``_sums`` has the earlier ones) to ``keys``, approximated."""
        if keys <= _TABLE:
            return 0.0
        return float(((keys + 0.5) ** self._rest - (_TABLE + 0.5) ** self._rest) / self._rest)

    def _inverted(self, share: NDArray[np.float64]) -> NDArray[np.int64]:
        reached: NDArray[np.float64] = (share * self._rest + (_TABLE + 0.5) ** self._rest) ** (1 / self._rest)
        return np.maximum(np.floor(reached - 0.5), _TABLE).astype(np.int64)


def scattered(ranks: NDArray[np.int64], keys: int) -> NDArray[np.int64]:
    """Map each rank to its own key; the mapping is the same every time. Neighbouring ranks get keys that are far apart.

    With more than 2**32 keys, two ranks can get the same key.
    """
    wide = ranks.astype(np.uint64)
    if keys <= 2**32:
        return ((wide * np.uint64(stride(keys)) + np.uint64(keys // 3)) % np.uint64(keys)).astype(np.int64)
    mixed = wide * np.uint64(_SCRAMBLE)
    mixed ^= mixed >> np.uint64(29)
    return (mixed % np.uint64(keys)).astype(np.int64)


def stride(size: int) -> int:
    """Return a large step that, repeated around a circle of ``size`` positions, visits each position exactly once."""
    step = max(1, round(size * _GOLDEN))
    while gcd(step, size) != 1:
        step += 1
    return step
