"""Which GPU types and data centres to ask, in which order, and what they refused of late."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import msgspec

from drumbeat.core.errors import SpawnCause, SpawnFailed
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
class Place:
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


def places(catalogue: Mapping[Cloud, Sequence[GpuType]], settings: RunPodSettings) -> Sequence[Place]:
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
    return [Place(gpu=gpu.id, cloud=cloud, data_center=site.id or None) for _, cloud, gpu, site in offers]


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


class Refusals:
    """What was refused of late, so that it is not asked for again at once."""

    def __init__(self, kept_for: timedelta) -> None:
        self._kept_for = kept_for
        self._until: dict[Place, tuple[timedelta, Refusal]] = {}

    def note(self, place: Place, refusal: Refusal, now: timedelta) -> None:
        self._until[place] = now + self._kept_for, refusal

    def open(self, wanted: Sequence[Place], now: timedelta) -> Sequence[Place]:
        """Those of the places that have not refused of late."""
        self._until = {place: kept for place, kept in self._until.items() if kept[0] > now}
        return [place for place in wanted if place not in self._until]

    def remembered(self, wanted: Sequence[Place]) -> Sequence[Refusal]:
        return [self._until[place][1] for place in wanted if place in self._until]

    def wait(self, wanted: Sequence[Place], now: timedelta) -> timedelta | None:
        """How long until one of them may be asked; None if one may be now."""
        if any(place not in self._until for place in wanted):
            return None
        return min((self._until[place][0] - now for place in wanted), default=None)


class Patience:
    """How often creations have failed of late: after so many the provider is left alone, whatever places there are."""

    def __init__(self, most: int, within: timedelta) -> None:
        self._most = most
        self._within = within
        self._failed: dict[str, list[timedelta]] = {}

    def wait(self, pool_id: str, now: timedelta) -> timedelta | None:
        """How long until it may be asked again for this pool; None: it may be now."""
        late = self._failed[pool_id] = [at for at in self._failed.get(pool_id, ()) if now - at < self._within]
        return late[-self._most] + self._within - now if len(late) >= self._most else None

    def failed(self, pool_id: str, now: timedelta) -> None:
        self._failed.setdefault(pool_id, []).append(now)

    def succeeded(self, pool_id: str) -> None:
        """One success forgives all."""
        self._failed.pop(pool_id, None)


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
    full = any(word in refusal.detail.lower() for refusal in refusals if refusal.status == 400 for word in _CAPACITY_WORDS)
    return SpawnCause.NO_CAPACITY if full else SpawnCause.BAD_REQUEST
