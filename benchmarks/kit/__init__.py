"""Shared by all benchmarks: options, the JSON line at the end, charts, and the database servers of the tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
