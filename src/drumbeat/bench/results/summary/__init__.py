"""Says in a few sentences what a run did, what limited it, what changed and what to try. Pure: from stored figures only."""

from drumbeat.bench.results.summary.limits import LimitKind as LimitKind, RunLimit as RunLimit, limits_of as limits_of
from drumbeat.bench.results.summary.sentences import summarise as summarise
