import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from bench.recorded import record, rich, run, search
from drumbeat.bench.model.plan import RunPlan
from drumbeat.bench.model.record import RunRecord
from drumbeat.bench.results.compare import compare
from drumbeat.bench.results.report import comparison_html, html
from drumbeat.core.run import Result, RunId, RunStatus

HOSTILE = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>&amp;\x00\x1b"
EXPLANATION = {"text": HOSTILE, "model": HOSTILE, "at": "2026-01-01T00:00:00+00:00", "unknown_numbers": [HOSTILE]}
VOID = {"meta", "img", "br", "hr", "link", "input"}


class Page(HTMLParser):
    """Reads a page, and fails on a tag that is not closed in its turn."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.sections: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag == "section":
            self.sections.append(dict(attrs)["id"] or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.texts)


def hostile() -> RunRecord:
    """A run in which every name is an attack."""
    known = rich()
    config = {"target": {"url": f"postgresql://u:hunter2@h/{HOSTILE}"}, HOSTILE: HOSTILE}
    return replace(
        known,
        run=run(
            HOSTILE, config=config, template_id=HOSTILE, completion_reason=HOSTILE, custom_metrics={"explanation": EXPLANATION}
        ),
        totals={**known.totals, HOSTILE: known.whole},
        workers=tuple(replace(each, worker_id=RunId(HOSTILE), host=HOSTILE, error=HOSTILE) for each in known.workers),  # type: ignore[arg-type]
        decisions=tuple(replace(each, what=f"SCALE_DOWN {HOSTILE}", reason=HOSTILE, error=HOSTILE) for each in known.decisions),
        server=tuple(replace(each, wait_events={HOSTILE: 2}) for each in known.server),
        failures=tuple(replace(each, kind=HOSTILE, message=HOSTILE, sqlstate=HOSTILE) for each in known.failures),
        timeline=tuple(replace(each, phase=HOSTILE) if each.offset < 200 else each for each in known.timeline),
        phases=tuple(replace(each, name=HOSTILE, kinds={HOSTILE: each.whole}) for each in known.phases),
        steps=tuple(replace(each, outcome=HOSTILE, reason=HOSTILE) for each in search().steps),
        results=(Result(run_id=RunId("r"), find_max_result={"message": HOSTILE, "usl": {"fitted": False, "reason": HOSTILE}}),),
        notes=(HOSTILE,),
        summary=(HOSTILE, HOSTILE),
    )


def test_a_report_has_every_section() -> None:
    page = Page(html(rich()))

    assert page.sections == [
        "verdict", "throughput", "latency", "connections", "resources", "server", "errors", "kinds", "phases", "workers",
        "decisions", "cost", "configuration",
    ]  # fmt: skip
    assert page.seen.count("svg") == 9


def test_the_summary_stands_before_the_verdict_and_a_models_words_apart_from_it() -> None:
    words = {"text": "It was slow.", "model": "m-1", "at": "2026-01-01T12:30:00+00:00"}
    known = replace(rich(), summary=("It ran.", "It passed."), run=run("r", custom_metrics={"explanation": words}))

    page = Page(html(known))

    assert page.sections[:3] == ["summary", "verdict", "explanation"]
    assert "It ran. It passed." in page.text
    assert "Written by the language model m-1 on 2026-01-01 12:30 UTC, not by Drumbeat; it may be wrong." in page.text


def test_a_search_shows_its_steps_and_knee() -> None:
    page = Page(html(search()))

    assert "steps" in page.sections
    for told in ("best 60", "USL peak 66", "DEGRADED", "p95 60 % above the first step", "TRUE_MAX", "confidence medium"):
        assert told in page.text


def test_figures_stand_with_those_of_the_slowest_worker() -> None:
    known = rich()
    slow = replace(known.workers[1].measured.latency, p95_ms=77.0, p99_ms=88.0)
    workers = (known.workers[0], replace(known.workers[1], measured=replace(known.workers[1].measured, latency=slow)))

    text = Page(html(replace(known, workers=workers))).text

    assert "slowest worker 77 ms" in text
    assert "slowest worker 88 ms" in text


def test_guardrails_at_work_are_marked() -> None:
    text = Page(html(rich())).text

    assert "SCALE_DOWN w1: CPU 91 % over 80 % for 2 intervals" in text
    assert "CPU guardrail 80 %" in text


@pytest.mark.parametrize("status", [RunStatus.FAILED, RunStatus.PREPARED, RunStatus.CANCELLED])
def test_a_run_that_measured_nothing_has_a_report(status: RunStatus) -> None:
    page = Page(html(RunRecord(run=run("early", status, started_at=None), plan=RunPlan())))

    assert page.sections == ["verdict", "cost", "configuration"]
    assert "nothing was measured" in page.text
    assert str(status) in page.text


@pytest.mark.parametrize("known", [rich(), search(), hostile()], ids=["rich", "search", "hostile"])
def test_a_report_asks_nothing_of_any_host_and_runs_nothing(known: RunRecord) -> None:
    text = html(known)
    page = Page(text)

    assert {"body", "table", "svg"} <= set(page.seen)
    assert not {"script", "link", "img", "iframe", "object", "embed", "base"} & set(page.seen)
    assert not [name for name, _ in page.attributes if name.startswith("on") or name in ("src", "href", "style")]
    assert "url(" not in text.split("</style>")[0]
    assert not re.search(r"@import|javascript:", text.split("</style>")[0])


def test_hostile_names_are_shown_as_they_are() -> None:
    page = Page(html(hostile()))

    assert page.text.count("<script>alert('x')</script>") > 10
    assert "script" not in page.seen


def test_a_password_is_never_in_a_report() -> None:
    assert "hunter2" in repr(hostile())
    assert "hunter2" not in html(hostile())


def test_it_is_light_and_dark() -> None:
    assert "@media (prefers-color-scheme:dark)" in html(rich())


def test_a_long_run_is_thinned_and_keeps_its_spike() -> None:
    long = record(length=20_000)
    spike = tuple(replace(each, operations=9e6) if each.offset == 12_345 else each for each in long.timeline)

    text = html(replace(long, timeline=spike))

    assert len(text) < 400_000
    assert "10M" in text


def test_a_comparison_is_a_page_with_every_run() -> None:
    runs = [record("A"), record(HOSTILE, 2, qps=500), record("C", 3)]

    page = Page(comparison_html(compare(runs)))

    assert page.sections == ["overlay", "comparison-1", "comparison-2"]
    assert "regressed" in page.text
    assert "script" not in page.seen
