"""The HTML page around every report. It loads no external resources."""

from collections.abc import Iterable, Sequence

from drumbeat.bench.results.report.escape import markup
from drumbeat.bench.results.report.style import CSS
from drumbeat.bench.results.report.svg import Chart, figure
from drumbeat.bench.results.report.table import ReportTable

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def page(title: str, body: Iterable[str]) -> str:
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{markup(title)}</title><style>{CSS}</style>"
    )
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body><main>{"".join(body)}</main></body></html>\n'


def section(name: str, heading: str, *parts: str) -> str:
    """Return an HTML section with a heading; an empty text if it has no content."""
    body = "".join(parts)
    return f'<section id="{name}"><h2>{markup(heading)}</h2>{body}</section>' if body else ""


def table(found: ReportTable | None) -> str:
    return found.as_html() if found else ""


def folded(summary: str, found: ReportTable | None) -> str:
    return f"<details><summary>{markup(summary)}</summary>{found.as_html()}</details>" if found else ""


def charts(*drawn: Chart) -> str:
    figures: Sequence[str] = [text for chart in drawn if (text := figure(chart))]
    return f'<div class="charts">{"".join(figures)}</div>' if figures else ""
