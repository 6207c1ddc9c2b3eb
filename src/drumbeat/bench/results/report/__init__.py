"""Writes reports of runs and comparisons as HTML, Markdown, CSV, JSON, JUnit or Prometheus text. Pure: no I/O."""

from collections.abc import Callable, Mapping

from drumbeat.bench.model.record import RunRecord
from drumbeat.bench.results.report.compared import (
    comparison_html as comparison_html,
    comparison_json as comparison_json,
    comparison_markdown as comparison_markdown,
)
from drumbeat.bench.results.report.content import warnings as warnings
from drumbeat.bench.results.report.csv import csv as csv
from drumbeat.bench.results.report.html import html as html
from drumbeat.bench.results.report.junit import junit as junit
from drumbeat.bench.results.report.markdown import markdown as markdown
from drumbeat.bench.results.report.plain import as_json as as_json
from drumbeat.bench.results.report.prometheus import prometheus as prometheus

FORMATS: Mapping[str, Callable[[RunRecord], str]] = {
    "html": html,
    "markdown": markdown,
    "csv": csv,
    "json": as_json,
    "junit": junit,
    "prometheus": prometheus,
}
