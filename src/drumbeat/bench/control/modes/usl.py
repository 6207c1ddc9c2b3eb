"""Fits the Universal Scalability Law to the throughput that a search measured, as a cross-check. The search does not use it.

X(N) = λN / (1 + σ(N−1) + κN(N−1)): λ is the throughput of one connection, σ the contention, κ the crosstalk.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean
from typing import Any

FEWEST = 4  #: least number of levels: three for the coefficients, one more to see how well they fit
NOTHING = 1e-9  #: a coefficient below this is a rounding error

Matrix = list[list[float]]
Point = tuple[float, float]  #: connections, throughput

_STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)  #: Student's t, 95 %, from 1 degree of freedom
_STUDENT_BEYOND = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UslFit:
    """The fitted coefficients and the quality of the fit. ``peak`` is None if the fitted curve has no maximum."""

    points: int
    throughput_of_one: float  #: λ
    contention: float  #: σ
    crosstalk: float  #: κ
    r_squared: float
    peak: float | None = None  #: connections at which throughput is highest
    peak_low: float | None = None  #: 95 % confidence interval of the peak, if the law holds
    peak_high: float | None = None

    def throughput(self, connections: float) -> float:
        n = connections
        return self.throughput_of_one * n / (1 + self.contention * (n - 1) + self.crosstalk * n * (n - 1))


def fit_summary(points: Sequence[Point]) -> Mapping[str, Any]:
    """Return the fit in the form stored in a run's result, or why the law could not be fitted."""
    fitted = fit(points)
    if fitted is None:
        return {
            "fitted": False,
            "reason": f"not enough steps: expected {FEWEST} levels with throughput, got {len(_by_level(points))}",
        }
    return {
        "fitted": True,
        "points": fitted.points,
        "lambda": fitted.throughput_of_one,
        "sigma": fitted.contention,
        "kappa": fitted.crosstalk,
        "r_squared": fitted.r_squared,
        "peak_connections": fitted.peak,
        "peak_low": fitted.peak_low,
        "peak_high": fitted.peak_high,
        "peak_qps": None if fitted.peak is None else fitted.throughput(fitted.peak),
        "confidence": confidence(fitted),
    }


def confidence(fitted: UslFit) -> str:
    """Return how far the fit can be trusted: ``high``, ``medium`` or ``low``."""
    if fitted.r_squared < 0.9:
        return "low"
    if fitted.peak is None or fitted.peak_low is None or fitted.peak_high is None:
        return "medium"
    width = (fitted.peak_high - fitted.peak_low) / fitted.peak
    return "high" if width <= 0.25 else "medium" if width <= 1 else "low"


def fit(points: Sequence[Point]) -> UslFit | None:
    """Fit the Universal Scalability Law to points (connections N, throughput X); None with fewer than four different N.

    Uses least squares of N/X, weighted by X² so that an error of one percent counts the same everywhere. If a coefficient is
    negative, which has no meaning, the fit is repeated without crosstalk, then without contention, then without both.
    """
    levels = _by_level(points)
    if len(levels) < FEWEST:
        return None
    for terms in ((0, 1, 2), (0, 1), (0, 2)):
        solved = _solve(levels, terms)
        if solved and solved[0][0] > 0 and min(solved[0]) > -NOTHING * solved[0][0]:
            coefficients = [max(value, 0.0) for value in solved[0]]
            return _fitted(levels, coefficients, solved[1])
    return _fitted(levels, *_proportional(levels))


def _by_level(points: Sequence[Point]) -> list[Point]:
    """Return each level (number of connections) with its mean throughput, lowest level first."""
    levels: dict[float, list[float]] = {}
    for connections, throughput in points:
        if connections > 0 and throughput > 0:
            levels.setdefault(connections, []).append(throughput)
    return [(connections, fmean(levels[connections])) for connections in sorted(levels)]


def _terms(connections: float) -> tuple[float, float, float]:
    return 1.0, connections - 1, connections * (connections - 1)


