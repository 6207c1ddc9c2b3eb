"""Traces of jobs from CSV: ``arrival,duration`` in seconds, and the Azure LLM inference traces as they are published.

``load_of`` is pure; only ``read_trace`` opens a file.
"""

import csv
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path

from drumbeat.core.errors import InvalidInput
from drumbeat.fleet.simulate import Load

PLAIN = ("arrival", "duration")
AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
SECONDS_PER_CONTEXT_TOKEN = 0.0001  #: assumed of one worker that serves a large model
SECONDS_PER_GENERATED_TOKEN = 0.04


def read_trace(file: Path) -> Load:
    """The jobs of a file. Raises InvalidInput."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            return load_of(lines, str(file))
    except OSError as exc:
        raise InvalidInput(f"expected to read a trace from {file}, got: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise InvalidInput(f"expected CSV in {file}, got something else: {exc}") from exc


def load_of(lines: Iterable[str], name: str = "the trace") -> Load:
    """The jobs of a trace's lines, in the order of their arrival, whatever the order of the lines. Raises InvalidInput."""
    rows = csv.reader(lines)
    header = tuple(cell.strip() for cell in next(rows, []))
    if header[:2] == PLAIN:
        found = sorted(_plain(rows, name))
    elif header == AZURE:
        found = sorted(_azure(rows, name))
    else:
        expected = f"{','.join(PLAIN)} or {','.join(AZURE)}"
        raise InvalidInput(f"expected {name} to begin with {expected}, got {','.join(header)!r}")
    if not found:
        raise InvalidInput(f"expected jobs in {name}, got only a header")
    return Load(arrivals=[at for at, _ in found], durations=[lasts for _, lasts in found])


def _plain(rows: Iterator[Sequence[str]], name: str) -> Iterator[tuple[float, float]]:
    for n, row in enumerate(rows, 2):
        if row:
            yield _job(row, n, name)


def _job(row: Sequence[str], n: int, name: str) -> tuple[float, float]:
    try:
        arrival, duration = float(row[0]), float(row[1])
    except (ValueError, IndexError) as exc:
        raise InvalidInput(f"{name}, line {n}: expected arrival and duration in seconds, got {','.join(row)!r}") from exc
    if not (isfinite(arrival) and isfinite(duration) and duration >= 0):
        raise InvalidInput(f"{name}, line {n}: expected finite seconds and a duration of 0 or more, got {','.join(row)!r}")
    return arrival, duration


def _azure(rows: Iterator[Sequence[str]], name: str) -> Iterator[tuple[float, float]]:
    first: float | None = None
    for n, row in enumerate(rows, 2):
        if row:
            at, lasts = _request(row, n, name)
            first = at if first is None else first
            yield at - first, lasts


def _request(row: Sequence[str], n: int, name: str) -> tuple[float, float]:
    """When a request came, and how long a worker takes for its tokens."""
    try:
        at = datetime.fromisoformat(row[0].strip()[:26]).replace(tzinfo=UTC).timestamp()
        read, written = int(row[1]), int(row[2])
    except (ValueError, IndexError) as exc:
        raise InvalidInput(f"{name}, line {n}: expected a timestamp and two counts of tokens, got {','.join(row)!r}") from exc
    return at, read * SECONDS_PER_CONTEXT_TOKEN + written * SECONDS_PER_GENERATED_TOKEN
