"""A client for the calls of Ray's Jobs API that the spawner needs."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, TypeVar
from urllib.parse import quote

import msgspec

from drumbeat.core.errors import MissingExtra, SpawnCause, Unanswered
from drumbeat.spawn.ray.jobs import RayJob
from drumbeat.spawn.ray.package import RayPackage
from drumbeat.spawn.ray.settings import RaySettings

try:
    import httpx
except ImportError as exc:
    raise MissingExtra("the Ray spawner", "ray") from exc

Transport = httpx.AsyncBaseTransport  #: sends HTTP requests; replaced in tests

OLDEST: Final = (2, 52)  #: the first version of Ray with tokens
_CONNECTIONS: Final = 16
_NEVER_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
_LOST_CONNECTION: Final = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)
_LONGEST_DETAIL: Final = 300

T = TypeVar("T")


class Submitted(Enum):
    """The result of submitting a job."""

    ACCEPTED = auto()
    EXISTS = auto()  #: there is a job with this submission id
    REFUSED = auto()  #: nothing was started
    UNKNOWN = auto()  #: no usable answer: the job might have been started


@dataclass(frozen=True, slots=True)
class SubmitAnswer:
    """The answer to a submission; ``why`` says why it was not accepted."""

    result: Submitted
    why: str = ""
    cause: SpawnCause = SpawnCause.TRANSIENT


class _Version(msgspec.Struct, frozen=True):
    ray_version: str


class _Logs(msgspec.Struct, frozen=True):
    logs: str


class _Stopped(msgspec.Struct, frozen=True):
    stopped: bool


class RayClient:
    """Calls Ray's Jobs API. Calls that are safe to repeat are repeated once if the connection was lost; a submission never is.

    Every method but ``submit`` raises Unanswered, whose message tells what is wrong: the network, the token or the address."""

    def __init__(self, settings: RaySettings, token: str | None, transport: Transport | None = None) -> None:
        self._settings = settings
        self._token = token
        self._http = httpx.AsyncClient(
            base_url=settings.address.rstrip("/"),
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=settings.timeout.total_seconds(),
            limits=httpx.Limits(max_connections=_CONNECTIONS),
            transport=transport,
        )
        self.version: tuple[int, int] | None = None  #: known after ``check_version``

    async def close(self) -> None:
        await self._http.aclose()

    async def check_version(self) -> None:
        """Raise Unanswered if the address is not a Ray dashboard, or its Ray is too old. A success is cached."""
        if self.version is not None:
            return
        found = self._read(await self._ask("GET", "/api/version"), _Version).ray_version
        numbers = re.match(r"(\d+)\.(\d+)", found)
        version = (int(numbers[1]), int(numbers[2])) if numbers else OLDEST  # a version built from source can lack numbers
        if version < OLDEST:
            raise Unanswered(
                f"{self._place} runs Ray {found}, expected {OLDEST[0]}.{OLDEST[1]} or newer; upgrade the cluster",
                cause=SpawnCause.BAD_REQUEST,
            )
        self.version = version

    async def jobs(self) -> Sequence[RayJob]:
        """Return all jobs of the cluster, including ended jobs and jobs that Drumbeat did not submit."""
        return self._read(await self._ask("GET", "/api/jobs/"), list[RayJob])

    async def find_job(self, submission_id: str) -> RayJob | None:
        """Return the job with this submission id; None if there is none."""
        answer = await self._ask("GET", _path(submission_id), accepted=404)
        return None if answer.status_code == 404 else self._read(answer, RayJob)

    async def upload(self, package: RayPackage) -> None:
        """Store a package in the cluster; harmless if it is there already."""
        await self._ask("PUT", f"/api/packages/gcs/{package.file_name}", content=package.content)

    async def submit(self, body: Mapping[str, Any]) -> SubmitAnswer:
        """Submit a job, without retries. Ray refuses a submission id that it has already accepted."""
        try:
            answer = await self._http.post("/api/jobs/", json=body)
        except _NEVER_SENT as exc:
            return SubmitAnswer(Submitted.REFUSED, self._unreachable(exc))
        except httpx.HTTPError as exc:
            return SubmitAnswer(Submitted.UNKNOWN, self._unreachable(exc))
        if answer.is_success:
            return SubmitAnswer(Submitted.ACCEPTED)
        if "already exists" in answer.text:
            return SubmitAnswer(Submitted.EXISTS, "a job with this submission id exists")
        refusal = self._refusal(answer)
        is_certain = answer.status_code < 500 or "No available agent" in answer.text
        return SubmitAnswer(Submitted.REFUSED if is_certain else Submitted.UNKNOWN, str(refusal), refusal.cause)

    async def stop(self, submission_id: str) -> bool:
        """Ask Ray to end a job. Returns False if the job does not run or does not exist."""
        answer = await self._ask("POST", f"{_path(submission_id)}/stop", accepted=404)
        return answer.status_code != 404 and self._read(answer, _Stopped).stopped

    async def delete(self, submission_id: str) -> None:
        """Delete the record of an ended job. Harmless if there is none."""
        await self._ask("DELETE", _path(submission_id), accepted=404)

    async def output(self, submission_id: str) -> str | None:
        """Return a job's whole output, including the lines that Ray wrote; None if there is no such job."""
        answer = await self._ask("GET", f"{_path(submission_id)}/logs", accepted=404)
        return None if answer.status_code == 404 else self._read(answer, _Logs).logs

    # Asking

    async def _ask(self, method: str, path: str, *, accepted: int = 200, **more: Any) -> httpx.Response:
        try:
            answer = await self._http.request(method, path, **more)
        except _LOST_CONNECTION:
            answer = await self._again(method, path, **more)
        except httpx.HTTPError as exc:
            raise Unanswered(self._unreachable(exc)) from exc
        if answer.is_success or answer.status_code == accepted:
            return answer
        raise self._refusal(answer)

    async def _again(self, method: str, path: str, **more: Any) -> httpx.Response:
        try:
            return await self._http.request(method, path, **more)
        except httpx.HTTPError as exc:
            raise Unanswered(self._unreachable(exc)) from exc

    def _unreachable(self, error: httpx.HTTPError) -> str:
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return (
            f"{self._place} did not answer: {said}; check that the head runs, and that its dashboard's port can be "
            "reached from here"
        )

    def _refusal(self, answer: httpx.Response) -> Unanswered:
        """Return an exception that explains an HTTP error status: which token, address or request is wrong."""
        status, variable = answer.status_code, self._settings.token_variable
        if status == 401 and not self._token:
            return Unanswered(
                f"{self._place} asks for a token (HTTP 401), got none; set the variable {variable}", cause=SpawnCause.AUTH
            )
        if status in {401, 403}:
            return Unanswered(
                f"{self._place} refuses the token in {variable} (HTTP {status}): it is wrong or has expired; "
                "set it to the cluster's current token",
                cause=SpawnCause.AUTH,
            )
        if status in {404, 405} or 300 <= status < 400:
            return self._no_ray(f"HTTP {status} to {answer.request.method} {answer.request.url.path}")
        detail = _last_line(answer.text)
        cause = SpawnCause.BAD_REQUEST if status < 500 else SpawnCause.TRANSIENT
        return Unanswered(f"{self._place} answered HTTP {status}: {detail}", cause=cause)

    def _no_ray(self, got: str) -> Unanswered:
        return Unanswered(
            f"expected a Ray dashboard at {self._settings.address}, got {got}; "
            "check the address (the dashboard's port is usually 8265)",
            cause=SpawnCause.BAD_REQUEST,
        )

    def _read(self, answer: httpx.Response, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(answer.content, type=kind)
        except msgspec.DecodeError as exc:
            raise self._no_ray(f"an answer to {answer.request.url.path} that is not Ray's ({exc})") from exc

    @property
    def _place(self) -> str:
        return f"Ray at {self._settings.address}"


def _path(submission_id: str) -> str:
    return f"/api/jobs/{quote(submission_id, safe='')}"


def _last_line(text: str) -> str:
    """Return the last line of a traceback, which says what went wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:_LONGEST_DETAIL] if lines else "no reason given"
