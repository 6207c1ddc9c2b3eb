"""Judges whether a level (a number of connections) is stable: a fixed order of rules that tell real changes from noise.

Queueing, errors and objectives are judged by the last measurement of a level. Latency and throughput are compared with other
levels, using all measurements and their standard error. If latency or throughput breaks its limit, the level fails if the
excess is far larger than the standard error, or if the standard error is small. Otherwise the level is measured again.
"""

from dataclasses import dataclass
from enum import StrEnum
from math import exp, inf, log, log1p, sqrt
from statistics import fmean

from drumbeat.bench.control.modes import level_samples
from drumbeat.bench.model import (
    ALL_KINDS,
    Figures,
    FindMaxPlan,
    FindMaxState,
    FindMaxStatus,
    KindFigures,
    Objective,
    Queueing,
    RunPlan,
    StepFigures,
    and_failed_connects,
    number,
)

SURE = 2.5  #: a difference above this many standard errors is not chance; high, as a level may be tested several times
PROMISED = 0.05  #: a search with bisection ends within this share of the true maximum
PRECISE = 0.02  #: a figure with a standard error up to this share is precise enough to judge
WAITING_LEAST = 1.0  #: up to this many waiting sessions are no queue: single lock waits are normal under load
WORTH = 0.2  #: if throughput grows by less than this share of linear growth, waiting sessions count as a queue
NARROW = 0.1  #: a level that misses a latency limit by less than this share is measured once more …
NARROW_COUNT = 0.25  #: … and this share applies to limits on errors or waiting sessions
HELD_SHARE = 0.9  #: share of a level's connections that must be open for the level to count as reached


class LevelOutcome(StrEnum):
    """What was found about a level (a number of connections): stable, undecided, or which rule the measurement broke."""

    STABLE = "STABLE"
    DEGRADED = "DEGRADED"
    ERROR_THRESHOLD = "ERROR_THRESHOLD"
    QUEUE_DETECTED = "QUEUE_DETECTED"
    SLO = "SLO"
    HELD = "HELD"  #: undecided: the step is repeated


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelVerdict:
    """The verdict on a level (number of connections) and its reason. If HELD (undecided), ``next_level`` is measured next."""

    outcome: LevelOutcome
    reason: str
    next_level: int | None = None

    @property
    def stable(self) -> bool:
        return self.outcome is LevelOutcome.STABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenRule:
    """A stability rule that a measurement broke, and the reason. ``narrow``: broken by so little that it could be chance."""

    outcome: LevelOutcome
    reason: str
    narrow: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelComparison:
    """How latency or throughput at one level (number of connections) compares with a limit derived from another level.
    ``excess`` above 0 means that the level breaks the limit."""

    excess: float  #: a difference of logarithms
    error: float  #: the standard error of ``excess``
    change: float  #: how much the figure changed, as a signed share

    @property
    def sure(self) -> bool:
        return abs(self.excess) > SURE * self.error


def judge(plan: RunPlan, state: FindMaxState, figures: Figures, careful: bool) -> LevelVerdict:
    """Judge whether the current level (number of connections) is stable, from all measurements in ``state.history``.
    ``careful``: a result of "stable" must be as certain as "not stable"."""
    if failure := first_broken_rule(plan.find_max, figures, state):
        return _weigh(failure, state)
    if stalled := stalled_by_waits(plan.find_max, state, figures):
        return stalled
    compared = compare(plan.find_max, state, careful)
    missed = None if compared.outcome is LevelOutcome.DEGRADED else missed_objective(plan, figures)
    return _weigh(missed, state) if missed else compared


def _weigh(failure: BrokenRule, state: FindMaxState) -> LevelVerdict:
    """Return the verdict for a broken stability rule, or HELD (measure once more) the first time it is broken narrowly."""
    if failure.narrow and not state.repeated:
        return _again(failure.reason)
    return LevelVerdict(outcome=failure.outcome, reason=failure.reason)


def _first(state: FindMaxState) -> bool:
    return not state.history or state.trial == state.history[0].connections


