"""What a pool keeps of a fleet's policy: what a change leaves alone, what is refused before it is written, and what is new."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from drumbeat.core.errors import InvalidInput, InvalidSettings
from drumbeat.core.event import start
from drumbeat.core.pool import PRESETS, PoolId, PoolKind, PoolRow, Thresholds, pool
from drumbeat.core.worker import Worker
from drumbeat.fleet.model import FleetPolicy, PolicyName
from drumbeat.fleet.settings import changed_policy, from_environment, load_policy
from drumbeat.store.interface import PoolChange, Store

_NEVER = timedelta(days=3650)  #: a pool whose workers may be alone for longer has no limit
_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetConfigured:
    """A fleet as it is kept now."""

    pool: PoolRow
    is_new: bool
    changed: tuple[str, ...]  #: each as ``max_workers 10 → 5``
    overruled: tuple[str, ...]  #: what a beat with this process's environment would go by instead


def check_scaled(pool: PoolRow) -> None:
    """Raise InvalidInput for a pool of jobs that nobody made a fleet: its workers are not a policy's to send away."""
    if pool.kind is PoolKind.JOBS and not pool.is_scaled:
        raise InvalidInput(
            f"expected a fleet, got {pool.pool_id}, a pool of jobs without a policy; "
            f"make it one with: drumbeat fleet create {pool.pool_id}"
        )


def policy_to_keep(policy: FleetPolicy) -> dict[str, Any]:
    """The policy as a pool's row has it. It always names its policy: that is how a pool of jobs is known to be a fleet."""
    return {**policy.to_json(), "policy": policy.policy.value}


def fleet_fields(pool: PoolRow) -> tuple[str, ...]:
    """What of a pool's policy is a fleet's."""
    known = FleetPolicy.usual_json()
    return tuple(name for name in pool.policy if name in known)


def wanted_policy(
    home: PoolRow | None, environment: Mapping[str, str], file: Path | None, settings: Mapping[str, Any]
) -> FleetPolicy:
    """What a pool's policy shall be: whole for a new fleet or from a file, else its own but for what is set.

    Raises InvalidSettings.
    """
    if home is not None and file is None and home.is_scaled:
        return changed_policy(home.policy, settings)
    beneath = {"concurrency": home.policy["concurrency"]} if home is not None and "concurrency" in home.policy else {}
    made = load_policy(environment, file, **settings)
    return replace(made, **beneath) if made.concurrency == 1 and "concurrency" not in settings else made


def heeded_policy(home: PoolRow, environment: Mapping[str, str], told: Mapping[str, Any]) -> FleetPolicy:
    """What a beat goes by: the kept policy, over it this process's variables, over them what its command says.

    Raises InvalidInput when the pool is no fleet, InvalidSettings.
    """
    check_scaled(home)
    return changed_policy(home.policy, {**from_environment(environment), **told})


def check_kind(home: PoolRow, policy: FleetPolicy, *, has_handlers: bool) -> None:
    """Raise InvalidInput for what a fleet without a queue cannot be."""
    if has_handlers:
        raise InvalidInput(f"expected no handler for {home.pool_id}, a fleet without a queue; make a pool of jobs for it")
    if policy.policy is not PolicyName.FIXED:
        raise InvalidInput(f"expected the policy fixed for {home.pool_id}, a fleet without a queue, got {policy.policy}")


def check_price(policy: FleetPolicy) -> None:
    """Raise InvalidSettings for a ceiling that no worker's price could ever reach."""
    free = policy.price_per_hour == 0 or (policy.price_per_hour is None and policy.provider == "local")
    if policy.has_ceiling and free:
        raise InvalidSettings(
            f"expected a price with max_per_hour, max_per_day or max_per_month, got none: a worker of the provider "
            f"{policy.provider} costs nothing; set price_per_hour, or drop the ceiling (--set max_per_day=none)"
        )


def check_reach(store: Store, policy: FleetPolicy) -> None:
    """Raise InvalidSettings for workers on other machines where the store is a file of this one."""
    traits = store.traits
    if policy.provider != "local" and traits.shared and not traits.networked:
        raise InvalidSettings(unreachable(traits.name, policy.provider))


def unreachable(store: str, provider: str) -> str:
    """Why workers of a provider cannot work for a store that only this machine has, and what to do."""
    return (
        f"expected a store that workers of {provider} can reach, got one of kind {store}, which only this machine has; "
        f"use PostgreSQL or Redis (--store postgresql://…), or let the workers run here (--provider local)"
    )


