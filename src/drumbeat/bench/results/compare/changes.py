"""What a change means: better, as it was, a warning, a regression. Errors count, and more of them is worse. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from drumbeat.bench.results.compare.means import Shift


class FigureChange(StrEnum):
    """What became of one figure, or of a run. In the order in which they decide."""

    REGRESSED = "regressed"
    WARNING = "warning"
    IMPROVED = "improved"
    STABLE = "stable"  #: no difference was shown, or none that matters
    INCONCLUSIVE = "inconclusive"  #: too little was measured, or the runs are not alike


_BETWEEN_RUNS = 0.15  #: of the bound that warns, as a standard deviation: 1.5 % of throughput, 3 % of a p95


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How large a change must be to mean something. Shares of the reference; of errors: shares of operations."""

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
        """The share by which two runs of the same thing are taken to differ anyhow; errors are counted as they are."""
        return 0.0 if self.absolute else self.warning * _BETWEEN_RUNS

    def change(self, by: float) -> FigureChange:
        """What a change by so much, with its sign, means."""
        worse = -by if self.higher_is_better else by
        if worse > self.regression:
            return FigureChange.REGRESSED
        if worse > self.warning:
            return FigureChange.WARNING
        return FigureChange.IMPROVED if -worse > self.better else FigureChange.STABLE

    def worst(self, found: Shift) -> float:
        """The end of the interval that is worse."""
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
    """One figure in two runs."""

    bounds: Bounds
    before: float | None
    after: float | None
    change: FigureChange
    shift: Shift | None = None  #: from batches of seconds; None: not tested
    informative: bool = False  #: it is told, and decides nothing

    @property
    def difference(self) -> float | None:
        return None if self.before is None or self.after is None else self.after - self.before

    @property
    def relative(self) -> float | None:
        """As a share of the reference."""
        return self.difference / self.before if self.difference is not None and self.before else None

    @property
    def shown(self) -> bool | None:
        """Whether the test shows a difference; None: nothing was tested."""
        return None if self.shift is None else self.shift.shown

    @property
    def looks_worse(self) -> bool:
        """By so much that it would be a regression, if only it were shown."""
        return self.change is FigureChange.INCONCLUSIVE and self.shown is False and not self.informative

    @property
    def could_hide(self) -> float | None:
        """How much worse the run may be without the test showing it, where that would be a regression; else None."""
        if self.shift is None or self.shown or self.bounds.absolute or not self.before:
            return None
        worst = self.bounds.worst(self.shift) / self.before
        return worst if self.bounds.change(worst) is FigureChange.REGRESSED else None

    @property
    def words(self) -> str:
        if self.before is None or self.after is None:
            return "not measured in both runs"
        if self.looks_worse:
            return "looks worse, not shown"
        if self.shift is not None and not self.shift.shown and self.change is FigureChange.STABLE:
            return "no difference shown"
        if self.shift is not None and self.change is FigureChange.STABLE:
            return "a difference, too small to matter"
        return str(self.change)


def overall(changes: Sequence[FigureChange]) -> FigureChange:
    """The first of the order that occurs; figures that say nothing are passed over unless none says anything."""
    return next((change for change in FigureChange if change in changes), FigureChange.INCONCLUSIVE)
