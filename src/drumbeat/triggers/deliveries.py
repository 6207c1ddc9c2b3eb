"""Answer webhook requests, each of which asks for a beat (one pass of a control loop).

A request that is sent again runs no second beat, unless the first beat failed or did nothing because another controller leads.
A delivery counts as received only once its beat has run: until then, and if the store fails, the sender is told to try again.
"""

import contextlib
import logging
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from http import HTTPStatus
from typing import Any

from drumbeat.core.answer import RequestAnswer
from drumbeat.core.clock import Clock
from drumbeat.core.errors import DrumbeatError, InvalidInput, InvalidSettings, NotFound, StoreError
from drumbeat.store.interface import Answers
from drumbeat.triggers.model import RunBeats, Trigger
from drumbeat.triggers.webhook import LEAST_SECRET, REMEMBERED, Delivery, RequestRefused, accept

log = logging.getLogger(__name__)

PATH = "/triggers/"
HANDLED_WITHIN = timedelta(minutes=1)  #: how long a delivery without an outcome is not handled again; short, in case it is lost
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
        answers: Answers,
        environment: Mapping[str, str],
    ) -> None:
        """``answers`` records the deliveries. ``environment`` has the secrets, each in the variable that its trigger names."""
        self._run = run
        self._clock = clock
        self._answers = answers
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

    async def _deliver(self, trigger: Trigger, headers: Mapping[str, str], body: bytes) -> WebhookAnswer:
        secret = await self._secret_of(trigger, headers, body)
        try:
            delivery = await accept(headers, body, secret, self._clock.now(), partial(self._seen, trigger))
        except StoreError as exc:
            log.error("webhook %s: failed to record a request: %s; the sender is asked to send it again", trigger.name, exc)
            return _refused(HTTPStatus.SERVICE_UNAVAILABLE, "the store does not answer; repeat the request")
        if delivery.repeated:
            return WebhookAnswer(status=HTTPStatus.OK, body={"trigger": trigger.name, "repeated": True})
        return await self._run_beats(trigger, delivery)

    async def _seen(self, trigger: Trigger, identity: str) -> bool:
        """Whether a delivery's beat has run; if not, reserve the delivery. Raises RequestRefused if it is being handled."""
        found = await self._answers.hold(_key(trigger, identity), identity, HANDLED_WITHIN)
        if found is not None and found.answer is None:
            raise RequestRefused(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"this request is being handled, or its outcome was lost; repeat it after {HANDLED_WITHIN.total_seconds():g} s",
            )
        return found is not None

    async def _run_beats(self, trigger: Trigger, delivery: Delivery) -> WebhookAnswer:
        """Run the beats that a delivery asks for. The delivery is recorded if they have run, and may come again if not."""
        try:
            beats = await self._run(trigger.firing(delivery.pool_id))
        except BaseException as exc:
            await self._forget(trigger, delivery)
            return _failed(trigger.name, exc)
        broken = [pool_id for pool_id, beat in beats.items() if _is_broken(beat)]
        if broken or not all(beat.get("led", True) for beat in beats.values()):
            await self._forget(trigger, delivery)
        else:
            await self._remember(trigger, delivery)
        if broken:
            return _broken(beats, broken)
        return WebhookAnswer(status=HTTPStatus.OK, body={"trigger": trigger.name, "repeated": False, "beats": beats})

    async def _remember(self, trigger: Trigger, delivery: Delivery) -> None:
        """Record that the beat of a delivery has run, so that a repeat runs none. A store error is only logged."""
        try:
            await self._answers.give(_key(trigger, delivery.key), RequestAnswer(status=int(HTTPStatus.OK)), REMEMBERED)
        except StoreError as exc:
            log.warning("webhook %s: failed to record a request: %s; a repeat would run its beat again", trigger.name, exc)

    async def _forget(self, trigger: Trigger, delivery: Delivery) -> None:
        """Let a delivery come again at once. If the store fails, it may come again after ``HANDLED_WITHIN``."""
        try:
            await self._answers.forget(_key(trigger, delivery.key))
        except StoreError as exc:
            seconds = HANDLED_WITHIN.total_seconds()
            log.warning("webhook %s: failed to free a request: %s; it may be repeated after %g s", trigger.name, exc, seconds)


def _key(trigger: Trigger, identity: str) -> str:
    return f"webhook/{trigger.name}/{identity}"


def _is_broken(beat: Mapping[str, Any]) -> bool:
    """Whether a beat, or an action in it, failed."""
    return bool(beat.get("error")) or not beat.get("ok", True)


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


def _broken(beats: Mapping[str, Mapping[str, Any]], broken: Sequence[str]) -> WebhookAnswer:
    """Return the response for beats of which some failed: which ones, but not why, because an error may show secrets."""
    return WebhookAnswer(
        status=HTTPStatus.SERVICE_UNAVAILABLE,
        body={
            "error": f"the beat of {', '.join(broken)} failed; repeat the request",
            "beats": {pool_id: {"ok": pool_id not in broken} for pool_id in beats},
        },
    )


def _refused(status: HTTPStatus, reason: str) -> WebhookAnswer:
    return WebhookAnswer(status=status, body={"error": reason})
