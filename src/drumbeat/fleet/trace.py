"""Read traces of jobs from CSV: ``arrival,duration`` in seconds, or the published Azure LLM inference traces.

``load_of`` is pure; only ``read_trace`` opens a file.
"""

import csv
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from drumbeat.core.errors import InvalidInput
from drumbeat.fleet.simulate import SimulatedLoad
from drumbeat.fleet.simulate.values import MOST_SECONDS, in_seconds

PLAIN = ("arrival", "duration")
AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
SECONDS_PER_CONTEXT_TOKEN = 0.0001  #: an assumption for one worker that serves a large model
SECONDS_PER_GENERATED_TOKEN = 0.04
_SHOWN = 80


def read_trace(file: Path) -> SimulatedLoad:
    """Read the jobs of a CSV file. Raises InvalidInput."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            return load_of(lines, str(file))
    except OSError as exc:
        raise InvalidInput(f"failed to read the trace {file}: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise InvalidInput(f"expected CSV in {file}, got invalid CSV: {exc}") from exc


def load_of(lines: Iterable[str], name: str = "the trace") -> SimulatedLoad:
    """Read the jobs from the lines of a CSV trace, sorted by arrival. Raises InvalidInput."""
    try:
        found = sorted(_jobs(csv.reader(lines), name))
    except csv.Error as exc:
        raise InvalidInput(f"expected CSV in {name}, got invalid CSV: {exc}") from exc
    if not found:
        raise InvalidInput(f"expected jobs in {name}, got only a header")
    return SimulatedLoad(arrivals=[at for at, _ in found], durations=[lasts for _, lasts in found])


def _jobs(rows: Iterator[Sequence[str]], name: str) -> Iterator[tuple[float, float]]:
    header = tuple(cell.strip() for cell in next(rows, []))
    if header[:2] == PLAIN:
        return _plain(rows, name)
    if header == AZURE:
        return _azure(rows, name)
    expected = f"{','.join(PLAIN)} or {','.join(AZURE)}"
    raise InvalidInput(f"expected {name} to begin with {expected}, got {_short(header)}")


def _short(row: Sequence[str]) -> str:
    """Return a line of a file, shortened for an error message."""
    return repr(",".join(row)[:_SHOWN])


def _plain(rows: Iterator[Sequence[str]], name: str) -> Iterator[tuple[float, float]]:
    for n, row in enumerate(rows, 2):
        if row:
            yield _job(row, n, name)


def _job(row: Sequence[str], n: int, name: str) -> tuple[float, float]:
    try:
        arrival, duration = float(row[0]), float(row[1])
    except (ValueError, IndexError) as exc:
        raise InvalidInput(f"{name}, line {n}: expected arrival and duration in seconds, got {_short(row)}") from exc
    if not in_seconds(arrival, duration):
        raise InvalidInput(
            f"{name}, line {n}: expected finite seconds, at most {MOST_SECONDS:g}, and a duration of 0 or more, "
            f"got {_short(row)}; milliseconds must be divided by 1000"
        )
    return arrival, duration


def _azure(rows: Iterator[Sequence[str]], name: str) -> Iterator[tuple[float, float]]:
    first: float | None = None
    for n, row in enumerate(rows, 2):
        if row:
            at, lasts = _request(row, n, name)
            first = at if first is None else first
            yield at - first, lasts


def _request(row: Sequence[str], n: int, name: str) -> tuple[float, float]:
    """Read a line of an Azure trace: when the request arrived, and the estimated seconds that a worker takes for its tokens."""
    try:
        at = datetime.fromisoformat(row[0].strip()[:26]).replace(tzinfo=UTC).timestamp()
        lasts = int(row[1]) * SECONDS_PER_CONTEXT_TOKEN + int(row[2]) * SECONDS_PER_GENERATED_TOKEN
    except (ValueError, IndexError, OverflowError) as exc:
        raise InvalidInput(f"{name}, line {n}: expected a timestamp and two counts of tokens, got {_short(row)}") from exc
    return at, lasts
