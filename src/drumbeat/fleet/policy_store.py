"""Store a fleet's policy in its pool's row: merge changes, check them before they are written, and list what changed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from drumbeat.core.engine import DEFAULT_ENGINE, EngineFacts, covers, unreachable_store
from drumbeat.core.errors import InvalidInput, InvalidSettings
from drumbeat.core.event import start
from drumbeat.core.pool import PRESETS, PoolId, PoolKind, PoolRow, Thresholds, pool
from drumbeat.core.worker import Worker
from drumbeat.fleet.model import FleetPolicy, PolicyName
from drumbeat.fleet.settings import changed_policy, chosen_fields, from_environment, load_policy
from drumbeat.runtime.heartbeat_change import check_live_workers
from drumbeat.store.interface import PoolChange, Store

_NEVER = timedelta(days=3650)  #: a ``controller_gone_after`` above this means no limit
_MAX_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetConfigured:
    """The result of creating or configuring a fleet: its pool, and which settings changed."""

    pool: PoolRow
    is_new: bool
    changed: tuple[str, ...]  #: changed settings and time limits, each as ``max_workers 10 → 5``
    overruled: tuple[str, ...]  #: settings that environment variables of this process override in a beat


def check_scaled(pool: PoolRow) -> None:
    """Raise InvalidInput for a pool of jobs that is not a fleet, so that its workers are not drained by mistake."""
    if pool.kind is PoolKind.JOBS and not pool.is_scaled:
        raise InvalidInput(
            f"expected a fleet, got {pool.pool_id}, a pool of jobs without a policy; "
            f"make it one with: drumbeat fleet create {pool.pool_id}"
        )


def policy_row(policy: FleetPolicy) -> dict[str, Any]:
    """Return the policy as stored in a pool's row. Its key ``policy`` is always set, since it marks the pool as a fleet."""
    return {**policy.to_json(), "policy": policy.policy.value}


def fleet_fields(pool: PoolRow) -> tuple[str, ...]:
    """Return the keys in a pool's policy that are fields of a fleet's policy."""
    known = FleetPolicy.default_json()
    return tuple(name for name in pool.policy if name in known)


def wanted_policy(
    pool: PoolRow | None, environment: Mapping[str, str], file: Path | None, settings: Mapping[str, Any]
) -> FleetPolicy:
    """Return the policy to store. For an existing fleet, if no file is given: the stored policy with ``settings`` changed.
    Otherwise a new policy from file, environment and ``settings``. If none of these sets the engine or the concurrency, the
    pool's own value is kept.

    Raises InvalidSettings.
    """
    if pool is not None and file is None and pool.is_scaled:
        return changed_policy(pool.policy, settings)
    stored = {} if pool is None else pool.policy
    kept = {"provider", "concurrency"} - chosen_fields(environment, file, settings)
    own = {name: stored[name] for name in kept if stored.get(name)}
    return replace(load_policy(environment, file, **settings), **own)


def merged_policy(pool: PoolRow, environment: Mapping[str, str], settings: Mapping[str, Any]) -> FleetPolicy:
    """Return the policy of a beat: the pool's policy, overridden by environment variables and then by ``settings``.

    Raises InvalidInput if the pool is not a fleet, and InvalidSettings.
    """
    check_scaled(pool)
    return changed_policy(pool.policy, {**from_environment(environment), **settings})


def check_kind(pool: PoolRow, policy: FleetPolicy, *, has_handlers: bool) -> None:
    """Raise InvalidInput for a handler, or for a policy that needs a queue. ``pool`` is a fleet without a queue."""
    if has_handlers:
        raise InvalidInput(f"expected no handler for {pool.pool_id}, a fleet without a queue; create a pool of jobs instead")
    if policy.policy is not PolicyName.FIXED:
        raise InvalidInput(f"expected the policy 'fixed', because fleet {pool.pool_id} has no queue, got '{policy.policy}'")