def check_provider(home: PoolRow, policy: FleetPolicy, workers: Sequence[Worker]) -> None:
    """Raise InvalidSettings for another provider while workers of the old one are there: nobody else could end them."""
    here = [each for each in workers if each.reaped_at is None and each.provider not in (None, policy.provider)]
    if not here:
        return
    named = ", ".join(each.worker_id for each in here[:_NAMED]) + (" and others" if len(here) > _NAMED else "")
    raise InvalidSettings(
        f"expected to stay with the provider {here[0].provider} while workers of it are not known to be gone ({named}), "
        f"got {policy.provider}; let them go first: drumbeat fleet create {home.pool_id} --set min_workers=0 "
        f"--set max_workers=0, then beat until drumbeat fleet workers {home.pool_id} shows none, and once more"
    )


async def effective_policy(
    store: Store, pool_id: PoolId, environment: Mapping[str, str], told: Mapping[str, Any]
) -> tuple[PoolRow, FleetPolicy]:
    """A fleet, and what a beat of it goes by, checked. Raises NotFound, InvalidInput, InvalidSettings."""
    home = await store.pools.get(pool_id)
    policy = heeded_policy(home, environment, told)
    await check_policy(store, home, policy)
    return home, policy


async def create_fleet(store: Store, name: str, policy: FleetPolicy, thresholds: Thresholds | None = None) -> PoolRow:
    """A pool whose workers start as soon as they are ready. Raises AlreadyExists, InvalidSettings."""
    check_new(store, policy)
    limits = thresholds or replace(PRESETS[PoolKind.FLEET], controller_gone_after=policy.controller_gone_after)
    made = await store.pools.create(pool(name, PoolKind.FLEET, limits, **policy_to_keep(policy)))
    await store.events.append(made.pool_id, [start(expected_workers=policy.workers)])
    return made


async def set_policy(store: Store, pool_id: PoolId, policy: FleetPolicy, thresholds: Thresholds | None = None) -> PoolRow:
    """What the next beat will decide by. Raises NotFound, InvalidSettings."""
    kept = await store.pools.get(pool_id)
    await check_policy(store, kept, policy)
    return await keep_policy(store, kept, policy, thresholds)


def check_new(store: Store, policy: FleetPolicy) -> None:
    """Raise InvalidSettings for a policy that no pool of this store must get."""
    check_price(policy)
    check_reach(store, policy)


async def check_policy(store: Store, home: PoolRow, policy: FleetPolicy) -> None:
    """Raise InvalidSettings for a policy that this pool must not get."""
    check_new(store, policy)
    if changes_provider(home, policy):
        check_provider(home, policy, await store.workers.list_unreaped(home.pool_id))


async def keep_policy(
    store: Store,
    home: PoolRow,
    policy: FleetPolicy,
    thresholds: Thresholds | None = None,
    plan: Mapping[str, Any] | None = None,
) -> PoolRow:
    """Write a policy that was checked, and perhaps how its workers work; what else the pool has stays."""
    wanted = {**policy_to_keep(policy), **(plan or {})}
    limits = stay_limits(replace(home, thresholds=thresholds) if thresholds else home, policy) or thresholds
    if limits is None and home.policy == {**home.policy, **wanted} and wanted.keys() >= set(fleet_fields(home)):
        return home
    change = PoolChange(policy=wanted, dropped=fleet_fields(home), thresholds=limits)
    return await store.pools.change(home.pool_id, change)


def changes_provider(home: PoolRow, policy: FleetPolicy) -> bool:
    return bool(home.policy.get("provider", FleetPolicy().provider) != policy.provider)


def stay_limits(home: PoolRow, policy: FleetPolicy) -> Thresholds | None:
    """The pool's limits with a bound on how long its workers stay that nobody decides about; None: they have one that fits."""
    every = timedelta(seconds=float(home.policy.get("every_seconds", FleetPolicy().every.total_seconds())))
    was, absence = home.thresholds.controller_gone_after, policy.controller_gone_after
    follows = was > _NEVER or (home.is_scaled and was == max(FleetPolicy().controller_gone_after, every * 5))
    wanted = absence if follows else max(was, absence) if policy.every > every else was
    return None if wanted == was else replace(home.thresholds, controller_gone_after=wanted)


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """What of a policy is another: ``max_workers 10 → 5``."""
    usual = FleetPolicy.usual_json()
    was, now = {**usual, **before}, {**usual, **after}
    names = [name for name in now if name != "mode" and was.get(name) != now[name]]
    return tuple(f"{name.removesuffix('_seconds')} {_spelt(name, was.get(name))} → {_spelt(name, now[name])}" for name in names)


def overruled(home: PoolRow, environment: Mapping[str, str]) -> tuple[str, ...]:
    """What a beat with these variables would go by instead, or why it would be refused."""
    try:
        return differences(home.policy, heeded_policy(home, environment, {}).to_json())
    except InvalidSettings as exc:
        return (f"nothing, since it is refused: {exc}",)


def _spelt(name: str, value: Any) -> str:
    if value is None:
        return "none"
    return f"{value:g} s" if name.endswith("_seconds") and isinstance(value, int | float) else str(value)
