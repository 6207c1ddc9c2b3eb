"""Turns HTTP errors of Kubernetes into exceptions, each with one line that says what to do."""

import re
from collections.abc import Mapping
from datetime import timedelta
from http import HTTPStatus

import msgspec

from drumbeat.core.errors import SpawnCause, SpawnError

_FORBIDDEN = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\w+) resource "(?P<resource>[^"]+)"(?: in API group "(?P<group>[^"]*)")?'
)
_QUOTA = re.compile(r"exceeded quota: (.*)", re.DOTALL)
_LONGEST = 500
_CAUSES: Mapping[int, SpawnCause] = {
    HTTPStatus.UNAUTHORIZED: SpawnCause.AUTH,
    HTTPStatus.FORBIDDEN: SpawnCause.AUTH,
    HTTPStatus.TOO_MANY_REQUESTS: SpawnCause.RATE_LIMITED,
}
RETRIED = frozenset({408, 429, 500, 502, 503, 504})


class ApiStatus(msgspec.Struct, frozen=True):
    """The body of an HTTP error of Kubernetes: only the fields that are used here."""

    message: str = ""
    reason: str = ""


class KubernetesRefused(SpawnError):
    """Kubernetes answered a call with an HTTP error; ``status`` is its code, ``reason`` a word such as NotFound."""

    def __init__(
        self, message: str, *, status: int, reason: str = "", cause: SpawnCause, retry_after: timedelta | None = None
    ) -> None:
        super().__init__(message, cause=cause, retry_after=retry_after)
        self.status, self.reason = status, reason


def refusal(place: str, namespace: str, call: str, status: int, body: bytes, retry_after: str | None) -> KubernetesRefused:
    """Return the error for an HTTP status of 400 or more. ``place`` names the cluster, ``call`` the call (``create jobs``)."""
    try:
        said = msgspec.json.decode(body, type=ApiStatus)
    except msgspec.DecodeError:
        said = ApiStatus(message=body.decode(errors="replace"))
    message = one_line(said.message) or "no reason given"
    line, cause = _explained(namespace, call, status, message)
    seconds = int(retry_after) if retry_after is not None and retry_after.strip().isdecimal() else None
    return KubernetesRefused(
        f"{place}: {line}",
        status=status,
        reason=said.reason,
        cause=cause,
        retry_after=None if seconds is None else timedelta(seconds=seconds),
    )


def one_line(text: str) -> str:
    """Return a text as one line of at most 500 characters."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


def _explained(namespace: str, call: str, status: int, message: str) -> tuple[str, SpawnCause]:
    """Return one line that explains an HTTP error and says what to do, and the error's cause."""
    if status == HTTPStatus.UNAUTHORIZED:
        line = "the cluster does not accept the credentials (HTTP 401): the token is wrong or has expired; log in again"
        return f"{line}, and try: kubectl get jobs -n {namespace}", SpawnCause.AUTH
    if found := _QUOTA.search(message):
        return (
            f"the quota of namespace {namespace} is used up: {found[1]}; raise it, or run fewer workers",
            SpawnCause.NO_CAPACITY,
        )
    if status == HTTPStatus.FORBIDDEN:
        return _forbidden(namespace, call, message), SpawnCause.AUTH
    if status == HTTPStatus.NOT_FOUND and "namespaces" in message:
        return f"there is no namespace {namespace}; create it: kubectl create namespace {namespace}", SpawnCause.BAD_REQUEST
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return f"too many API calls (HTTP 429) at {call}: {message}", SpawnCause.RATE_LIMITED
    cause = SpawnCause.TRANSIENT if status in RETRIED else SpawnCause.BAD_REQUEST
    return f"{call} failed (HTTP {status}): {message}", _CAUSES.get(status, cause)


def _forbidden(namespace: str, call: str, message: str) -> str:
    found = _FORBIDDEN.search(message)
    if found is None:
        return f"{call} is forbidden in namespace {namespace} (HTTP 403): {message}"
    group = f" ({found['group']})" if found["group"] else ""
    right = f"the verb {found['verb']} on {found['resource']}{group}"
    return f"{found['user']} lacks {right} in namespace {namespace}; add it to the Role, see docs/engines.md"
