"""Says how the figures of a run differ from those of the previous run of the same template. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from drumbeat.bench.model.best import best_of
from drumbeat.bench.model.plan import LoadMode
from drumbeat.bench.model.record import RunRecord
from drumbeat.bench.model.words import number, texts_that_differ
from drumbeat.bench.results.compare.changes import BEST_LEVEL, BEST_QPS, ERRORS, P95, P99, QPS, Bounds, FigureChange
from drumbeat.bench.results.compare.configuration import differences, user_config

_MOST_SETTINGS = 3
_NAMED_DIFFERENTLY = frozenset({"name", "description"})  #: settings that do not change what a run does


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureDifference:
    """One figure of a run and of the run before it."""

    bounds: Bounds
    before: float
    after: float

    @property
    def percent(self) -> float | None:
        """The change in percent of the earlier value; None if that is 0, and for the error rate, which is itself in percent."""
        return None if self.bounds.absolute or not self.before else 100 * (self.after / self.before - 1)

    @property
    def change(self) -> FigureChange:
        """How the change would be classified by its size alone; whether it is significant is not tested here."""
        if self.bounds.absolute:
            return self.bounds.change(self.after - self.before)
        return self.bounds.change(self.after / self.before - 1) if self.before else FigureChange.STABLE

    @property
    def text(self) -> str:
        scale, unit = (100, " %") if self.bounds.absolute else (1, f" {self.bounds.unit}" if self.bounds.unit == "ms" else "")
        old, new = texts_that_differ(self.before * scale, self.after * scale)
        if old == new:
            return f"{self.bounds.label} {new}{unit} as before"
        by = "" if self.percent is None else f" ({self.percent:+.1f} %)"
        return f"{self.bounds.label} {old} → {new}{unit}{by}"


def figure_differences(record: RunRecord, before: RunRecord) -> tuple[FigureDifference, ...]:
    """Return the figures that both runs have."""
    pairs = _found(record, before) if record.plan.load_mode is LoadMode.FIND_MAX_CONCURRENCY else _measured(record, before)
    return tuple(
        FigureDifference(bounds=bounds, before=old, after=new)
        for bounds, old, new in pairs
        if old is not None and new is not None
    )


_Pairs = Iterator[tuple[Bounds, float | None, float | None]]


def _measured(record: RunRecord, before: RunRecord) -> _Pairs:
    old, new = before.whole, record.whole
    if old.operations and new.operations:
        yield QPS, old.qps, new.qps
        yield P95, old.latency.p95_ms, new.latency.p95_ms
        yield P99, old.latency.p99_ms, new.latency.p99_ms
        yield ERRORS, old.error_rate, new.error_rate


def _found(record: RunRecord, before: RunRecord) -> _Pairs:
    old, new = best_of(before), best_of(record)
    if old is not None and new is not None:
        yield BEST_LEVEL, old.connections, new.connections
        yield BEST_QPS, old.qps, new.qps


def settings_that_differ(record: RunRecord, before: RunRecord) -> Sequence[str]:
    """Return the paths of the settings in which two runs differ, such as ``scaling.max_workers``."""
    found = differences(user_config(before.run.config), user_config(record.run.config))
    return [each.path for each in found if each.path not in _NAMED_DIFFERENTLY]


def changed(record: RunRecord, before: RunRecord | None) -> Iterator[str]:
    """Yield the sentences about what changed since the run before; none if there is no such run, or it has no figures."""
    if before is None or not (figures := figure_differences(record, before)):
        return
    same = "template" if record.run.template_id is not None else "kind"
    yield f"Against the run before of the same {same} ({before.run.run_id}): {', '.join(each.text for each in figures)}."
    if paths := settings_that_differ(record, before):
        more = len(paths) - _MOST_SETTINGS
        others = f" and {number(more)} more" if more > 0 else ""
        yield f"Settings that differ between the two: {', '.join(paths[:_MOST_SETTINGS])}{others}."
    if worse := [each.bounds.label for each in figures if each.change in (FigureChange.REGRESSED, FigureChange.WARNING)]:
        command = f"drumbeat bench compare {before.run.run_id} {record.run.run_id}"
        yield f"Worse by more than runs usually vary: {', '.join(worse)}; to see whether it is significant: {command}."
