"""Compares runs. Pure: no clock, no randomness, no I/O."""

from drumbeat.bench.results.compare.baseline import Candidate, last_good, regress, same_what
from drumbeat.bench.results.compare.changes import Bounds, Delta, FigureChange
from drumbeat.bench.results.compare.comparison import Comparison, compare, compared
from drumbeat.bench.results.compare.configuration import ConfigDifference, differences
from drumbeat.bench.results.compare.history import History, history
from drumbeat.bench.results.compare.means import Shift, shift
from drumbeat.bench.results.compare.similarity import Confidence, Similarity, similarity

__all__ = [
    "Bounds",
    "Candidate",
    "Comparison",
    "Confidence",
    "ConfigDifference",
    "Delta",
    "FigureChange",
    "History",
    "Shift",
    "Similarity",
    "compare",
    "compared",
    "differences",
    "history",
    "last_good",
    "regress",
    "same_what",
    "shift",
    "similarity",
]