def check_price(policy: FleetPolicy, engine: EngineFacts | None = None) -> None:
    """Raise InvalidSettings for a money ceiling if workers cost nothing, since the ceiling would never apply."""
    is_free = policy.provider == DEFAULT_ENGINE if engine is None else engine.is_free
    free = policy.price_per_hour == 0 or (policy.price_per_hour is None and is_free)
    if policy.has_ceiling and free:
        raise InvalidSettings(
            f"expected a price with max_per_hour, max_per_day or max_per_month, got none: a worker of the engine "
            f"{policy.provider} costs nothing; set price_per_hour, or drop the ceiling (--set max_per_day=none)"
        )


def check_reach(store: Store, policy: FleetPolicy, engine: EngineFacts | None = None) -> None:
    """Raise InvalidSettings for workers on other machines if the store is a file on this machine."""
    traits = store.traits
    elsewhere = policy.provider != DEFAULT_ENGINE if engine is None else engine.elsewhere
    if elsewhere and traits.shared and not traits.networked:
        raise InvalidSettings(unreachable_store(traits.name, policy.provider))


def check_provider(pool: PoolRow, policy: FleetPolicy, workers: Sequence[Worker]) -> None:
    """Raise InvalidSettings if a worker might run at a provider that the policy does not name: the fleet could not end it."""
    here = [each for each in workers if each.reaped_at is None and not covers(policy.provider, each.provider)]
    if not here:
        return
    named = ", ".join(each.worker_id for each in here[:_MAX_NAMED]) + (" and others" if len(here) > _MAX_NAMED else "")
    raise InvalidSettings(
        f"cannot change the engine of {pool.pool_id} from {here[0].provider} to {policy.provider} while workers may still "
        f"run ({named}); drain them first: drumbeat fleet create {pool.pool_id} --set min_workers=0 --set max_workers=0, "
        f"repeat drumbeat fleet beat {pool.pool_id} until no worker is left, run one more beat, then change the engine"
    )


async def effective_policy(
    store: Store,
    pool_id: PoolId,
    environment: Mapping[str, str],
    settings: Mapping[str, Any],
    engine: Callable[[str], EngineFacts] | None = None,
) -> tuple[PoolRow, FleetPolicy]:
    """Return a fleet's pool and the checked policy of its next beat. Raises NotFound, InvalidInput, InvalidSettings."""
    pool = await store.pools.get(pool_id)
    policy = merged_policy(pool, environment, settings)
    await check_policy(store, pool, policy, engine and engine(policy.provider))
    return pool, policy


async def create_fleet(
    store: Store, name: str, policy: FleetPolicy, thresholds: Thresholds | None = None, engine: EngineFacts | None = None
) -> PoolRow:
    """Create a fleet's pool. Its workers begin work as soon as they are ready. Raises AlreadyExists, InvalidSettings."""
    check_new(store, policy, engine)
    limits = thresholds or replace(PRESETS[PoolKind.FLEET], controller_gone_after=policy.controller_gone_after)
    created = await store.pools.create(pool(name, PoolKind.FLEET, limits, **policy_row(policy)))
    await store.events.append(created.pool_id, [start(expected_workers=policy.workers)])
    return created


async def set_policy(
    store: Store, pool: PoolRow, policy: FleetPolicy, thresholds: Thresholds | None = None, engine: EngineFacts | None = None
) -> PoolRow:
    """Replace a pool's policy; it applies from the next beat.

    Raises NotFound, InvalidSettings, and StaleWrite if the policy has been changed since ``pool`` was read.
    """
    await check_policy(store, pool, policy, engine)
    return await write_policy(store, pool, policy, thresholds)


def check_new(store: Store, policy: FleetPolicy, engine: EngineFacts | None = None) -> None:
    """Raise InvalidSettings for a money ceiling if workers cost nothing, or for workers that cannot reach this store.

    ``engine``: facts about the policy's engines. If None, only workers of the engine ``local`` are assumed to
    be free of charge and to run on this machine."""
    check_price(policy, engine)
    check_reach(store, policy, engine)