def _again(reason: str, next_level: int | None = None) -> LevelVerdict:
    return LevelVerdict(outcome=LevelOutcome.HELD, reason=f"{reason}; too close to call, measured again", next_level=next_level)


def why_not_counted(plan: RunPlan, state: FindMaxState, figures: Figures, ready: int, needed: int) -> str | None:
    """Return why a measurement does not count, such as too few operations; None if it counts. The caller repeats it once."""
    least = plan.find_max.min_operations
    if ready < needed:
        return f"{ready} of {needed} workers were ready"
    if figures.operations < least:
        return f"{figures.operations} operations ended, at least {least} are needed"
    if _not_reached(figures, state):
        return f"{figures.connections:.0f} of {state.connections} connections were open"
    return None


def _not_reached(figures: Figures, state: FindMaxState) -> bool:
    return 0 < figures.connections < HELD_SHARE * state.connections


def first_broken_rule(plan: FindMaxPlan, figures: Figures, state: FindMaxState) -> BrokenRule | None:
    """Return the first broken rule among queueing, errors and missing data, judged by one measurement alone; else None."""
    return queueing(plan, figures) or too_many_errors(plan, figures) or nothing_measured(figures, state)


def queue_detected(plan: FindMaxPlan, figures: Figures, outcome: LevelOutcome) -> bool | None:
    """Whether sessions queued in the database; None if not evaluated, as the rule is off or the server reports no waits."""
    if figures.waiting is None or plan.queueing is Queueing.OFF:
        return None
    return outcome is LevelOutcome.QUEUE_DETECTED or queueing(plan, figures) is not None


def _waiting_limit(plan: FindMaxPlan, figures: Figures) -> float:
    return max(WAITING_LEAST, plan.max_waiting_pct / 100 * figures.connections)


def _queue(plan: FindMaxPlan, figures: Figures) -> float | None:
    """Return how many sessions waited on average: all waits in mode ALL, else only lock waits; None if the rule is off."""
    if plan.queueing is Queueing.OFF:
        return None
    return figures.waiting if plan.queueing is Queueing.ALL or figures.lock_waits is None else figures.lock_waits


def queueing(plan: FindMaxPlan, figures: Figures) -> BrokenRule | None:
    queue, limit = _queue(plan, figures), _waiting_limit(plan, figures)
    if queue is None or queue <= limit:
        return None
    return BrokenRule(
        outcome=LevelOutcome.QUEUE_DETECTED,
        reason=f"{queue:.1f} sessions waited in the server, more than {limit:.1f}",
        narrow=queue <= limit * (1 + NARROW_COUNT),
    )


def stalled_by_waits(plan: FindMaxPlan, state: FindMaxState, figures: Figures) -> LevelVerdict | None:
    """Return QUEUE_DETECTED or HELD (measure again) if many sessions wait in the server and throughput hardly grows, else None.
    While throughput grows, many waits are normal: with group commit all sessions but one wait for the common flush."""
    limit = _waiting_limit(plan, figures)
    if plan.queueing is not Queueing.AUTO or figures.waiting is None or figures.waiting <= limit:
        return None
    gain = throughput_gain(state)
    if gain is None or gain.excess <= 0:
        return None
    waited = f"{figures.waiting:.1f} sessions waited in the server, more than {limit:.1f}"
    reason = f"{waited}, and throughput gained only {gain.change:+.1%} ± {SURE * gain.error:.1%} over the last stable step"
    settled = gain.sure or gain.error <= max_standard_error(plan, state) or _measured_enough(plan, state)
    return LevelVerdict(outcome=LevelOutcome.QUEUE_DETECTED, reason=reason) if settled else _again(reason)


def too_many_errors(plan: FindMaxPlan, figures: Figures) -> BrokenRule | None:
    rate = 100 * figures.error_rate
    if rate <= plan.max_error_rate_pct:
        return None
    counted = f" ({figures.errors:,} failed{and_failed_connects(figures.failed_connects)})" if figures.failed_connects else ""
    return BrokenRule(
        outcome=LevelOutcome.ERROR_THRESHOLD,
        reason=f"{rate:.2f} % of operations failed{counted}, more than {plan.max_error_rate_pct:g} %",
        narrow=rate <= plan.max_error_rate_pct * (1 + NARROW_COUNT),
    )


