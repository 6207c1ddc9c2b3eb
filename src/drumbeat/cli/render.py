"""Prints values as tables and lines for people, or as JSON for programs."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from drumbeat.core.histogram import Histogram
from drumbeat.core.plain import time_span

_UNWRAPPED = 10_000  #: line width if there is no terminal: so wide that no line is wrapped

console = Console(width=None if sys.stdout.isatty() else _UNWRAPPED, markup=False, emoji=False, highlight=False)
errors = Console(stderr=True, markup=False, emoji=False, highlight=False)

Columns = Mapping[str, Callable[[Any], object]]


def show(rows: Sequence[object], columns: Columns, *, as_json: bool, nothing: str) -> None:
    """Print rows as a table or a JSON array. ``nothing``: the text printed instead of an empty table."""
    if as_json:
        show_json(rows)
    elif rows:
        console.print(table(rows, columns))
    else:
        say(nothing)


def say(line: str, style: str | None = None) -> None:
    """Print one line without wrapping it."""
    console.print(line, style=style, soft_wrap=True)


@contextmanager
def progress(verb: str) -> Iterator[Callable[[int], None]]:
    """Show a status line that counts rows during the block, if there is a terminal. Yields a function that sets the count."""
    with status_line(f"{verb} 0 rows") as update:
        yield lambda rows: update(f"{verb} {rows:,} rows")


@contextmanager
def status_line(first: str) -> Iterator[Callable[[str], None]]:
    """Show a line on standard error during the block, if there is a terminal. Yields a function that changes the line."""
    if not errors.is_terminal:
        yield lambda line: None
        return
    with errors.status(first) as status:
        yield status.update


def show_json(value: object) -> None:
    """Print one JSON document on standard output."""
    print(to_json(value))


def to_json(value: object) -> str:
    encoded = msgspec.json.encode(msgspec.to_builtins(value, enc_hook=_plain, str_keys=True))
    return encoded.decode()


def _plain(value: object) -> object:
    if isinstance(value, Histogram):
        return {
            "count": value.count,
            "mean_ms": _ms(value.mean),
            "p50_ms": _ms(value.percentile(50)),
            "p95_ms": _ms(value.percentile(95)),
            "p99_ms": _ms(value.percentile(99)),
        }
    return repr(value)


def _ms(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds() * 1000


def table(rows: Sequence[object], columns: Columns, title: str | None = None) -> Table:
    drawn = Table(*columns, title=title, header_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for row in rows:
        drawn.add_row(*(_cell(read(row)) for read in columns.values()))
    return drawn


def _cell(value: object) -> Text:
    return value if isinstance(value, Text) else Text(text(value))


def text(value: object) -> str:
    match value:
        case None:
            return "–"
        case datetime():
            return f"{value:%Y-%m-%d %H:%M:%S}"
        case timedelta():
            return time_span(value)
        case float():
            return f"{value:.1f}"
        case Mapping() if any(isinstance(each, timedelta) for each in value.values()):
            return ", ".join(f"{name} {text(each)}" for name, each in value.items())
        case dict() | list():
            return json.dumps(value, ensure_ascii=False, default=str)
        case _:
            return str(value)


def sentence(action: Mapping[str, Any]) -> str:
    """Return one line about an action of a control loop: its type, subject and reason, and its error if it failed."""
    subject = action.get("worker_id") or (action.get("worker") or {}).get("worker_id") or action.get("phase")
    what = f"{action['type']} {subject}" if subject else action["type"]
    failed = f"  [not done: {action['error']}]" if action.get("error") else ""
    return f"{what}: {action['reason']}{failed}"
