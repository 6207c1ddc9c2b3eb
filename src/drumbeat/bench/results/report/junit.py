"""A run as JUnit XML for CI: one test case for its completion, one for each objective."""

from drumbeat.bench.model.record import RunRecord
from drumbeat.bench.results.report import content
from drumbeat.bench.results.report.escape import markup
from drumbeat.bench.results.run_verdict import has_target, missed_target
from drumbeat.bench.results.verdicts import LimitStanding, Measure, SloVerdict, failure_despite_completion, verdicts_of
from drumbeat.core.run import RunStatus


def junit(record: RunRecord) -> str:
    found = verdicts_of(record)
    completed = record.run.status is RunStatus.COMPLETED and failure_despite_completion(record) is None
    target = [_target(record)] if has_target(record) and completed else []
    missed = sum(not verdict.is_met for verdict in found) + (completed and missed_target(record) is not None)
    seconds = (record.ended - record.origin).total_seconds() if record.ended and record.origin else 0.0
    name = markup(content.title(record))
    suite = (
        f'<testsuite name="{name}" tests="{len(found) + len(target) + 1}" failures="{missed}" errors="{int(not completed)}"'
        f' skipped="0" time="{seconds:.3f}">'
    )
    cases = "".join([_completion(record), *target, *(_case(record, verdict) for verdict in found)])
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites>{suite}{cases}</testsuite></testsuites>\n'


def _completion(record: RunRecord) -> str:
    head = f'<testcase classname="{markup(content.title(record))}" name="the run completes"'
    nothing = failure_despite_completion(record)
    if record.run.status is RunStatus.COMPLETED and nothing is None:
        return f"{head}/>"
    why = nothing or content.reason(record) or f"it is {record.run.status}"
    return f'{head}><error type="{markup(record.run.status)}" message="{markup(why)}"/></testcase>'


def _target(record: RunRecord) -> str:
    head = (
        f'<testcase classname="{markup(content.title(record))}" name="throughput: {record.plan.qps.target_qps:g} operations/s"'
    )
    missed = missed_target(record)
    return f"{head}/>" if missed is None else f'{head}><failure type="missed" message="{markup(missed)}"/></testcase>'


def _case(record: RunRecord, verdict: SloVerdict) -> str:
    sign = "≥" if verdict.measure is Measure.AVAILABILITY else "≤"
    name = f"{verdict.subject}: {verdict.measure} {sign} {verdict.limit:g}"
    head = f'<testcase classname="{markup(content.title(record))}" name="{markup(name)}"'
    if verdict.is_met:
        return f"{head}/>"
    found = "nothing was measured" if verdict.standing is LimitStanding.NOT_MEASURED else f"found {verdict.found:g}"
    return f'{head}><failure type="{markup(verdict.standing)}" message="{markup(f"{name}: {found}")}"/></testcase>'
