"""Which GPU types and data centres to ask, in which order, and what they refused of late."""

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
    """USD per hour of one GPU."""

    secure: float
    community: float


class Site(msgspec.Struct, frozen=True):
    """A data centre that has a GPU type."""

    id: str
    availability: str


class GpuType(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of a catalogue's entry that matter here."""

    id: str
    memory: int
    secure: bool
    community: bool
    price: Price
    availability: str = "NONE"
    data_centers: tuple[Site, ...] = ()

    def offer(self, cloud: Cloud) -> float | None:
        """What one costs there; None if there is none."""
        offered, price = (self.secure, self.price.secure) if cloud is Cloud.SECURE else (self.community, self.price.community)
        return price if offered and price > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPlace:
    """A GPU type in a data centre."""

    gpu: str
    cloud: Cloud
    data_center: str | None  #: None: wherever the provider likes

    def __str__(self) -> str:
        return f"{self.gpu} in {self.data_center or 'any data centre'} ({self.cloud})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A provider's no."""

    status: int
    detail: str
    cause: SpawnCause
    retry_after: timedelta | None = None

    @property
    def is_of_the_place(self) -> bool:
        """Whether another place may say yes."""
        return self.status in {400, 403}

    @property
    def is_for_want_of_stock(self) -> bool:
        """RunPod has no code for it: 400 says that, and also that the request breaks a rule."""
        return self.status == 400 and any(word in self.detail.lower() for word in _CAPACITY_WORDS)


def gpu_places(catalogue: Mapping[Cloud, Sequence[GpuType]], settings: RunPodSettings) -> Sequence[GpuPlace]:
    """Every place that has what is wanted and is not too dear: cheapest first, then the best stocked, then as wished."""
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
    """What a pod of them costs; None if it is not wanted, or too dear."""
    if (settings.gpu_types and gpu.id not in settings.gpu_types) or gpu.memory < settings.min_gpu_memory_gb:
        return None
    each = gpu.offer(cloud)
    total = None if each is None else each * settings.gpu_count
    return total if total is not None and total <= settings.max_price_per_hour + 1e-9 else None


def _sites(gpu: GpuType, settings: RunPodSettings) -> Iterator[Site]:
    """Where there is stock. A type in stock without a list of places may be put anywhere, unless a place is wished for."""
    if not gpu.data_centers and not settings.data_centers and gpu.availability in _STOCK:
        yield Site(id="", availability=gpu.availability)
    for site in gpu.data_centers:
        if site.availability in _STOCK and (not settings.data_centers or site.id in settings.data_centers):
            yield site


def _rank(wishes: Sequence[str], name: str) -> int:
    return wishes.index(name) if name in wishes else len(wishes)


class RefusalRecord(msgspec.Struct, frozen=True):
    """A refusal as it is written down, without the provider's words."""

    gpu: str
    cloud: Cloud
    data_center: str | None
    until: datetime
    status: int
    full: bool  #: for want of stock

    @property
    def place(self) -> GpuPlace:
        return GpuPlace(gpu=self.gpu, cloud=self.cloud, data_center=self.data_center)

    @property
    def refusal(self) -> Refusal:
        """What was meant; HTTP's own words are not known any more."""
        detail = f"HTTP {self.status}, a while ago: {'out of stock' if self.full else 'refused'}"
        cause = SpawnCause.AUTH if self.status == 403 else SpawnCause.BAD_REQUEST
        return Refusal(status=self.status, detail=detail, cause=cause)


class Refusals:
    """What was refused of late, so that it is not asked for again at once; with a ledger, by the next process neither."""

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
            self._ledger.write([_written(self._ledger, *kept) for kept in self._until.items() if kept[1][0] > now])

    def forget(self) -> None:
        """Whatever was refused may be asked for again."""
        self._until = {}
        if self._ledger is not None:
            self._ledger.write([])

    def open(self, wanted: Sequence[GpuPlace], now: timedelta) -> Sequence[GpuPlace]:
        """Those of the places that have not refused of late."""
        self._until = {place: kept for place, kept in self._until.items() if kept[0] > now}
        return [place for place in wanted if place not in self._until]

    def remembered(self, wanted: Sequence[GpuPlace]) -> Sequence[Refusal]:
        return [self._until[place][1] for place in wanted if place in self._until]

    def wait(self, wanted: Sequence[GpuPlace], now: timedelta) -> timedelta | None:
        """How long until one of them may be asked; None if one may be now."""
        if any(place not in self._until for place in wanted):
            return None
        return min((self._until[place][0] - now for place in wanted), default=None)


def _written(ledger: RefusalFile[RefusalRecord], place: GpuPlace, kept: tuple[timedelta, Refusal]) -> RefusalRecord:
    until, refusal = kept
    return RefusalRecord(
        gpu=place.gpu,
        cloud=place.cloud,
        data_center=place.data_center,
        until=ledger.moment(until),
        status=refusal.status,
        full=refusal.is_for_want_of_stock,
    )


class Failed(msgspec.Struct, frozen=True):
    """A creation that failed, as it is written down."""

    pool_id: str
    at: datetime


class CreationBackoff:
    """How often creations have failed of late: after so many the provider is left alone, whatever places there are."""

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
        """How long until it may be asked again for this pool; None: it may be now."""
        late = self._failed[pool_id] = [at for at in self._failed.get(pool_id, ()) if now - at < self._within]
        return late[-self._most] + self._within - now if len(late) >= self._most else None

    def failed(self, pool_id: str, now: timedelta) -> None:
        self._failed.setdefault(pool_id, []).append(now)
        self._keep(now)

    def succeeded(self, pool_id: str) -> None:
        """One success forgives all."""
        if self._failed.pop(pool_id, None):
            self._keep(None)

    def _keep(self, now: timedelta | None) -> None:
        """Write down what still counts, oldest first."""
        if self._ledger is None:
            return
        late = [
            (at, pool_id) for pool_id, each in self._failed.items() for at in each if now is None or now - at < self._within
        ]
        self._ledger.write([Failed(pool_id=pool_id, at=self._ledger.moment(at)) for at, pool_id in sorted(late)])


def remembered_refusals(settings: RunPodSettings, clock: Clock, folder: Path | None, asked_with: str = "") -> Refusals:
    """With what earlier processes of this folder were refused when they asked with the same key and settings."""
    ledger = RefusalFile(folder, "refused", RefusalRecord, settings, clock, asked_with) if folder else None
    return Refusals(settings.refused_for, clock.elapsed(), ledger)


def remembered_patience(settings: RunPodSettings, clock: Clock, folder: Path | None, asked_with: str = "") -> CreationBackoff:
    ledger = RefusalFile(folder, "failed", Failed, settings, clock, asked_with) if folder else None
    return CreationBackoff(settings.tries_per_spawn, settings.refused_for, clock.elapsed(), ledger)


def verdict(who: str, refusals: Sequence[Refusal], wait: timedelta | None) -> SpawnFailed:
    """What it means that every place said no.

    RunPod has no code for "no capacity": 400 says that, and also that the request breaks a rule, which it then does everywhere.
    """
    if not refusals:
        return SpawnFailed(
            f"{who}: expected a GPU type in stock within the price ceiling, the catalogue has none; "
            "raise the ceiling, or allow more types and data centres",
            cause=SpawnCause.NO_CAPACITY,
        )
    last = next((each for each in reversed(refusals) if each.status == 400), refusals[-1])
    return SpawnFailed(
        f"{who}: {len(refusals)} places refused, one with: {last.detail}", cause=_cause(refusals), retry_after=wait
    )


def _cause(refusals: Sequence[Refusal]) -> SpawnCause:
    if all(refusal.status == 403 for refusal in refusals):
        return SpawnCause.AUTH
    full = any(refusal.is_for_want_of_stock for refusal in refusals)
    return SpawnCause.NO_CAPACITY if full else SpawnCause.BAD_REQUEST
