"""Chooses where to request a pod: by price, stock and recent refusals. A place is a GPU type in a data centre."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from drumbeat.core.clock import Clock
from drumbeat.core.errors import SpawnCause, SpawnFailed
from drumbeat.spawn.runpod.ledger import RefusalFile
from drumbeat.spawn.runpod.settings import Cloud, RunPodSettings

_STOCK: Mapping[str, int] = {"HIGH": 0, "MEDIUM": 1, "LOW": 2}
_CAPACITY_WORDS = (
    "no longer any",
    "capacity",
    "no instances",
    "not available",
    "unavailable",
    "out of stock",
    "could not be placed",
)


class Price(msgspec.Struct, frozen=True):
    """The price of one GPU in RunPod's two clouds, in USD per hour."""

    secure: float
    community: float


class Site(msgspec.Struct, frozen=True):
    """A data centre that offers a GPU type, and how well the type is in stock there (HIGH, MEDIUM, LOW …)."""

    id: str
    availability: str


class GpuType(msgspec.Struct, frozen=True, rename="camel"):
    """A GPU type in RunPod's catalogue: only the fields that are used here."""

    id: str
    memory: int
    secure: bool
    community: bool
    price: Price
    availability: str = "NONE"
    data_centers: tuple[Site, ...] = ()

    def offer(self, cloud: Cloud) -> float | None:
        """Return the price of one GPU of this type in a cloud; None if it is not offered there."""
        offered, price = (self.secure, self.price.secure) if cloud is Cloud.SECURE else (self.community, self.price.community)
        return price if offered and price > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPlace:
    """A place where a pod can be requested: a GPU type in a data centre."""

    gpu: str
    cloud: Cloud
    data_center: str | None  #: None: any data centre

    def __str__(self) -> str:
        return f"{self.gpu} in {self.data_center or 'any data centre'} ({self.cloud})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """RunPod's refusal of a request for a pod: HTTP status, message and cause."""

    status: int
    detail: str
    cause: SpawnCause
    retry_after: timedelta | None = None

    @property
    def may_work_elsewhere(self) -> bool:
        """Whether another GPU type or data centre might accept the request."""
        return self.status in {400, 403}

    @property
    def is_out_of_stock(self) -> bool:
        """Whether RunPod refused for lack of stock. The message decides, as the status 400 can also mean a bad request."""
        return self.status == 400 and any(word in self.detail.lower() for word in _CAPACITY_WORDS)


def gpu_places(catalogue: Mapping[Cloud, Sequence[GpuType]], settings: RunPodSettings) -> Sequence[GpuPlace]:
    """Return all places with a suitable GPU within the maximum price, by price, then stock, then the order in the settings."""
    offers = [
        (
            (price, _STOCK[site.availability], _rank(settings.gpu_types, gpu.id), _rank(settings.data_centers, site.id)),
            cloud,
            gpu,
            site,
        )
        for cloud, gpus in catalogue.items()
        for gpu in gpus
        if (price := _price(gpu, cloud, settings)) is not None
        for site in _sites(gpu, settings)
    ]
    offers.sort(key=lambda offer: (offer[0], offer[2].id, offer[3].id))
    return [GpuPlace(gpu=gpu.id, cloud=cloud, data_center=site.id or None) for _, cloud, gpu, site in offers]


def _price(gpu: GpuType, cloud: Cloud, settings: RunPodSettings) -> float | None:
    """Return the price of a pod per hour; None if the GPU type does not match the settings or is too expensive."""
    if (settings.gpu_types and gpu.id not in settings.gpu_types) or gpu.memory < settings.min_gpu_memory_gb:
        return None
    each = gpu.offer(cloud)
    total = None if each is None else each * settings.gpu_count
    return total if total is not None and total <= settings.max_price_per_hour + 1e-9 else None


def _sites(gpu: GpuType, settings: RunPodSettings) -> Iterator[Site]:
    """Return the allowed data centres that have the GPU type in stock.

    If RunPod lists no data centres for the type and the settings name none, returns one ``Site`` without id: any data centre.
    """
    if not gpu.data_centers and not settings.data_centers and gpu.availability in _STOCK:
        yield Site(id="", availability=gpu.availability)
    for site in gpu.data_centers:
        if site.availability in _STOCK and (not settings.data_centers or site.id in settings.data_centers):
            yield site


def _rank(preferred: Sequence[str], name: str) -> int:
    return preferred.index(name) if name in preferred else len(preferred)


class RefusalRecord(msgspec.Struct, frozen=True):
    """RunPod's refusal to create a pod at one place (GPU type and data centre), as stored in a file: without its message."""

    gpu: str
    cloud: Cloud
    data_center: str | None
    until: datetime
    status: int
    full: bool  #: whether the place was out of stock

    @property
    def place(self) -> GpuPlace:
        return GpuPlace(gpu=self.gpu, cloud=self.cloud, data_center=self.data_center)

    @property
    def refusal(self) -> Refusal:
        """The recorded refusal of RunPod to create a pod, as a ``Refusal``. A short text replaces RunPod's message."""
        detail = f"HTTP {self.status}, a while ago: {'out of stock' if self.full else 'refused'}"
        cause = SpawnCause.AUTH if self.status == 403 else SpawnCause.BAD_REQUEST
        return Refusal(status=self.status, detail=detail, cause=cause)


