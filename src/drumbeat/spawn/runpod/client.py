"""A client for the calls of RunPod's REST API v2 that the spawner needs."""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from drumbeat.core.clock import Clock
from drumbeat.core.errors import MissingExtra, SpawnCause, SpawnError
from drumbeat.spawn.runpod.placement import GpuType, Refusal
from drumbeat.spawn.runpod.pods import Pod
from drumbeat.spawn.runpod.settings import Cloud, RunPodSettings

try:
    import httpx
except ImportError as exc:
    raise MissingExtra("the RunPod spawner", "runpod") from exc

log = logging.getLogger(__name__)

Transport = httpx.AsyncBaseTransport  #: sends HTTP requests; replaced in tests

_RETRY_PAUSES = (timedelta(milliseconds=500), timedelta(seconds=2))  #: pauses before the first and second retry
_LONGEST_PAUSE = timedelta(seconds=15)  #: a call is not retried if RunPod asks for a longer pause
_RETRY_WITHIN = timedelta(seconds=50)  #: most time for a call with its retries, so that it ends within a control beat
_CONNECTIONS = 8
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
_UNCERTAIN = frozenset({500, 502, 504})  #: HTTP errors after which the request may have been carried out
_SHORTEST_SECRET = 6

_CAUSES: Mapping[int, SpawnCause] = {
    400: SpawnCause.BAD_REQUEST,
    401: SpawnCause.AUTH,
    402: SpawnCause.NO_MONEY,
    403: SpawnCause.AUTH,
    404: SpawnCause.BAD_REQUEST,
    409: SpawnCause.BAD_REQUEST,
    422: SpawnCause.BAD_REQUEST,
    429: SpawnCause.RATE_LIMITED,
}

T = TypeVar("T")


class _Pods(msgspec.Struct, frozen=True):
    pods: tuple[Pod, ...]


class _Gpus(msgspec.Struct, frozen=True):
    gpus: tuple[GpuType, ...]


class _Problem(msgspec.Struct, frozen=True):
    """The body of an error response (RFC 9457)."""

    title: str = ""
    detail: str = ""
    errors: tuple[str, ...] = ()


class Volume(msgspec.Struct, frozen=True):
    """A network volume: only the fields that are used here."""

    id: str
    size: int  #: in GB


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """RunPod gave no usable answer, so it is unknown whether the pod was created."""

    why: str


