"""What every benchmark shares: its options, its last line, its picture, and the real servers of the tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
