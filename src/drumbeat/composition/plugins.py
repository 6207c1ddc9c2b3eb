"""Builds the plugins of pools from the settings: middleware, and the storage for large payloads and results."""

import logging
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from urllib.parse import unquote, urlsplit

from drumbeat.core.clock import Clock
from drumbeat.core.errors import InvalidInput, InvalidSettings, LargeValueError, StoreError
from drumbeat.extras import import_part
from drumbeat.pool.large.files import FilePlace
from drumbeat.pool.large.place import LargePlace
from drumbeat.pool.large.sweep import EVERY, LEASE, MIN_AGE, WITHIN, SweepResult as SweepResult, sweep
from drumbeat.pool.large.values import LargeValues, OnLoop
from drumbeat.pool.middleware import MiddlewareChain, load_middleware
from drumbeat.pool.paused_types import TypeFilter as TypeFilter, claimable_types as claimable_types
from drumbeat.pool.payload import as_json as as_json
from drumbeat.pool.plugins import NO_PLUGINS, PoolPlugins
from drumbeat.settings import Settings
from drumbeat.store import Store

log = logging.getLogger(__name__)


def open_plugins(
    settings: Settings, store: Store, clock: Clock, more: Sequence[object] = (), on_loop: OnLoop | None = None
) -> PoolPlugins:
    """Build the plugins: the middleware of the settings, then ``more``. ``on_loop`` runs a call of the store on the event loop
    that the store uses. Raises InvalidInput, InvalidSettings, MissingExtra."""
    members = [*load_middleware(settings.pool.middleware), *more]
    if not members and settings.pool.large is None:
        return NO_PLUGINS
    large = open_large_values(settings, store, clock, on_loop)
    return PoolPlugins(middleware=MiddlewareChain(members) if members else None, large=large)


def open_large_values(settings: Settings, store: Store, clock: Clock, on_loop: OnLoop | None = None) -> LargeValues | None:
    """Return the access to a store's large payloads and results; None if no storage for them is set.

    Raises InvalidSettings, MissingExtra."""
    if settings.pool.large is None:
        return None
    place = _open_place(settings.pool.large)
    return LargeValues(place=place, store=store, clock=clock, max_inline=settings.pool.max_inline, on_loop=on_loop)


def _open_place(url: str) -> LargePlace:
    if url.startswith("file://"):
        return FilePlace(Path(unquote(urlsplit(url).path)))
    place: LargePlace = import_part("pool.large.s3", "s3", "a place of large values on S3").S3Place(url)
    return place


async def sweep_large_values(values: LargeValues | None, owner: str) -> None:
    """Delete some large values that no job needs, unless another process has just done so. Errors are only logged."""
    if values is None:
        return
    try:
        lease = await values.store.leases.acquire(LEASE, owner, EVERY)
        if lease is not None and (await sweep(values, within=WITHIN)).last:
            await values.store.leases.release(lease)
    except (LargeValueError, StoreError) as exc:
        log.warning("failed to delete large values that no job needs: %s; retrying after a later beat", exc)


async def sweep_now(values: LargeValues | None, older_than: timedelta, *, dry_run: bool) -> SweepResult:
    """Delete all large values that no job needs and that are older than ``older_than``, or with ``dry_run`` only count them.
    Raises InvalidSettings; InvalidInput if the age is so low that the job of a value might not have been pushed yet."""
    if values is None:
        raise InvalidSettings(
            "expected the setting [pool] large (or DRUMBEAT_LARGE), got none: no large values are stored outside the store"
        )
    if older_than < MIN_AGE and not dry_run:
        raise InvalidInput(
            f"expected an age of at least {MIN_AGE.total_seconds() / 60:g} minutes, got {older_than.total_seconds():g} s: "
            "a younger value may belong to a job that is being pushed; give a higher age, or --dry-run to only count the values"
        )
    return await sweep(values, older_than, dry_run=dry_run)