def _solve(levels: Sequence[Point], terms: Sequence[int]) -> tuple[list[float], Matrix] | None:
    """Fit only these ``terms`` of the law, by least squares. Returns coefficients and covariance; None if undetermined."""
    rows = [([_terms(n)[term] * x / n for term in terms], 1.0) for n, x in levels]
    inverse = _inverse([[sum(row[i] * row[j] for row, _ in rows) for j in range(len(terms))] for i in range(len(terms))])
    if inverse is None:
        return None
    moments = [sum(row[i] * value for row, value in rows) for i in range(len(terms))]
    found = [sum(a * b for a, b in zip(line, moments, strict=True)) for line in inverse]
    residual = sum((value - sum(a * b for a, b in zip(row, found, strict=True))) ** 2 for row, value in rows)
    variance = residual / (len(rows) - len(terms))
    return _spread_out(found, [[variance * cell for cell in line] for line in inverse], terms)


def _spread_out(found: Sequence[float], covariance: Matrix, terms: Sequence[int]) -> tuple[list[float], Matrix]:
    """Return the coefficients and covariance of all three terms, with 0 for a term that was not fitted."""
    whole = [0.0, 0.0, 0.0]
    spread = [[0.0] * 3 for _ in range(3)]
    for i, term in enumerate(terms):
        whole[term] = found[i]
        for j, other in enumerate(terms):
            spread[term][other] = covariance[i][j]
    return whole, spread


def _proportional(levels: Sequence[Point]) -> tuple[list[float], Matrix]:
    """Return the fit with throughput proportional to connections, that is, without contention and crosstalk."""
    return [1 / fmean(x / n for n, x in levels), 0.0, 0.0], [[0.0] * 3 for _ in range(3)]


def _fitted(levels: Sequence[Point], found: Sequence[float], covariance: Matrix) -> UslFit:
    a, b, c = found
    bare = UslFit(points=len(levels), throughput_of_one=1 / a, contention=b / a, crosstalk=c / a, r_squared=0.0)
    peak, low, high = _peak(found, covariance, len(levels))
    return UslFit(
        points=bare.points,
        throughput_of_one=bare.throughput_of_one,
        contention=bare.contention,
        crosstalk=bare.crosstalk,
        r_squared=_r_squared(levels, bare),
        peak=peak,
        peak_low=low,
        peak_high=high,
    )


def _r_squared(levels: Sequence[Point], fitted: UslFit) -> float:
    mean = fmean(x for _, x in levels)
    total = sum((x - mean) ** 2 for _, x in levels)
    missed = sum((x - fitted.throughput(n)) ** 2 for n, x in levels)
    return 1 - missed / total if total else 0.0


def _peak(found: Sequence[float], covariance: Matrix, points: int) -> tuple[float | None, float | None, float | None]:
    """Return the number of connections with the highest throughput, √((1−σ)/κ), and the ends of its 95 % confidence interval;
    three times None if the fitted curve has no maximum."""
    a, b, c = found
    if c <= NOTHING * a or b >= a:
        return None, None, None
    peak = sqrt((a - b) / c)
    slopes = (1 / (2 * peak * c), -1 / (2 * peak * c), -peak / (2 * c))
    variance = sum(slopes[i] * slopes[j] * covariance[i][j] for i in range(3) for j in range(3))
    half = _student(points - 3) * sqrt(max(variance, 0.0))
    return peak, max(peak - half, 0.0), peak + half


def _student(freedom: int) -> float:
    return _STUDENT[freedom - 1] if 1 <= freedom <= len(_STUDENT) else _STUDENT_BEYOND


def _inverse(matrix: Matrix) -> Matrix | None:
    """Invert a matrix by Gauss-Jordan elimination; None if it is singular."""
    size = len(matrix)
    scale = [1 / sqrt(matrix[i][i]) if matrix[i][i] > 0 else 0.0 for i in range(size)]
    rows = [
        [matrix[i][j] * scale[i] * scale[j] for j in range(size)] + [float(i == j) for j in range(size)] for i in range(size)
    ]
    for column in range(size):
        pivot = max(range(column, size), key=lambda row: abs(rows[row][column]))
        if abs(rows[pivot][column]) < 1e-12:
            return None
        rows[column], rows[pivot] = rows[pivot], rows[column]
        rows[column] = [value / rows[column][column] for value in rows[column]]
        for other in range(size):
            if other != column:
                rows[other] = [a - rows[other][column] * b for a, b in zip(rows[other], rows[column], strict=True)]
    return [[rows[i][size + j] * scale[i] * scale[j] for j in range(size)] for i in range(size)]
