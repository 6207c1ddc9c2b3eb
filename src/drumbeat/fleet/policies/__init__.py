"""Scaling policies: pure functions that say how many workers a pool should have."""

from collections.abc import Mapping

from drumbeat.fleet.model import PolicyName
from drumbeat.fleet.policies.fixed import fixed as fixed
from drumbeat.fleet.policies.inputs import (
    Policy as Policy,
    PolicyInput as PolicyInput,
    PolicyResult as PolicyResult,
    WorkerLevel as WorkerLevel,
)
from drumbeat.fleet.policies.lag_aware import lag_aware as lag_aware
from drumbeat.fleet.policies.queue_cover import queue_cover as queue_cover
from drumbeat.fleet.policies.queue_ratio import queue_ratio as queue_ratio

POLICIES: Mapping[PolicyName, Policy] = {
    PolicyName.FIXED: fixed,
    PolicyName.QUEUE_RATIO: queue_ratio,
    PolicyName.QUEUE_COVER: queue_cover,
    PolicyName.LAG_AWARE: lag_aware,
}
