"""A benchmark's options, its tables, and its last line: one JSON object for programs."""

import argparse
import json
import platform
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from kit.fingerprint import fingerprint, loaded_files


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options that every benchmark has."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="takes less than a minute; less accurate")
    options.add_argument("--plot", type=Path, metavar="FILE.png", help="write a chart to this file")
    return options


@dataclass(slots=True)
class Report:
    """The results of a benchmark."""

    benchmark: str
    ratios: dict[str, float] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def note_versions(self, packages: Iterable[str], **others: str) -> None:
        self.versions |= {"python": platform.python_version(), "machine": platform.machine(), **others}
        for package in packages:
            try:
                self.versions[package] = version(package)
            except PackageNotFoundError:
                self.versions[package] = "not installed"

    def print(self) -> None:
        """Print the results as the last line of the benchmark's output: one JSON object."""
        rounded = _rounded({"benchmark": self.benchmark, "ratios": self.ratios, "figures": self.figures})
        print(json.dumps({**rounded, "versions": {**self.versions, "code": fingerprint(loaded_files())}}))


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, Mapping):
        return {key: _rounded(each) for key, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list | tuple) else value


def say(text: str) -> None:
    """Print progress to standard error, so that standard output has only the JSON line."""
    print(text, file=sys.stderr, flush=True)


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the value that ``percent`` % of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, round(len(ordered) * percent / 100) - 1))]


def print_table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    texts = [[f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in row] for row in [headers, *rows]]
    widths = [max(len(row[column]) for row in texts) for column in range(len(headers))]
    for first, *others in texts:
        padded = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        say("  ".join([first.ljust(widths[0]), *padded]))
