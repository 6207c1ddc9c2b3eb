import csv as reader
import io
import json
import re
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest

from bench.recorded import record, rich, run, search
from drumbeat.bench.model.plan import ALL_KINDS, Objective, RunPlan
from drumbeat.bench.model.record import Measured, RunRecord
from drumbeat.bench.results.compare import compare
from drumbeat.bench.results.report import (
    FORMATS,
    as_json,
    comparison_json,
    comparison_markdown,
    csv,
    junit,
    markdown,
    prometheus,
)
from drumbeat.core.run import RunStatus

HOSTILE = 'a|b`c`<b>"q"\'\\\n# x\x00 =cmd'
_LINE = re.compile(r'^[a-z_]+(\{([a-z_]+="(\\\\|\\"|\\n|[^"\\\n])*",?)*\})? [-+0-9.e]+$')


def empty() -> RunRecord:
    return RunRecord(run=run("early", RunStatus.FAILED, started_at=None), plan=RunPlan(objectives={"": Objective(p95_ms=1)}))


def hostile() -> RunRecord:
    known = rich()
    plan = replace(known.plan, objectives={HOSTILE: Objective(p95_ms=0.1)})
    config = {"target": {"url": "postgresql://u:hunter2@h/d", "password": "hunter2"}}
    renamed = run(HOSTILE, config=config)
    return replace(known, run=renamed, plan=plan, totals={**known.totals, HOSTILE: known.whole})


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("known", [rich(), search(), empty(), hostile()], ids=["rich", "search", "empty", "hostile"])
def test_every_format_takes_every_run_and_tells_no_secret(name: str, known: RunRecord) -> None:
    text = FORMATS[name](known)

    assert text.endswith("\n")
    assert "hunter2" not in text


def test_csv_has_a_line_for_each_second() -> None:
    known = rich()
    odd = replace(known.timeline[0], phase='=1+1,"x"')

    rows = list(reader.DictReader(io.StringIO(csv(replace(known, timeline=(odd, *known.timeline[1:]))))))

    assert len(rows) == len(known.timeline)
    assert rows[0]["phase"] == '\'=1+1,"x"'
    assert float(rows[100]["operations"]) == pytest.approx(known.timeline[100].operations, abs=0.001)
    assert float(rows[100]["p95_ms"]) == pytest.approx(known.timeline[100].p95_ms or 0, abs=0.001)


def test_json_tells_exact_figures_and_the_slowest_workers() -> None:
    known = rich()

    told: dict[str, Any] = json.loads(as_json(known))

    assert told["totals"]["operations"] == known.whole.operations
    assert told["totals"]["p99_ms"] == known.whole.latency.p99_ms
    assert told["totals"]["slowest_worker_p95_ms"] == known.workers[0].measured.latency.p95_ms
    assert told["passed"] is False
    assert [each["standing"] for each in told["verdicts"]] == ["ok", "ok", "not measured", "ok", "ok"]
    assert (len(told["timeline"]), len(told["workers"]), told["cost"]["currency"]) == (330, 2, "EUR")


def test_junit_has_a_case_for_completion_and_each_objective() -> None:
    suite = ElementTree.fromstring(junit(rich()))[0]
    cases = {case.get("name"): [child.tag for child in case] for case in suite}

    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("7", "1", "0")
    assert cases["the run completes"] == cases["throughput: 1000 operations/s"] == []
    assert cases["gone: p95_ms ≤ 5"] == ["failure"]
    assert cases["all kinds: p95_ms ≤ 50"] == []


def test_junit_of_a_run_that_failed_is_an_error() -> None:
    suite = ElementTree.fromstring(junit(empty()))[0]

    assert (suite.get("errors"), suite.get("failures")) == ("1", "1")


def test_junit_survives_hostile_names() -> None:
    suite = ElementTree.fromstring(junit(hostile()))[0]

    assert 'a|b`c`<b>"q"' in (suite.get("name") or "")
    assert suite.get("failures") == "1"


