"""Compares runs. Pure: no clock, no randomness, no I/O."""

from drumbeat.bench.results.compare.baseline import (
    Candidate as Candidate,
    baseline_criterion as baseline_criterion,
    last_good as last_good,
    regress as regress,
)
from drumbeat.bench.results.compare.changes import Bounds as Bounds, Delta as Delta, FigureChange as FigureChange
from drumbeat.bench.results.compare.comparison import Comparison as Comparison, compare as compare, compared as compared
from drumbeat.bench.results.compare.configuration import ConfigDifference as ConfigDifference, differences as differences
from drumbeat.bench.results.compare.history import History as History, history as history
from drumbeat.bench.results.compare.means import Shift as Shift, shift as shift
from drumbeat.bench.results.compare.similarity import (
    Confidence as Confidence,
    Similarity as Similarity,
    similarity as similarity,
)
