"""A latency histogram that merges exactly: log buckets over nanoseconds, each under 1.6 % wide.

Each value below 128 has its own bucket. Above that, each power of two is cut into 64 equal buckets, so the middle of a bucket
is within 0.8 % of every value in it. Two histograms merge by adding counts, which loses nothing: merging ten workers'
histograms gives the same histogram as recording all their operations in one. Count, sum, least and greatest are exact.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import accumulate
from struct import pack
from typing import Literal

_SUB_BITS = 6
_SUB = 1 << _SUB_BITS
_EXACT = _SUB * 2
_LONGEST = 1 << 42  #: nanoseconds, a little over an hour; longer durations are counted in the last bucket
BUCKETS = (42 - _SUB_BITS - 1) * _SUB + _EXACT
_SPARSE, _DENSE = 1, 2  #: the two byte formats: pairs of bucket and count, or one byte per bucket
_WIDEST = 1024  #: most buckets in the dense format
_ONE_BYTE = 0x80  #: numbers below this take one byte
_TOO_MANY = 1 << 64
_ORDER: Literal["little", "big"] = "little" if pack("=H", 1)[0] else "big"  #: this machine's byte order


def bucket_of(nanoseconds: int) -> int:
    """Return the index of the bucket that counts this duration."""
    if nanoseconds < _EXACT:
        return max(nanoseconds, 0)
    if nanoseconds >= _LONGEST:
        return BUCKETS - 1
    shift = nanoseconds.bit_length() - _SUB_BITS - 1
    return (shift << _SUB_BITS) + (nanoseconds >> shift)


def bucket_bounds(bucket: int) -> tuple[int, int]:
    """Return the lowest value of a bucket, and the lowest value of the next bucket."""
    if bucket < _EXACT:
        return bucket, bucket + 1
    shift = (bucket >> _SUB_BITS) - 1
    low = (_SUB + (bucket & (_SUB - 1))) << shift
    return low, low + (1 << shift)


class Histogram:
    """Counts durations (in nanoseconds) by bucket, and keeps their exact sum, least and greatest."""

    __slots__ = ("counts", "greatest", "least", "total")

    def __init__(self) -> None:
        self.counts = array("Q", bytes(8 * BUCKETS))
        self.total = 0
        self.least: int | None = None
        self.greatest: int | None = None

    def record(self, nanoseconds: int) -> None:
        """Count one duration; a negative one (a clock that stepped back) counts as 0."""
        if nanoseconds < 0:
            nanoseconds = 0
        if _EXACT <= nanoseconds < _LONGEST:
            shift = nanoseconds.bit_length() - 7
            self.counts[(shift << 6) + (nanoseconds >> shift)] += 1
        else:
            self.counts[bucket_of(nanoseconds)] += 1
        self.total += nanoseconds
        if self.least is None or nanoseconds < self.least:
            self.least = nanoseconds
        if self.greatest is None or nanoseconds > self.greatest:
            self.greatest = nanoseconds

    def record_all(self, durations: Sequence[int]) -> None:
        """Count many durations, about three times faster than one by one."""
        if not durations:
            return
        if min(durations) < 0:
            durations = [max(nanoseconds, 0) for nanoseconds in durations]
        counts = self.counts
        for nanoseconds in durations:
            if _EXACT <= nanoseconds < _LONGEST:
                shift = nanoseconds.bit_length() - 7
                counts[(shift << 6) + (nanoseconds >> shift)] += 1
            else:
                counts[bucket_of(nanoseconds)] += 1
        self._widen(sum(durations), min(durations), max(durations))

    def add(self, buckets: Iterable[tuple[int, int]], total: int, least: int, greatest: int) -> None:
        """Add durations that are already counted by bucket, with their exact sum, least and greatest."""
        for bucket, count in buckets:
            self.counts[bucket] += count
        self._widen(total, least, greatest)

    def merge(self, other: "Histogram") -> None:
        """Add the counts of another histogram. For speed, the counts are added as two big integers, 64 bits for each count.
        This is safe: no count grows large enough to overflow its 64 bits."""
        if other.least is None or other.greatest is None:
            return
        used = _used(other)
        mine, theirs = self.counts[used].tobytes(), other.counts[used].tobytes()
        both = int.from_bytes(mine, _ORDER) + int.from_bytes(theirs, _ORDER)
        self.counts[used] = array("Q", both.to_bytes(len(mine), _ORDER))
        self._widen(other.total, other.least, other.greatest)

    def _widen(self, total: int, least: int, greatest: int) -> None:
        self.total += total
        self.least = least if self.least is None else min(self.least, least)
        self.greatest = greatest if self.greatest is None else max(self.greatest, greatest)

    @property
    def count(self) -> int:
        return sum(self.counts[_used(self)])

    @property
    def mean(self) -> timedelta | None:
        """The exact mean duration; None if nothing was counted."""
        count = self.count
        return timedelta(microseconds=self.total / count / 1000) if count else None

    def percentile(self, percent: float) -> timedelta | None:
        """Return the duration that ``percent`` % of all counted durations do not exceed; None if nothing was counted."""
        nanoseconds = self.percentile_ns(percent)
        return None if nanoseconds is None else timedelta(microseconds=nanoseconds / 1000)

    def percentile_ns(self, percent: float) -> float | None:
        """Return a percentile in nanoseconds, not rounded to microseconds; None if nothing was counted."""
        return self.percentiles_ns((percent,))[0]

    def percentiles_ns(self, percents: Sequence[float]) -> list[float | None]:
        """Return several percentiles in nanoseconds, in one pass; each is None if nothing was counted."""
        if not all(0 <= percent <= 100 for percent in percents):
            raise ValueError(f"expected percentiles from 0 to 100, got {percents}")
        if self.least is None or self.greatest is None:
            return [None] * len(percents)
        used = _used(self)
        so_far = list(accumulate(self.counts[used]))
        ranks = [max(1, -(-percent * so_far[-1] // 100)) for percent in percents]
        middles = [_middle(used.start + bisect_left(so_far, rank)) for rank in ranks]
        return [min(max(middle, self.least), self.greatest) for middle in middles]

    def buckets(self) -> Iterator[tuple[int, int]]:
        """Yield the index and the count of each bucket that is not empty, lowest bucket first."""
        used = _used(self)
        return ((bucket, count) for bucket, count in enumerate(self.counts[used], used.start) if count)

    def to_bytes(self) -> bytes:
        """Return the histogram as compact bytes: sum, least and greatest, then the counts (a byte each if they are small)."""
        if self.least is None or self.greatest is None:
            return bytes([_SPARSE])
        window = self.counts[_used(self)].tolist()
        dense = len(window) <= _WIDEST and max(window) < 256
        out = bytearray([_DENSE if dense else _SPARSE])
        for figure in (self.total, self.least, self.greatest):
            _write_number(out, figure)
        if dense:
            return bytes(out) + bytes(window)
        before = 0
        for bucket, count in self.buckets():
            _write_number(out, bucket - before)
            _write_number(out, count)
            before = bucket
        return bytes(out)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Histogram":
        """Read a histogram from the bytes that ``to_bytes`` wrote. Raises ValueError for other bytes."""
        if not data or data[0] not in (_SPARSE, _DENSE):
            raise ValueError(f"expected a histogram of format {_SPARSE} or {_DENSE}, got {data[:1].hex() or 'nothing'}")
        histogram = cls()
        if data == bytes([_SPARSE]):
            return histogram
        (histogram.total, histogram.least, histogram.greatest), rest = _figures(data[1:])
        if data[0] == _DENSE and rest and rest[0] and rest[-1] and len(rest) == len(range(BUCKETS)[_used(histogram)]):
            histogram.counts[_used(histogram)] = array("Q", list(rest))
            return histogram
        pairs = _read_sparse(rest) if data[0] == _SPARSE else list(enumerate(rest, bucket_of(histogram.least)))
        used = [(bucket, count) for bucket, count in pairs if count]
        if not used or (used[0][0], used[-1][0]) != (bucket_of(histogram.least), bucket_of(histogram.greatest)):
            raise ValueError("corrupt histogram: expected the least and greatest value in the first and last used bucket")
        if pairs[-1][0] != used[-1][0]:
            raise ValueError("corrupt histogram: expected no bucket after the bucket of the greatest value, got more")
        for bucket, count in used:
            histogram.counts[bucket] = count
        return histogram

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Histogram):
            return NotImplemented
        return self._figures() == other._figures() and self.counts == other.counts

    def _figures(self) -> tuple[int, int | None, int | None]:
        return self.total, self.least, self.greatest

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Histogram of {self.count}: p50 {self.percentile(50)}, p99 {self.percentile(99)}>"


def _used(histogram: Histogram) -> slice:
    """Return the range of buckets with counts: from the bucket of the least value to the bucket of the greatest value."""
    if histogram.least is None or histogram.greatest is None:
        return slice(0, 0)
    return slice(bucket_of(histogram.least), bucket_of(histogram.greatest) + 1)


def merged(histograms: Iterable[Histogram]) -> Histogram:
    """Return a new histogram with the counts of all these histograms."""
    result = Histogram()
    for histogram in histograms:
        result.merge(histogram)
    return result


def _middle(bucket: int) -> float:
    low, above = bucket_bounds(bucket)
    return (low + above - 1) / 2


def _write_number(out: bytearray, number: int) -> None:
    while number >= _ONE_BYTE:
        out.append(number & 0x7F | _ONE_BYTE)
        number >>= 7
    out.append(number)


def _figures(data: bytes) -> tuple[list[int], bytes]:
    """Read the sum, least and greatest from the start of the bytes. Returns them, and the bytes after them."""
    figures, at = [], 0
    for _ in range(3):
        number, at = _read_number(data, at)
        figures.append(number)
    return figures, data[at:]


def _read_sparse(data: bytes) -> list[tuple[int, int]]:
    """Read pairs of bucket and count; each bucket is stored as its distance from the bucket before."""
    pairs: list[tuple[int, int]] = []
    at = 0
    while at < len(data):
        step, at = _read_number(data, at)
        count, at = _read_number(data, at)
        bucket = pairs[-1][0] + step if pairs else step
        if bucket >= BUCKETS or (pairs and not step) or not 0 < count < _TOO_MANY:
            raise ValueError(
                f"expected ascending bucket numbers below {BUCKETS} and counts above 0, got count {count} of bucket {bucket}"
            )
        pairs.append((bucket, count))
    return pairs


def _read_number(data: bytes, at: int) -> tuple[int, int]:
    """Return the number that is stored at position ``at``, and the position of the next number."""
    number = shift = 0
    for index in range(at, len(data)):
        number |= (data[index] & 0x7F) << shift
        if data[index] < _ONE_BYTE:
            return number, index + 1
        shift += 7
    raise ValueError("expected a complete histogram, got a truncated one")
