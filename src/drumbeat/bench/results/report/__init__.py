"""Reports of runs and comparisons: HTML, Markdown, CSV, JSON, JUnit, Prometheus. Pure: values in, text out."""

from collections.abc import Callable, Mapping

from drumbeat.bench.model.record import RunRecord
from drumbeat.bench.results.report.compared import comparison_html, comparison_json, comparison_markdown
from drumbeat.bench.results.report.content import warnings
from drumbeat.bench.results.report.csv import csv
from drumbeat.bench.results.report.html import html
from drumbeat.bench.results.report.junit import junit
from drumbeat.bench.results.report.markdown import markdown
from drumbeat.bench.results.report.plain import as_json
from drumbeat.bench.results.report.prometheus import prometheus

FORMATS: Mapping[str, Callable[[RunRecord], str]] = {
    "html": html,
    "markdown": markdown,
    "csv": csv,
    "json": as_json,
    "junit": junit,
    "prometheus": prometheus,
}

__all__ = [
    "FORMATS",
    "as_json",
    "comparison_html",
    "comparison_json",
    "comparison_markdown",
    "csv",
    "html",
    "junit",
    "markdown",
    "prometheus",
    "warnings",
]