class Refusals:
    """Remembers at which places (GPU type and data centre) RunPod recently refused a pod, so as not to ask there too soon."""

    def __init__(
        self, kept_for: timedelta, now: timedelta = timedelta(), ledger: RefusalFile[RefusalRecord] | None = None
    ) -> None:
        self._kept_for = kept_for
        self._ledger = ledger
        self._until: dict[GpuPlace, tuple[timedelta, Refusal]] = {}
        if ledger is not None:
            found = [(ledger.elapsed(each.until), each) for each in ledger.read()]
            self._until = {each.place: (until, each.refusal) for until, each in found if now < until <= now + kept_for}

    def note(self, place: GpuPlace, refusal: Refusal, now: timedelta) -> None:
        self._until.pop(place, None)
        self._until[place] = now + self._kept_for, refusal
        if self._ledger is not None:
            self._ledger.write([_record(self._ledger, *entry) for entry in self._until.items() if entry[1][0] > now])

    def forget(self) -> None:
        """Forget all refusals of RunPod to create a pod, so that pods are requested at every place again."""
        self._until = {}
        if self._ledger is not None:
            self._ledger.write([])

    def open(self, places: Sequence[GpuPlace], now: timedelta) -> Sequence[GpuPlace]:
        """Return the places (GPU type and data centre) at which RunPod has not refused a pod recently."""
        self._until = {place: entry for place, entry in self._until.items() if entry[0] > now}
        return [place for place in places if place not in self._until]

    def remembered(self, places: Sequence[GpuPlace]) -> Sequence[Refusal]:
        return [self._until[place][1] for place in places if place in self._until]

    def wait(self, places: Sequence[GpuPlace], now: timedelta) -> timedelta | None:
        """Return how long until a pod can be requested at one of the places; None if that is possible now or there are none."""
        if any(place not in self._until for place in places):
            return None
        return min((self._until[place][0] - now for place in places), default=None)


def _record(ledger: RefusalFile[RefusalRecord], place: GpuPlace, entry: tuple[timedelta, Refusal]) -> RefusalRecord:
    until, refusal = entry
    return RefusalRecord(
        gpu=place.gpu,
        cloud=place.cloud,
        data_center=place.data_center,
        until=ledger.moment(until),
        status=refusal.status,
        full=refusal.is_out_of_stock,
    )


class Failed(msgspec.Struct, frozen=True):
    """A failed creation of a pod, as stored in a file."""

    pool_id: str
    at: datetime


class CreationBackoff:
    """Counts recent failed creations of pods, for each pool: after too many, no pod is requested for that pool for a while."""

    def __init__(
        self, most: int, within: timedelta, now: timedelta = timedelta(), ledger: RefusalFile[Failed] | None = None
    ) -> None:
        self._most = most
        self._within = within
        self._ledger = ledger
        self._failed: dict[str, list[timedelta]] = {}
        for at, pool_id in [(ledger.elapsed(each.at), each.pool_id) for each in ledger.read()] if ledger else ():
            if now - within < at <= now:
                self._failed.setdefault(pool_id, []).append(at)

    def wait(self, pool_id: str, now: timedelta) -> timedelta | None:
        """Return how long to wait until a pod can be requested for this pool; None if one can be requested now."""
        recent = self._failed[pool_id] = [at for at in self._failed.get(pool_id, ()) if now - at < self._within]
        return recent[-self._most] + self._within - now if len(recent) >= self._most else None

    def failed(self, pool_id: str, now: timedelta) -> None:
        self._failed.setdefault(pool_id, []).append(now)
        self._keep(now)

    def succeeded(self, pool_id: str) -> None:
        """Forget the failed attempts to create a pod for this pool, because one has succeeded."""
        if self._failed.pop(pool_id, None):
            self._keep(None)

    def _keep(self, now: timedelta | None) -> None:
        """Write the failed creations, oldest first, to the file that later processes read. Leaves out creations that no longer
        count at the time ``now``; None: writes all."""
        if self._ledger is None:
            return
        recent = [
            (at, pool_id) for pool_id, each in self._failed.items() for at in each if now is None or now - at < self._within
        ]
        self._ledger.write([Failed(pool_id=pool_id, at=self._ledger.moment(at)) for at, pool_id in sorted(recent)])


def remembered_refusals(settings: RunPodSettings, clock: Clock, folder: Path | None, asked_with: str = "") -> Refusals:
    """Return RunPod's recent refusals to create a pod, including those that earlier processes stored in the same folder."""
    ledger = RefusalFile(folder, "refused", RefusalRecord, settings, clock, asked_with) if folder else None
    return Refusals(settings.refused_for, clock.elapsed(), ledger)


def remembered_backoff(settings: RunPodSettings, clock: Clock, folder: Path | None, asked_with: str = "") -> CreationBackoff:
    ledger = RefusalFile(folder, "failed", Failed, settings, clock, asked_with) if folder else None
    return CreationBackoff(settings.tries_per_spawn, settings.refused_for, clock.elapsed(), ledger)


def all_refused(who: str, refusals: Sequence[Refusal], wait: timedelta | None) -> SpawnFailed:
    """Return the error for a worker whose pod was refused at every place, or for which there is no suitable place at all."""
    if not refusals:
        return SpawnFailed(
            f"{who}: expected a GPU type in stock within the maximum price, RunPod's catalogue has none; "
            "raise RUNPOD_MAX_PRICE_PER_HOUR, or allow more GPU types and data centres",
            cause=SpawnCause.NO_CAPACITY,
        )
    last = next((each for each in reversed(refusals) if each.status == 400), refusals[-1])
    return SpawnFailed(
        f"{who}: RunPod refused each of {len(refusals)} GPU types and data centres tried, one with: {last.detail}",
        cause=_cause(refusals),
        retry_after=wait,
    )


def _cause(refusals: Sequence[Refusal]) -> SpawnCause:
    if all(refusal.status == 403 for refusal in refusals):
        return SpawnCause.AUTH
    full = any(refusal.is_out_of_stock for refusal in refusals)
    return SpawnCause.NO_CAPACITY if full else SpawnCause.BAD_REQUEST
