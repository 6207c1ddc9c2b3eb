"""Classifies the change of a figure between two runs: improved, stable, warning or regression. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from drumbeat.bench.results.compare.means import Shift


class FigureChange(StrEnum):
    """How a figure, or a whole run, changed. A run's change is the first one listed here that one of its figures has."""

    REGRESSED = "regressed"
    WARNING = "warning"
    IMPROVED = "improved"
    STABLE = "stable"  #: no significant difference, or one too small to matter
    INCONCLUSIVE = "inconclusive"  #: too little was measured, or the runs are too different


_BETWEEN_RUNS = 0.15  #: equal runs are assumed to differ by this share of ``Bounds.warning`` (a standard deviation)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How large a change must be to count, as a share of the first run's value; for errors, as a share of all operations."""

    name: str
    label: str
    unit: str
    better: float
    warning: float
    regression: float
    higher_is_better: bool = False
    absolute: bool = False

    @property
    def between(self) -> float:
        """The standard deviation that this figure is assumed to have between equal runs, as a share; 0 for the error rate."""
        return 0.0 if self.absolute else self.warning * _BETWEEN_RUNS

    def change(self, by: float) -> FigureChange:
        """Classify the change of a figure by ``by`` (a signed share) as regressed, warning, improved or stable."""
        worse = -by if self.higher_is_better else by
        if worse > self.regression:
            return FigureChange.REGRESSED
        if worse > self.warning:
            return FigureChange.WARNING
        return FigureChange.IMPROVED if -worse > self.better else FigureChange.STABLE

    def worst(self, found: Shift) -> float:
        """Return the worst change within the confidence interval: its low end for throughput, its high end for latency."""
        return found.low if self.higher_is_better else found.high


QPS = Bounds(name="qps", label="operations/s", unit="", better=0.10, warning=0.10, regression=0.20, higher_is_better=True)
P50 = Bounds(name="p50_ms", label="p50", unit="ms", better=0.15, warning=0.15, regression=0.30)
P95 = Bounds(name="p95_ms", label="p95", unit="ms", better=0.20, warning=0.20, regression=0.40)
P99 = Bounds(name="p99_ms", label="p99", unit="ms", better=0.25, warning=0.25, regression=0.50)
ERRORS = Bounds(name="error_rate", label="error rate", unit="", better=0.001, warning=0.01, regression=0.05, absolute=True)
BEST_LEVEL = Bounds(
    name="best_level", label="best level", unit="connections", better=0.15, warning=0.15, regression=0.25, higher_is_better=True
)
BEST_QPS = Bounds(
    name="best_qps", label="operations/s at the best level", unit="", better=0.10, warning=0.10, regression=0.20,
    higher_is_better=True,
)  # fmt: skip
KNEE = Bounds(
    name="knee", label="knee by the scalability law", unit="connections", better=0.15, warning=0.15, regression=0.25,
    higher_is_better=True,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """One figure of two runs, with the size and the classification of its change."""

    bounds: Bounds
    before: float | None
    after: float | None
    change: FigureChange
    shift: Shift | None = None  #: the result of the significance test; None: not tested
    informative: bool = False  #: shown for information; does not count for the verdict

    @property
    def difference(self) -> float | None:
        return None if self.before is None or self.after is None else self.after - self.before

    @property
    def relative(self) -> float | None:
        """The difference as a share of the first run's value; None if a value is missing or the first run's value is 0."""
        return self.difference / self.before if self.difference is not None and self.before else None

    @property
    def is_significant(self) -> bool | None:
        """Whether the difference is significant; None: not tested."""
        return None if self.shift is None else self.shift.is_significant

    @property
    def looks_worse(self) -> bool:
        """Whether the change is as large as a regression but not significant."""
        return self.change is FigureChange.INCONCLUSIVE and self.is_significant is False and not self.informative

    @property
    def undetected_regression(self) -> float | None:
        """The worst change that the confidence interval allows, if that would be a regression. None if it would not, or if the
        difference is significant, so that nothing is undetected."""
        if self.shift is None or self.is_significant or self.bounds.absolute or not self.before:
            return None
        worst = self.bounds.worst(self.shift) / self.before
        return worst if self.bounds.change(worst) is FigureChange.REGRESSED else None

    @property
    def words(self) -> str:
        if self.before is None or self.after is None:
            return "missing in at least one run"
        if self.looks_worse:
            return "looks worse, not significant"
        if self.shift is not None and not self.shift.is_significant and self.change is FigureChange.STABLE:
            return "no significant difference"
        if self.shift is not None and self.change is FigureChange.STABLE:
            return "significant, but too small to matter"
        return str(self.change)


def overall(changes: Sequence[FigureChange]) -> FigureChange:
    """Return a run's change: the first of REGRESSED, WARNING, IMPROVED, STABLE that any figure has; else INCONCLUSIVE."""
    return next((change for change in FigureChange if change in changes), FigureChange.INCONCLUSIVE)
