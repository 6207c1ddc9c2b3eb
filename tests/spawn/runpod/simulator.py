"""RunPod's API v2 on this machine: pods that are rows, with stock, prices and a meter, over HTTP or without."""

import itertools
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import ceil
from typing import Any, TypeVar
from urllib.parse import parse_qs, unquote

from drumbeat.core.clock import Clock
from spawn.runpod.faults import Answers, ArrivesLate, Delays, Duplicates, Ending, Fault, Invents, KeepsOnDelete, Omits
from spawn.runpod.machines import ACTIONS, Card, SimPod, shown_volume
from spawn.runpod.routes import ROUTES, Route
from spawn.runpod.schema import OpenApi, find_schema
from spawn.runpod.wire import Answer

KEY = "rpa_0SECRET0KEY0OF0THE0SIMULATOR"
NO_STOCK = "There are no longer any instances available with the requested specifications. Please refresh and try again."
_TITLES = {400: "Bad Request", 401: "Unauthorized", 402: "Payment Required", 404: "Not Found", 422: "Unprocessable Entity"}

F = TypeVar("F", bound=Fault)


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """One thing that was asked."""

    operation: str
    about: str  #: the pod's name or id, or the volume's id, as far as the call tells
    at: datetime
    query: str = ""
    body: Any = None