def nothing_measured(figures: Figures, state: FindMaxState) -> BrokenRule | None:
    if not figures.p95_ms or figures.qps <= 0:
        return BrokenRule(outcome=LevelOutcome.DEGRADED, reason="no operation ended in the step")
    if not _first(state) and _not_reached(figures, state):
        held = f"{figures.connections:.0f} of {state.connections}"
        return BrokenRule(outcome=LevelOutcome.DEGRADED, reason=f"only {held} connections could be kept open")
    return None


def missed_objective(plan: RunPlan, figures: Figures) -> BrokenRule | None:
    """Return the first missed objective, or None. An objective for a kind of operation that never ran counts as missed."""
    for kind, objective in sorted(plan.objectives.items()):
        measured: Figures | KindFigures = figures if kind == ALL_KINDS else figures.kinds.get(kind, KindFigures())
        if failure := _missed(kind or "all operations", objective, measured):
            return failure
    return None


def _missed(name: str, objective: Objective, measured: Figures | KindFigures) -> BrokenRule | None:
    if objective == Objective():
        return None
    if not measured.operations:
        return BrokenRule(outcome=LevelOutcome.SLO, reason=f"{name}: an objective is set and no operation ended in the step")
    for label, figure, limit, unit, band in (
        ("p95", measured.p95_ms, objective.p95_ms, "ms", NARROW),
        ("p99", measured.p99_ms, objective.p99_ms, "ms", NARROW),
        ("errors", 100 * measured.error_rate, objective.max_error_pct, "%", NARROW_COUNT),
    ):
        if limit is not None and figure is not None and figure > limit:
            reason = f"{name}: {label} of {number(figure, 4)} {unit} is above the objective of {limit:g} {unit}"
            return BrokenRule(outcome=LevelOutcome.SLO, reason=reason, narrow=figure <= limit * (1 + band))
    return None


def compare(plan: FindMaxPlan, state: FindMaxState, careful: bool) -> LevelVerdict:
    """Judge a level (number of connections): latency against the first level, throughput against the last stable level."""
    if _first(state):
        return LevelVerdict(outcome=LevelOutcome.STABLE, reason="the first step: the baseline for later steps")
    latency = latency_change(plan, state)
    throughput = throughput_change(plan, state)
    verdicts = (
        _by_latency(plan, state, latency, careful),
        _by_throughput(plan, state, throughput) if throughput else None,
    )
    for verdict in verdicts:
        if verdict is not None and verdict.outcome is LevelOutcome.DEGRADED:
            return verdict
    for verdict in verdicts:
        if verdict is not None:
            return verdict
    return LevelVerdict(
        outcome=LevelOutcome.STABLE, reason=f"p95 {latency.change:+.1%} against the first step, within {_limit(plan)}"
    )


def latency_change(plan: FindMaxPlan, state: FindMaxState) -> LevelComparison:
    level = level_samples.values(level_samples.at(state.history, state.trial), level_samples.p95)
    first = level_samples.values(level_samples.at(state.history, state.history[0].connections), level_samples.p95)
    change = fmean(level) - fmean(first)
    error = level_samples.scatter(state.history, level_samples.p95) * sqrt(1 / len(level) + 1 / len(first))
    return LevelComparison(excess=change - log1p(plan.latency_stability_pct / 100), error=error, change=exp(change) - 1)


def throughput_change(plan: FindMaxPlan, state: FindMaxState) -> LevelComparison | None:
    """Compare throughput with that at the last stable (lower) number of connections; None if there is none."""
    prior = last_stable(state)
    if prior is None:
        return None
    level = level_samples.values(level_samples.at(state.history, state.trial), level_samples.qps)
    before = level_samples.values(level_samples.at(state.history, prior.connections), level_samples.qps)
    change = fmean(level) - fmean(before)
    error = level_samples.scatter(state.history, level_samples.pace) * sqrt(1 / len(level) + 1 / len(before))
    lowest = log(max(1 - plan.qps_stability_pct / 100, 1e-9))
    return LevelComparison(excess=lowest - change, error=error, change=exp(change) - 1)