async def check_policy(store: Store, pool: PoolRow, policy: FleetPolicy, engine: EngineFacts | None = None) -> None:
    """Raise InvalidSettings for a policy that this store or this pool's running workers do not allow."""
    check_new(store, policy, engine)
    if changes_provider(pool, policy):
        check_provider(pool, policy, await store.workers.list_unreaped(pool.pool_id))


async def write_policy(
    store: Store,
    pool: PoolRow,
    policy: FleetPolicy,
    thresholds: Thresholds | None = None,
    plan: Mapping[str, Any] | None = None,
) -> PoolRow:
    """Write a checked policy to the pool's row, and the workers' plan if given; the pool's other settings stay.

    Raises StaleWrite, and writes nothing, if the policy or the plan has been changed since ``pool`` was read; Refused if live
    workers would seem silent with new ``thresholds``.
    """
    await check_live_workers(store, pool, thresholds)
    values = {**policy_row(policy), **(plan or {})}
    limits = stay_limits(replace(pool, thresholds=thresholds) if thresholds else pool, policy) or thresholds
    if limits is None and pool.policy == {**pool.policy, **values} and values.keys() >= set(fleet_fields(pool)):
        return pool
    expected = {name: pool.policy.get(name) for name in {*values, *FleetPolicy.default_json()}}
    change = PoolChange(policy=values, dropped=fleet_fields(pool), thresholds=limits, expected=expected)
    return await store.pools.change(pool.pool_id, change)


def changes_provider(pool: PoolRow, policy: FleetPolicy) -> bool:
    return bool(pool.policy.get("provider", FleetPolicy().provider) != policy.provider)


def stay_limits(pool: PoolRow, policy: FleetPolicy) -> Thresholds | None:
    """Return the pool's time limits, updated with how long workers can run without a controller; None if nothing changes."""
    every = timedelta(seconds=float(pool.policy.get("every_seconds", FleetPolicy().every.total_seconds())))
    was, absence = pool.thresholds.controller_gone_after, policy.controller_gone_after
    follows = was > _NEVER or (pool.is_scaled and was == max(FleetPolicy().controller_gone_after, every * 5))
    new = absence if follows else max(was, absence) if policy.every > every else was
    return None if new == was else replace(pool.thresholds, controller_gone_after=new)


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """List the fields that differ between two policies, each as ``max_workers 10 → 5``."""
    default = FleetPolicy.default_json()
    was, now = {**default, **before}, {**default, **after}
    names = [name for name in now if name not in ("mode", "mended_at") and was.get(name) != now[name]]
    return tuple(f"{name.removesuffix('_seconds')} {_show(name, was.get(name))} → {_show(name, now[name])}" for name in names)


def changes_of(before: PoolRow, after: PoolRow) -> tuple[str, ...]:
    """List the settings and the time limits that differ between two rows of a pool, each as ``max_workers 10 → 5``."""
    was, now = before.thresholds, after.thresholds
    limits = [(name, getattr(was, name), getattr(now, name)) for name in Thresholds.__dataclass_fields__]
    changed = [f"{name} {_show_limit(old)} → {_show_limit(new)}" for name, old, new in limits if old != new]
    return (*differences(before.policy, after.policy), *changed)


def overridden_settings(
    pool: PoolRow, environment: Mapping[str, str], engine: Callable[[str], EngineFacts] | None = None
) -> tuple[str, ...]:
    """Describe each setting that these environment variables override in a beat. If a variable is invalid, return only one
    text, which says why.

    ``engine``: called with the policy's engine, to raise InvalidSettings if that is unknown; None: not checked."""
    try:
        merged = merged_policy(pool, environment, {})
        if engine is not None:
            engine(merged.provider)
        return differences(pool.policy, merged.to_json())
    except InvalidSettings as exc:
        return (f"no beat is possible with these variables: {exc}",)


def _show_limit(limit: timedelta) -> str:
    return "none" if limit > _NEVER else f"{limit.total_seconds():g} s"


def _show(name: str, value: Any) -> str:
    if value is None:
        return "none"
    return f"{value:g} s" if name.endswith("_seconds") and isinstance(value, int | float) else str(value)