class RunPodClient:
    """Calls RunPod's API. All calls are retried after temporary errors, except the creation of a pod."""

    def __init__(self, key: str, settings: RunPodSettings, clock: Clock, transport: Transport | None = None) -> None:
        self._key = key
        self._clock = clock
        self._timeout = settings.timeout
        self._http = httpx.AsyncClient(
            base_url=settings.base_url,
            headers={"Authorization": f"Bearer {key}"},
            timeout=settings.timeout.total_seconds(),
            limits=httpx.Limits(max_connections=_CONNECTIONS),
            transport=transport,
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def pods(self) -> Sequence[Pod]:
        """Return all pods of the account. Raises SpawnError, also for a partial list, because it could lack running pods."""
        answer = await self._ask("GET", "/v2/pods")
        body = self._read(answer, dict[str, Any])
        if more := [field for field, value in body.items() if value and re.search(r"next|cursor|page", field, re.IGNORECASE)]:
            raise SpawnError(f"RunPod: expected the whole list of pods, got a page ({', '.join(more)}); update Drumbeat")
        return self._read(answer, _Pods).pods

    async def find_pod(self, pod_id: str) -> Pod | None:
        """Return the pod with this id; None if it does not exist."""
        answer = await self._ask("GET", f"/v2/pods/{pod_id}", accepted={404})
        return None if answer.status_code == 404 else self._read(answer, Pod)

    async def create(self, body: Mapping[str, Any]) -> Pod | Refusal | NoAnswer:
        """Request a new pod, without retries, because a second request might create a second pod."""
        try:
            answer = await self._http.post("/v2/pods", json=body)
        except _NEVER_SENT as exc:
            return Refusal(status=0, detail=_error_text(exc), cause=SpawnCause.TRANSIENT)
        except httpx.HTTPError as exc:
            return NoAnswer(_error_text(exc))
        if answer.status_code in _UNCERTAIN:
            return NoAnswer(f"HTTP {answer.status_code}")
        if not answer.is_success:
            return self._refusal(answer, body.get("env", {}).values())
        try:
            return self._read(answer, Pod)
        except SpawnError as exc:
            return NoAnswer(str(exc))

    async def stop(self, pod_id: str) -> None:
        """Send SIGTERM to the pod's container. Harmless if the pod does not exist or cannot be stopped."""
        await self._ask("POST", f"/v2/pods/{pod_id}/action", json={"action": "stop"}, accepted={404, 409})

    async def delete(self, pod_id: str) -> None:
        """Delete the pod. Harmless if it does not exist."""
        await self._ask("DELETE", f"/v2/pods/{pod_id}", accepted={404})

    async def volume(self, volume_id: str) -> Volume:
        """Return a network volume. Raises SpawnError, also if it does not exist."""
        return self._read(await self._ask("GET", f"/v2/network-volumes/{quote(volume_id, safe='')}"), Volume)

    async def resize(self, volume_id: str, size: int) -> Volume:
        """Set the size of a network volume; safe to repeat. RunPod refuses to shrink one."""
        path = f"/v2/network-volumes/{quote(volume_id, safe='')}"
        return self._read(await self._ask("PATCH", path, json={"size": size}), Volume)

    async def gpus(self, cloud: Cloud, count: int) -> Sequence[GpuType]:
        """Return the GPU types of a cloud with prices, and with the stock for pods of ``count`` GPUs."""
        query = {"include": "AVAILABILITY", "product": "POD", "cloud": cloud.value, "count": str(count)}
        return self._read(await self._ask("GET", "/v2/catalog/gpus", params=query), _Gpus).gpus

    async def _ask(self, method: str, path: str, *, accepted: Iterable[int] = (), **more: Any) -> httpx.Response:
        """Make a call that is safe to repeat; temporary errors are retried. Raises SpawnError with the last cause."""
        began = self._clock.elapsed()
        for pause in (*_RETRY_PAUSES, None):
            try:
                return await self._once(method, path, frozenset(accepted), **more)
            except SpawnError as exc:
                wait = max(exc.retry_after or timedelta(), pause or timedelta())
                is_transient = exc.cause in {SpawnCause.TRANSIENT, SpawnCause.RATE_LIMITED}
                late = self._clock.elapsed() - began + wait + self._timeout > _RETRY_WITHIN
                if pause is None or not is_transient or wait > _LONGEST_PAUSE or late:
                    raise
                log.info("a call to RunPod failed: %s; retrying in %.1f s", exc, wait.total_seconds())
                await self._clock.sleep(wait)
        raise AssertionError("unreachable: the last try returns or raises")

    async def _once(self, method: str, path: str, accepted: frozenset[int], **more: Any) -> httpx.Response:
        try:
            answer = await self._http.request(method, path, **more)
        except httpx.HTTPError as exc:
            raise SpawnError(f"RunPod: {method} {path}: {_error_text(exc)}") from exc
        if answer.is_success or answer.status_code in accepted:
            return answer
        refusal = self._refusal(answer)
        raise SpawnError(f"RunPod: {method} {path}: {refusal.detail}", cause=refusal.cause, retry_after=refusal.retry_after)

    def _refusal(self, answer: httpx.Response, secrets: Iterable[str] = ()) -> Refusal:
        problem = _Problem()
        with suppress(msgspec.DecodeError):
            problem = msgspec.json.decode(answer.content, type=_Problem)
        words = [problem.detail or problem.title or "no reason given", *problem.errors]
        return Refusal(
            status=answer.status_code,
            detail=self._redacted(f"HTTP {answer.status_code}: {'; '.join(words)}", secrets),
            cause=_CAUSES.get(answer.status_code, SpawnCause.TRANSIENT),
            retry_after=_retry_after(answer.headers) if answer.status_code == 429 else None,
        )

    def _redacted(self, text: str, secrets: Iterable[str]) -> str:
        """Return the text without the API key and the values in ``secrets``, which RunPod might repeat in errors."""
        for secret in (self._key, *secrets):
            text = text.replace(secret, "…") if len(secret) >= _SHORTEST_SECRET else text
        return text

    def _read(self, answer: httpx.Response, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(answer.content, type=kind)
        except msgspec.DecodeError as exc:
            where = f"{answer.request.method} {answer.request.url.path}"
            raise SpawnError(f"RunPod: {where}: expected an answer as in its API schema, got: {exc}; update Drumbeat") from exc


def _retry_after(headers: httpx.Headers) -> timedelta | None:
    """Return how long RunPod asks to wait; None if it does not say.

    Reads the header Retry-After. Without it, returns the time until every used-up limit in the header RateLimit is reset.
    """
    if (seconds := headers.get("Retry-After", "").strip()).isdecimal():
        return timedelta(seconds=int(seconds))
    used_up = re.findall(r"\br=0\s*;\s*t=(\d+)", headers.get("RateLimit", ""))
    return timedelta(seconds=max(map(int, used_up))) if used_up else None


def _error_text(exc: httpx.HTTPError) -> str:
    return f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__