@pytest.mark.parametrize("known", [rich(), hostile(), empty()], ids=["rich", "hostile", "empty"])
def test_prometheus_text_is_lines_of_its_grammar(known: RunRecord) -> None:
    lines = prometheus(known).splitlines()
    samples = [line for line in lines if not line.startswith("#")]

    assert [line for line in samples if not _LINE.match(line)] == []
    names = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(names) == len(set(names))
    assert samples


def test_prometheus_tells_latency_in_seconds() -> None:
    known = rich()
    p99 = (known.whole.latency.p99_ms or 0) / 1000

    found = re.search(r'drumbeat_run_latency_seconds\{[^}]*kind="all",quantile="0.99"\} (\S+)', prometheus(known))

    assert found is not None
    assert float(found[1]) == pytest.approx(p99)


def test_markdown_keeps_hostile_names_in_their_cells() -> None:
    lines = [line for line in markdown(hostile()).splitlines() if line.startswith("| a")]

    assert lines
    for line in lines:
        assert "<b>" not in line
        assert re.search(r"(?<!\\)`", line) is None


def test_markdown_rows_have_as_many_cells_as_their_head() -> None:
    blocks = markdown(hostile()).split("\n\n")
    tables = [[line for line in block.splitlines() if line.startswith("|")] for block in blocks]
    assert any(len(lines) > 2 for lines in tables)
    for lines in tables:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) <= 1


def test_a_comparison_says_when_no_difference_is_shown() -> None:
    comparisons = compare([record("A", 1), record("B", 2), record("C", 3, qps=500)])

    text, told = comparison_markdown(comparisons), json.loads(comparison_json(comparisons))

    assert "no significant difference" in text
    assert [each["change"] for each in told] == ["stable", "regressed"]
    assert told[1]["figures"]["qps"]["shown"] is True
    assert told[1]["figures"]["qps"]["shift"]["high"] < 0


def test_a_comparison_names_both_runs_by_id_and_template() -> None:
    before, after = (replace(each, run=replace(each.run, name="k")) for each in (record("run-1", 1), record("run-2", 2)))
    after = replace(after, run=replace(after.run, template_id="tpl-9"))

    comparisons = compare([before, after])

    text, (told,) = comparison_markdown(comparisons), json.loads(comparison_json(comparisons))
    assert "## k, run-1 → k, run-2: stable" in text
    assert "- before: k, run-1, without a template, 2026-03-01 12:00:00 UTC" in text
    assert "- after: k, run-2, template tpl-9, 2026-03-01 12:00:00 UTC" in text
    assert (told["names"]["after"], told["templates"]["after"], told["reason"]) == ("k", "tpl-9", None)


def test_a_comparison_that_shows_nothing_says_why() -> None:
    comparisons = compare([record("A", 1, length=8), record("B", 2, length=8)])

    text, (told,) = comparison_markdown(comparisons), json.loads(comparison_json(comparisons))

    assert told["reason"].startswith("too little was measured: 8 s and 8 s; each run needs 8 batches of 3 s")
    assert "- inconclusive: too little was measured" in text


def test_a_run_that_failed_as_a_whole_is_no_success_in_any_form() -> None:
    known = replace(record(), totals={ALL_KINDS: Measured(operations=10, errors=10)})

    told = json.loads(as_json(known))

    assert (told["passed"], told["verdict"]) == (False, "FAILED")
    assert (told["verdict_reason"], told["exit_code"]) == ("every operation failed", 3)
    assert "**FAILED: every operation failed**" in markdown(known)
    assert 'errors="1"' in junit(known)
    assert 'message="every operation failed"' in junit(known)


def test_the_level_at_which_a_search_was_judged_is_told() -> None:
    plain = search()
    known = replace(plain, plan=replace(plain.plan, objectives={ALL_KINDS: Objective(p95_ms=20)}))

    assert "Judged at the level found: 60 connections." in markdown(known)
    assert json.loads(as_json(known))["judged_at"] == "judged at the level found: 60 connections"


def test_errors_by_kind_are_told_with_an_example() -> None:
    text = markdown(rich())

    assert "could not serialize access" in text
    assert rich().totals[ALL_KINDS].errors > 0
