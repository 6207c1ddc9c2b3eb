"""Checks the settings of a pool of jobs that ``create`` and ``update`` write to its policy."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from drumbeat.core.errors import InvalidInput
from drumbeat.core.pool import PoolRow
from drumbeat.core.retention import IN_POLICY, USUAL, retention_of
from drumbeat.pool.model import TASK_HANDLER
from drumbeat.pool.result_ttl import RESULT_TTL, check_result_ttl
from drumbeat.pool.validation import check_count, names
from drumbeat.pool.worker.options import PLAN_FIELDS, WorkPlan, changed_handlers

_MAX_WORKERS = "max_workers"
_OTHERS = (_MAX_WORKERS, IN_POLICY, RESULT_TTL)


def checked_settings(pool: PoolRow, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given settings of a pool as fields of its policy. Raises InvalidInput or InvalidSettings that names the first
    unknown or wrong setting."""
    recorded = {name: value for name, value in given.items() if name.startswith(TASK_HANDLER)}
    if unknown := sorted(given.keys() - {*PLAN_FIELDS, *_OTHERS, *recorded}):
        known = ", ".join([*PLAN_FIELDS, _MAX_WORKERS, "engine", IN_POLICY, RESULT_TTL])
        hint = "; to change the heartbeat of a pool, use update" if unknown[0] == "heartbeat" else ""
        raise InvalidInput(f"a pool has no setting {unknown[0]!r}; expected one of {known}{hint}")
    plan = {name: value for name, value in given.items() if name in PLAN_FIELDS}
    policy = WorkPlan(**plan).to_json(plan) | recorded
    if _MAX_WORKERS in given:
        policy[_MAX_WORKERS] = check_count(_MAX_WORKERS, given[_MAX_WORKERS])
    if IN_POLICY in given:
        retention_of(replace(pool, policy={IN_POLICY: given[IN_POLICY]}), USUAL)
        policy[IN_POLICY] = given[IN_POLICY]
    if RESULT_TTL in given:
        policy[RESULT_TTL] = check_result_ttl(given[RESULT_TTL])
    return policy


def new_handlers(pool: PoolRow, added: Mapping[str, str], removed: Sequence[str]) -> Mapping[str, str]:
    """Return a pool's handlers after adding some and removing some. Stored handlers that are not a mapping are ignored.
    Raises InvalidInput."""
    stored = pool.policy.get("handlers")
    current = stored if isinstance(stored, Mapping) else {}
    return changed_handlers(current, added, names("remove_handlers", removed))
