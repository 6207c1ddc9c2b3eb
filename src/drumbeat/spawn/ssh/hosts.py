"""The hosts of an SSH spawner: a connection to each, backoff if a host is down, and which workers it is known to run."""

import asyncio
import logging
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from drumbeat.core.clock import Clock
from drumbeat.core.errors import SpawnCause, Unanswered
from drumbeat.core.worker import Worker, WorkerStatus
from drumbeat.spawn.interface import Instance, InstanceState, SilentPlace
from drumbeat.spawn.names import Name
from drumbeat.spawn.ssh.session import AgentRefused, AgentSession, Answer
from drumbeat.spawn.ssh.settings import SshHost, SshSettings

log = logging.getLogger(__name__)

HOST = "host"  #: key in an instance's and a row's ``meta``: the name of the host
_FIRST_BACKOFF = timedelta(seconds=1)
_CLOCK_TOLERANCE = timedelta(seconds=1)


class LostAnswer(Unanswered):
    """A request was sent, and no answer came, so the host might have carried it out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostView:
    """A host's answer: this store's workers there, and how many slots the workers of all stores take."""

    host: "ConnectedHost"
    instances: Sequence[Instance]
    taken: int

    @property
    def free(self) -> int:
        return max(self.host.settings.slots - self.taken, 0)

    def find(self, name: Name) -> Instance | None:
        """Return the worker's pending or running instance on this host; None if it has none."""
        found = (one for one in self.instances if (one.pool_id, one.worker_id) == name)
        return next((one for one in found if one.state is not InstanceState.EXITED), None)

    def ended(self, name: Name) -> Sequence[Instance]:
        """Return the worker's ended instances on this host."""
        found = (one for one in self.instances if (one.pool_id, one.worker_id) == name)
        return [one for one in found if one.state is InstanceState.EXITED]


