"""Answer webhook requests, each of which asks for a beat (one pass of a control loop).

A request that is sent again runs no second beat, unless the first beat failed or did nothing because another controller leads.
"""

import contextlib
import logging
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from drumbeat.core.clock import Clock
from drumbeat.core.errors import DrumbeatError, InvalidInput, InvalidSettings, NotFound
from drumbeat.core.lease import Lease
from drumbeat.store.interface import Leases
from drumbeat.triggers.model import RunBeats, Trigger
from drumbeat.triggers.webhook import LEAST_SECRET, REMEMBERED, RequestRefused, accept

log = logging.getLogger(__name__)

PATH = "/triggers/"
_DUMMY_SECRET = secrets.token_hex(32)  #: a secret that no webhook has


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookAnswer:
    """The HTTP response to a webhook request."""

    status: HTTPStatus
    body: Mapping[str, Any]


class Deliveries:
    """Answers requests to a triggers file's webhooks. Deliveries are recorded in the store, so several processes can listen.

    The secret of a webhook is read when the webhook is called, so that a missing one affects no other webhook.
    """

    def __init__(
        self,
        triggers: Sequence[Trigger],
        run: RunBeats,
        clock: Clock,
        leases: Leases,
        environment: Mapping[str, str],
        owner: str,
    ) -> None:
        """``environment`` has the secrets, each in the variable that its trigger names."""
        self._run = run
        self._clock = clock
        self._leases = leases
        self._owner = owner
        self._environment = environment
        self._triggers = {each.name: each for each in triggers if each.secret_variable is not None}

    @property
    def paths(self) -> Sequence[str]:
        return [f"{PATH}{name}" for name in self._triggers]

    def check_secrets(self) -> None:
        """Raise InvalidSettings if the secret of a webhook is missing from the environment or too short."""
        for trigger in self._triggers.values():
            secret_of(trigger, self._environment)

    async def answer(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> WebhookAnswer:
        """Check a request, run the beat it asks for, and return the response. For a bad request, returns an error response.
        Raises InvalidSettings if this webhook's secret is missing or too short."""
        trigger = self._triggers.get(path.partition("?")[0].removeprefix(PATH)) if path.startswith(PATH) else None
        if trigger is None:
            await self._check_dummy(headers, body)
            return _refused(HTTPStatus.NOT_FOUND, "there is no such webhook")
        if method != "POST":
            return _refused(HTTPStatus.METHOD_NOT_ALLOWED, f"expected POST, got {method}")
        try:
            return await self._deliver(trigger, headers, body)
        except RequestRefused as exc:
            log.warning("refused a request to the webhook %s: %s", trigger.name, exc)
            return _refused(exc.status, str(exc))

    async def _check_dummy(self, headers: Mapping[str, str], body: bytes) -> None:
        """Check the signature against a dummy secret, so that the response time does not show which webhooks exist."""

        async def unseen(key: str) -> bool:
            return True

        with contextlib.suppress(RequestRefused):
            await accept(headers, body, _DUMMY_SECRET, self._clock.now(), unseen)

    async def _secret_of(self, trigger: Trigger, headers: Mapping[str, str], body: bytes) -> str:
        try:
            return secret_of(trigger, self._environment)
        except InvalidSettings:
            await self._check_dummy(headers, body)
            raise

    async def _forget(self, noted: Sequence[Lease]) -> None:
        """Release the leases that mark a webhook request as seen, so that the request can be sent again."""
        for lease in noted:
            await self._leases.release(lease)

    async def _deliver(self, trigger: Trigger, headers: Mapping[str, str], body: bytes) -> WebhookAnswer:
        noted: list[Lease] = []

        async def seen(key: str) -> bool:
            lease = await self._leases.acquire(f"webhook/{trigger.name}/{key}", self._owner, REMEMBERED)
            noted.extend([] if lease is None else [lease])
            return lease is None

        secret = await self._secret_of(trigger, headers, body)
        delivery = await accept(headers, body, secret, self._clock.now(), seen)
        if delivery.repeated:
            return WebhookAnswer(status=HTTPStatus.OK, body={"trigger": trigger.name, "repeated": True})
        try:
            beats = await self._run(trigger.firing(delivery.pool_id))
        except BaseException as exc:
            await self._forget(noted)
            return _failed(trigger.name, exc)
        broken = [pool_id for pool_id, beat in beats.items() if beat.get("error")]
        if broken or not all(beat.get("led", True) for beat in beats.values()):
            await self._forget(noted)
        if broken:
            return _refused(HTTPStatus.SERVICE_UNAVAILABLE, f"the beat of {', '.join(broken)} failed; repeat the request")
        return WebhookAnswer(status=HTTPStatus.OK, body={"trigger": trigger.name, "repeated": False, "beats": beats})


def secret_of(trigger: Trigger, environment: Mapping[str, str]) -> str:
    """Return a webhook's secret. Raises InvalidSettings, which names the variable but never shows its value."""
    variable = trigger.secret_variable or ""
    secret = environment.get(variable, "")
    if len(secret) < LEAST_SECRET:
        got = "none" if not secret else f"{len(secret)} characters"
        raise InvalidSettings(
            f"trigger {trigger.name}: expected a secret of at least {LEAST_SECRET} characters in the environment variable "
            f"{variable}, got {got}"
        )
    return secret


def _failed(name: str, exc: BaseException) -> WebhookAnswer:
    """Return the response to a failed beat, with the reason only if the sender can fix it. Reraises unknown errors."""
    if isinstance(exc, NotFound | InvalidInput):
        return _refused(HTTPStatus.UNPROCESSABLE_ENTITY, str(exc))
    if isinstance(exc, DrumbeatError):
        log.error("webhook %s: the beat that it requested failed: %s; the sender can send the request again", name, exc)
        return _refused(HTTPStatus.SERVICE_UNAVAILABLE, "the beat failed; try again")
    raise exc


def _refused(status: HTTPStatus, reason: str) -> WebhookAnswer:
    return WebhookAnswer(status=status, body={"error": reason})
