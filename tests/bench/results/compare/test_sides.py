"""Latency by kind and cost stand beside what is tested."""

import json
from dataclasses import replace

import pytest

from bench.recorded import record, rich, search
from drumbeat.bench.model.plan import Prices
from drumbeat.bench.model.record import Latency, Measured, RunRecord
from drumbeat.bench.results.compare import compared
from drumbeat.bench.results.compare.sides import by_kind, costs
from drumbeat.bench.results.report import comparison_html, comparison_json, comparison_markdown


def with_kind(p95_ms: float) -> RunRecord:
    plain = rich()
    measured = Measured(operations=1000, errors=10, seconds=10, latency=Latency(p50_ms=1, p95_ms=p95_ms, p99_ms=9))
    return replace(plain, totals={**plain.totals, "read": measured})


def test_each_kind_has_its_figures_of_both_runs() -> None:
    found = {(pair.subject, pair.figure): pair for pair in by_kind(with_kind(4.0), with_kind(6.0))}

    p95, gone = found["read", "p95"], {pair.subject for pair in by_kind(with_kind(4.0), record())}
    assert (p95.before, p95.after) == (4.0, 6.0)
    assert p95.relative == pytest.approx(0.5)
    assert (found["read", "operations/s"].before, found["read", "error rate"].before) == (100.0, 1.0)
    assert gone == {"read", "write"}


def test_kinds_of_a_search_are_those_of_the_level_it_found() -> None:
    plain = search()
    (result,) = plain.results
    told = {"read": {"operations": 800, "errors": 0, "p50_ms": 3.0, "p95_ms": 4.0, "p99_ms": 5.0}}
    found = replace(plain, results=(replace(result, find_max_result={**(result.find_max_result or {}), "best_kinds": told}),))

    assert {pair.figure: pair.before for pair in by_kind(found, found)}["p95"] == 4.0


def test_costs_are_compared_in_one_currency_alone() -> None:
    cheap, dear = rich(), rich()
    dear = replace(dear, plan=replace(dear.plan, prices=Prices(worker_hour=0.4, target_hour=3.0, currency="EUR")))
    dollars = replace(dear, plan=replace(dear.plan, prices=replace(dear.plan.prices, currency="USD")))

    assert {pair.figure: pair.relative for pair in costs(cheap, dear)}["total"] == pytest.approx(1.0)
    assert {pair.relative for pair in costs(cheap, dollars)} == {None}
    assert costs(record(), record()) == ()


def test_every_form_of_a_comparison_shows_them() -> None:
    comparisons = (compared(with_kind(4.0), with_kind(6.0)),)

    text, page, (told,) = (
        comparison_markdown(comparisons),
        comparison_html(comparisons),
        json.loads(comparison_json(comparisons)),
    )
    assert r"| read | p95 \(ms\) | 4 | 6 | \+50.0 % |" in text
    assert "### Cost" in text
    assert "<h3>By kind</h3>" in page
    assert {each["figure"] for each in told["cost"]} >= {"total", "per 1,000 operations"}
    assert any(each["subject"] == "read" and each["relative"] == pytest.approx(0.5) for each in told["kinds"])