@dataclass(slots=True)
class RunPodSimulator:
    """One account. Reach it by ``SimulatedWire(simulator)`` or ``served(simulator)``, see wire.py.

    Append to ``faults`` what shall go wrong; ``calls`` holds all that was asked, ``violations`` what broke the schema; without
    the schema's file nothing is checked. ``balance`` is what the account may spend; the meter forgets no pod.
    """

    clock: Clock
    cards: Sequence[Card] = (Card(id="RTX 4090"),)
    stock: dict[tuple[str, str, str], int] = field(default_factory=lambda: {("RTX 4090", "SECURE", "EU-1"): 100})
    starts_in: timedelta = timedelta(seconds=30)
    balance: float = 1000.0
    key: str = KEY
    schema: OpenApi | None = field(default_factory=find_schema)
    rate_limited_until: datetime | None = None
    faults: list[Fault] = field(default_factory=list)
    calls: list[Called] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    pods: list[SimPod] = field(default_factory=list)
    volumes: dict[str, int] = field(default_factory=dict)  #: the size of each network volume in GB
    _ids: "itertools.count[int]" = field(default_factory=itertools.count)

    def alive(self) -> Sequence[SimPod]:
        """Those that are billed now, whatever lists say."""
        return [pod for pod in self.pods if pod.is_billed()]

    def alive_names(self) -> Counter[str]:
        return Counter(pod.name for pod in self.alive())

    def spent(self) -> float:
        return sum(pod.billed(self.clock.now()) for pod in self.pods)

    def burn(self) -> float:
        """USD per hour now."""
        return sum(pod.price for pod in self.alive())

    def asked(self, operation: str) -> Sequence[Called]:
        return [call for call in self.calls if call.operation == operation]

    async def answer(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Answer | None:
        """None: the connection breaks."""
        path, _, query = target.partition("?")
        route = next((each for each in ROUTES if each.method == method and re.fullmatch(each.pattern, path)), None)
        if route is None:
            self.violations.append(f"{method} {path}: no such operation here")
            return _problem(404, "no such route")
        call = self._record(route, path, query, body)
        if headers.get("authorization") != f"Bearer {self.key}":
            return _problem(401, "invalid bearer token")
        if delay := self._take(Delays, call):
            await self.clock.sleep(delay.by)
        return self._refusal(route, call, body) or self._fated(route, call)

    def _refusal(self, route: Route, call: Called, body: bytes) -> Answer | None:
        if self.rate_limited_until is not None and (left := self.rate_limited_until - self.clock.now()) > timedelta():
            wait = (("Retry-After", str(ceil(left.total_seconds()))),)
            return _problem(429, "rate limit exceeded for the minute window", wait)
        if self.schema is None:
            return None
        wrong = [*self.schema.check_request(route.method, route.template, call.query, body)]
        self.violations += [f"{call.operation}: {each}" for each in wrong]
        return _problem(422, "Request validation failed.", errors=wrong) if wrong else None

    def _fated(self, route: Route, call: Called) -> Answer | None:
        """What is done and what is answered are two things."""
        ending = self._take(Ending, call)
        answer = self._done(route, call) if ending is None or ending.done else None
        if isinstance(ending, Answers):
            told = _problem(ending.status, ending.detail, ending.headers)
            return told if ending.body is None else replace(told, body=ending.body)
        return answer if ending is None else None

    def _done(self, route: Route, call: Called) -> Answer:
        answer = self._do(call)
        wrong = [*self.schema.check_answer(route.method, route.template, answer.status, answer.body)] if self.schema else []
        assert not wrong, f"the simulator's own answer to {call.operation}: {wrong}"
        return answer

    def _do(self, call: Called) -> Answer:
        if call.operation == "createPod":
            return self._create(call)
        if call.operation == "listPods":
            return self._list(call)
        if call.operation == "listGpuTypes":
            return self._catalogue(parse_qs(call.query))
        if call.operation in {"getNetworkVolume", "updateNetworkVolume"}:
            return self._volume(call)
        pod = next((pod for pod in self.pods if pod.id == call.about and pod.deleted_at is None), None)
        if pod is None:
            return _problem(404, "pod not found")
        if call.operation == "getPod":
            return _json(200, pod.shown(self.clock.now()))
        if call.operation == "deletePod":
            return self._delete(call, pod)
        return self._act(pod, call.body["action"])

    def _create(self, call: Called) -> Answer:
        asked = call.body
        if refusal := self._breaks_a_rule(asked):
            return _problem(400, refusal)
        if self.spent() >= self.balance:
            return _problem(402, "Insufficient balance.")
        place = self._placed(asked)
        if place is None:
            return _problem(400, NO_STOCK)
        late = self._take(ArrivesLate, call)
        pods = [
            self._add(asked, place, late.by if late else timedelta()) for _ in range(2 if self._take(Duplicates, call) else 1)
        ]
        return _json(201, pods[0].shown(self.clock.now()))

    def _breaks_a_rule(self, asked: Mapping[str, Any]) -> str | None:
        if ("gpu" in asked) == ("cpu" in asked) or "gpu" not in asked:
            return "exactly one of gpu or cpu must be set"
        if len(asked.get("mounts", {})) > 1:
            return "mounts.persistent and mounts.network are mutually exclusive"
        return None if any(card.id == asked["gpu"]["id"] for card in self.cards) else "unknown GPU type"

    def _placed(self, asked: Mapping[str, Any]) -> tuple[str, str, str] | None:
        wanted, count = asked.get("dataCenterIds") or [], int(asked["gpu"].get("count", 1))
        kind = (asked["gpu"]["id"], asked.get("cloud", "SECURE"))
        free = [place for place, left in self.stock.items() if place[:2] == kind and left >= count]
        return next((place for place in free if not wanted or place[2] in wanted), None)

    def _add(self, asked: Mapping[str, Any], place: tuple[str, str, str], hidden: timedelta) -> SimPod:
        card = next(card for card in self.cards if card.id == place[0])
        count, now = int(asked["gpu"].get("count", 1)), self.clock.now()
        pod = SimPod(
            id=f"pod{next(self._ids)}",
            asked=asked,
            place=place,
            price=count * (card.secure if place[1] == "SECURE" else card.community),
            created_at=now,
            starts_in=self.starts_in,
            shown_at=now + hidden,
        )
        self.stock[place] -= count
        self.pods.append(pod)
        return pod

    def _list(self, call: Called) -> Answer:
        now = self.clock.now()
        shown = [pod.shown(now) for pod in self.pods if pod.deleted_at is None and pod.shown_at <= now]
        if omits := self._take(Omits, call):
            shown = [pod for pod in shown if omits.names is not None and not pod["name"].endswith(tuple(omits.names))]
        invented = self._take(Invents, call)
        ghosts = [self._ghost(name).shown(now) for name in (invented.names if invented else ())]
        return _json(200, {"pods": [*shown, *ghosts]})

    def _ghost(self, name: str) -> SimPod:
        asked = {"name": name, "gpu": {"id": self.cards[0].id}}
        place, now = (self.cards[0].id, "SECURE", "EU-1"), self.clock.now()
        return SimPod(
            id=f"ghost{next(self._ids)}",
            asked=asked,
            place=place,
            price=1.0,
            created_at=now,
            starts_in=timedelta(),
            shown_at=now,
        )

    def _delete(self, call: Called, pod: SimPod) -> Answer:
        if not self._take(KeepsOnDelete, call):
            self._free(pod)
            pod.deleted_at = self.clock.now()
        return Answer(204)

    def _act(self, pod: SimPod, action: str) -> Answer:
        now = self.clock.now()
        if action not in ACTIONS[pod.status(now)]:
            return _problem(409, f"{action} is not valid for a pod that is {pod.status(now)}")
        if action == "stop":
            self._free(pod)
            pod.stopped_at = now
        return _json(200, pod.shown(now))

    def _volume(self, call: Called) -> Answer:
        """Shown; with a body, given a size before: never a smaller one."""
        size, wanted = self.volumes.get(call.about), (call.body or {}).get("size")
        if size is None:
            return _problem(404, "network volume not found")
        if wanted is not None and wanted < size:
            return _problem(400, "network volume size can only be increased")
        self.volumes[call.about] = wanted or size
        return _json(200, shown_volume(call.about, self.volumes[call.about]))

    def _free(self, pod: SimPod) -> None:
        if pod.is_billed():
            self.stock[pod.place] += int(pod.asked["gpu"].get("count", 1))

    def _catalogue(self, query: Mapping[str, Sequence[str]]) -> Answer:
        if ("include" in query) != ("product" in query):
            return _problem(400, "include=AVAILABILITY requires product")
        cloud, count = query.get("cloud", ["SECURE"])[0], int(query.get("count", ["1"])[0])
        return _json(200, {"gpus": [self._entry(card, cloud, count) for card in self.cards]})

    def _entry(self, card: Card, cloud: str, count: int) -> Mapping[str, Any]:
        free = {place[2]: left // count for place, left in self.stock.items() if place[:2] == (card.id, cloud)}
        centers = [{"id": name, "name": name, "availability": _level(left)} for name, left in free.items()]
        return {
            "id": card.id,
            "name": card.id,
            "pool": None,
            "manufacturer": "NVIDIA",
            "memory": card.memory,
            "secure": card.secure > 0,
            "community": card.community > 0,
            "price": {"secure": card.secure, "community": card.community},
            "maxCount": {"secure": 8, "community": 8},
            "availability": _level(sum(free.values())),
            **({"dataCenters": centers} if any(free.values()) else {}),
        }

    def _record(self, route: Route, path: str, query: str, body: bytes) -> Called:
        try:
            asked = json.loads(body) if body else None
        except ValueError:
            asked = None
        found = re.fullmatch(route.pattern, path)
        pod_id = unquote(found.group(1)) if found and found.groups() else ""
        about = pod_id or (asked.get("name", "") if isinstance(asked, dict) else "")
        call = Called(operation=route.operation, about=about, at=self.clock.now(), query=query, body=asked)
        self.calls.append(call)
        return call

    def _take(self, kind: type[F], call: Called) -> F | None:
        """The first fault of this kind that befalls this call, used up once."""
        for index, fault in enumerate(self.faults):
            meant = fault.operation in {None, call.operation} and (fault.about is None or call.about.endswith(fault.about))
            if isinstance(fault, kind) and meant:
                self.faults[index : index + 1] = [replace(fault, times=fault.times - 1)] if fault.times > 1 else []
                return fault
        return None


def _problem(status: int, detail: str, headers: tuple[tuple[str, str], ...] = (), errors: Sequence[str] = ()) -> Answer:
    problem = {"title": _TITLES.get(status, "Error"), "status": status, "detail": detail}
    return replace(_json(status, {**problem, "errors": list(errors)} if errors else problem), headers=headers)


def _json(status: int, body: Mapping[str, Any]) -> Answer:
    return Answer(status, json.dumps(body).encode())


def _level(left: int) -> str:
    return next(level for least, level in ((10, "HIGH"), (3, "MEDIUM"), (1, "LOW"), (0, "NONE")) if max(left, 0) >= least)