class ConnectedHost:
    """One host. Connects with the first request, and again after a lost connection; waits longer after each failed login."""

    def __init__(self, settings: SshHost, common: SshSettings, scope: str, clock: Clock) -> None:
        self.settings = settings
        self._common, self._scope, self._clock = common, scope, clock
        self._session: AgentSession | None = None
        self._connecting = asyncio.Lock()
        self._down: Unanswered | None = None  #: why the last login failed
        self._backoff = _FIRST_BACKOFF
        self._retry_at = timedelta()
        self._clock_offset = timedelta()  #: how far the host's clock is ahead of this machine's
        self._seen: set[Name] | None = None  #: the workers in the host's last answer; None: it never answered
        self._damaged: Set[str] = frozenset()  #: what the host's last answer said about damaged run directories
        self._sent: dict[Name, timedelta] = {}  #: starts sent to the host, and how long its answers may still lack them

    def may_hold(self, name: Name, *, is_first: bool = False, is_found: bool = False) -> bool:
        """Whether the worker might be on this host, by the host's last answer and the starts sent to it since.

        A host that has never answered might have the worker, unless ``is_first`` (the worker was never started before) or
        ``is_found`` (another host has it).
        """
        if self._seen is None and not is_first and not is_found:
            return True
        return name in (self._seen or ()) or name in self._sent

    def may_hold_any_of(self, pool_id: str) -> bool:
        """Whether workers of the pool might be on this host."""
        return self._seen is None or any(known == pool_id for known, _ in (*self._seen, *self._sent))

    def silent_place(self, engine: str, error: Unanswered) -> SilentPlace:
        """Return this host, which did not answer, as a ``SilentPlace``: the reason, and which workers might be there."""
        is_down = error.cause is SpawnCause.TRANSIENT
        return SilentPlace(
            name=self.settings.name, error=error, may_hold=lambda row: self._may_hold_row(row, engine), is_down=is_down
        )

    def _may_hold_row(self, row: Worker, engine: str) -> bool:
        """Whether the worker with this row might be on this host. Once a worker has joined, its row names its host."""
        name, place = (row.pool_id, row.worker_id), row.meta.get(HOST)
        if row.engine and engine not in row.engine.split(","):
            return False
        if place is None or row.status is WorkerStatus.SPAWNING:
            return self.may_hold(name)
        return bool(place == self.settings.name) or self.may_hold(name, is_found=True)

    def note_start(self, name: Name) -> timedelta | None:
        """Note that a request to start this worker is being sent to the host. Returns the time until which an earlier request
        may still take effect, which ``note_not_started`` needs; None if there was no earlier request."""
        earlier = self._sent.get(name)
        self._sent[name] = self._clock.elapsed() + self._common.settle
        return earlier

    def note_not_started(self, name: Name, earlier: timedelta | None) -> None:
        """Undo ``note_start``, because the request was not sent, or was refused. The note of the ``earlier`` start is kept."""
        if earlier is None:
            self._sent.pop(name, None)
        else:
            self._sent[name] = earlier

    async def look(self) -> HostView:
        """Read which workers of this store are on the host, and how many slots are taken there. Raises Unanswered, also if the
        agent cannot list them: this host must not keep the workers of other hosts from being listed."""
        try:
            answer = await self.ask({"do": "list"})
        except AgentRefused as exc:
            raise Unanswered(f"{exc}; its workers cannot be listed", cause=SpawnCause.BAD_REQUEST) from exc
        self._note_clock(answer["time"])
        instances = [self.instance(each) for each in answer["instances"]]
        self._seen = {(one.pool_id, one.worker_id) for one in instances}
        self._sent = {name: until for name, until in self._sent.items() if self._clock.elapsed() < until}
        self._report_damaged(answer["damaged"])
        return HostView(host=self, instances=instances, taken=answer["taken"])

    def _report_damaged(self, problems: Sequence[str]) -> None:
        """Log a warning for each damaged run directory on the host, once as long as it stays damaged."""
        for problem in problems:
            if problem not in self._damaged:
                log.warning("%s: a worker's files are damaged: %s", self.settings.place, problem)
        self._damaged = set(problems)

    async def ask(self, request: Mapping[str, Any], *, at_once: bool = False) -> Answer:
        """Send a request to the host's agent. ``at_once``: try to log in even if the host was down a moment ago.

        Raises LostAnswer if the request was sent but not answered, Unanswered if it was not sent, AgentRefused.
        """
        session = await self._opened(at_once)
        try:
            return await session.ask(request, self._common.timeout.total_seconds())
        except TimeoutError as exc:
            seconds = self._common.timeout.total_seconds()
            raise LostAnswer(f"{self.settings.place}: no answer within {seconds:g} s; check the host and the network") from exc
        except ConnectionError as exc:
            raise LostAnswer(f"{self.settings.place}: {exc}; trying again with the next request") from exc
        except AgentRefused as exc:
            raise AgentRefused(exc.kind, f"{self.settings.place}: {exc}") from exc

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def instance(self, told: Mapping[str, Any]) -> Instance:
        """Convert the agent's description of a worker to an Instance. Corrects its start time if the host's clock is wrong."""
        started_at = datetime.fromtimestamp(told["time"], UTC) - self._clock_offset
        return Instance(
            pool_id=told["pool"],
            worker_id=told["worker"],
            ref=f"{self.settings.name}:{told['run']}",
            state=InstanceState(told["state"]),
            started_at=None if told["state"] == "pending" else started_at,
            exit_code=told["code"],
            price_per_hour=self.settings.price_per_hour,
            meta={HOST: self.settings.name, "pid": told["pid"], "labels": dict(self.settings.labels)},
        )

    def _note_clock(self, told: float) -> None:
        """Update the offset of the host's clock if it has changed by a second or more; less can be the network's delay."""
        offset = datetime.fromtimestamp(told, UTC) - self._clock.now()
        if abs(offset - self._clock_offset) >= _CLOCK_TOLERANCE:
            self._clock_offset = offset if abs(offset) >= _CLOCK_TOLERANCE else timedelta()

    async def _opened(self, at_once: bool) -> AgentSession:
        async with self._connecting:
            if self._session is not None and self._session.is_open:
                return self._session
            if self._session is not None:
                await self.close()
            if self._down is not None and not at_once and self._clock.elapsed() < self._retry_at:
                raise Unanswered(str(self._down), cause=self._down.cause) from self._down
            began = self._clock.elapsed()
            try:
                self._session = await AgentSession.open(self.settings, self._common, self._scope)
            except Unanswered as exc:
                now = self._clock.elapsed()
                self._down, self._retry_at = exc, now + max(self._backoff, now - began)
                permanent = exc.cause in {SpawnCause.AUTH, SpawnCause.BAD_REQUEST}
                self._backoff = min(self._backoff * (4 if permanent else 2), self._common.max_backoff)
                raise
            self._down, self._backoff = None, _FIRST_BACKOFF
            return self._session


@dataclass(frozen=True, slots=True, kw_only=True)
class HostViews:
    """The answers of the hosts that answered, and why the other hosts did not answer."""

    seen: Sequence[HostView]
    unanswered: Sequence[tuple[ConnectedHost, Unanswered]]

    @classmethod
    async def of(cls, hosts: Sequence[ConnectedHost]) -> "HostViews":
        """Read from all hosts at the same time which workers they have and how many slots are taken."""
        answers = await asyncio.gather(*(host.look() for host in hosts), return_exceptions=True)
        seen, unanswered = [], []
        for host, answer in zip(hosts, answers, strict=True):
            if isinstance(answer, HostView):
                seen.append(answer)
            elif isinstance(answer, Unanswered):
                unanswered.append((host, answer))
            elif answer is not None:
                raise answer
        return cls(seen=seen, unanswered=unanswered)

    def candidates(self, name: Name, chosen: Sequence[SshHost]) -> Sequence[HostView]:
        """Return the hosts among ``chosen`` with a free slot, best first.

        A host that might be starting the worker comes first, then the cheapest, then the one with the most free slots.
        """
        order = {host.name: n for n, host in enumerate(chosen)}
        free = [view for view in self.seen if view.free > 0 and view.host.settings.name in order]
        return sorted(
            free,
            key=lambda view: (
                not view.host.may_hold(name),
                view.host.settings.price_per_hour,
                -view.free,
                order[view.host.settings.name],
            ),
        )