def throughput_gain(state: FindMaxState) -> LevelComparison | None:
    """Compare how much throughput grew since the last stable number of connections with the smallest growth that counts; None
    if there is no lower stable number, or no throughput to compare."""
    prior = last_stable(state)
    if prior is None:
        return None
    level = level_samples.values(level_samples.at(state.history, state.trial), level_samples.qps)
    before = level_samples.values(level_samples.at(state.history, prior.connections), level_samples.qps)
    if not level or not before:
        return None
    change = fmean(level) - fmean(before)
    error = level_samples.scatter(state.history, level_samples.pace) * sqrt(1 / len(level) + 1 / len(before))
    return LevelComparison(excess=WORTH * log(state.trial / prior.connections) - change, error=error, change=exp(change) - 1)


def last_stable(state: FindMaxState) -> StepFigures | None:
    levels = level_samples.stable_levels(state.history, below=state.trial)
    return level_samples.pooled(state.history, levels[0]) if levels else None


def _by_latency(plan: FindMaxPlan, state: FindMaxState, comparison: LevelComparison, careful: bool) -> LevelVerdict | None:
    """Return the verdict on latency: DEGRADED, HELD (measure again), or None if it is within its limit."""
    settled = comparison.sure or comparison.error <= max_standard_error(plan, state) or _measured_enough(plan, state)
    reason = f"p95 {comparison.change:+.1%} ± {SURE * comparison.error:.1%} against the first step, limit {_limit(plan)}"
    if comparison.excess > 0 and settled:
        return LevelVerdict(outcome=LevelOutcome.DEGRADED, reason=reason)
    if settled or (comparison.excess <= 0 and not careful):
        return None
    return _again(reason, next_level=_level_to_repeat(state))


def _by_throughput(plan: FindMaxPlan, state: FindMaxState, comparison: LevelComparison) -> LevelVerdict | None:
    """Return DEGRADED if throughput certainly dropped by more than its limit, HELD (measure again) if that is uncertain. Return
    None if it did not drop that much, or if that is still uncertain after the last measurement that the plan allows."""
    if comparison.excess <= 0:
        return None
    limit = f"limit -{plan.qps_stability_pct:g} %"
    reason = f"throughput {comparison.change:+.1%} ± {SURE * comparison.error:.1%} against the last stable step, {limit}"
    if comparison.sure or comparison.error <= max_standard_error(plan, state):
        return LevelVerdict(outcome=LevelOutcome.DEGRADED, reason=reason)
    return None if _measured_enough(plan, state) else _again(reason)


def max_standard_error(plan: FindMaxPlan, state: FindMaxState) -> float:
    """Return the largest standard error with which a figure is precise enough for a verdict. It is infinite once bisection has
    narrowed the maximum number of connections down to 5 %, because a wrong verdict then changes the result only a little."""
    if state.status is FindMaxStatus.BISECTING and state.best and state.failed:
        gap = state.failed.connections - state.best.connections
        return inf if gap <= max(1, PROMISED * state.best.connections) else PRECISE
    return PRECISE if plan.bisect else min(PRECISE, plan.connections_increment / state.trial / 8)


def _level_to_repeat(state: FindMaxState) -> int | None:
    """Return the first number of connections of the search if it was measured less often than the current one; else None.

    Latency is compared with that of the first number, so both need equally many measurements.
    """
    first = state.history[0].connections
    fewer = len(level_samples.at(state.history, first)) < len(level_samples.at(state.history, state.trial))
    return first if fewer else None


def _measured_enough(plan: FindMaxPlan, state: FindMaxState) -> bool:
    return len(level_samples.at(state.history, state.trial)) >= plan.most_looks


def _limit(plan: FindMaxPlan) -> str:
    return f"+{plan.latency_stability_pct:g} %"
