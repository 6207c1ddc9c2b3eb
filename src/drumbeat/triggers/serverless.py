"""Serverless triggers: handle cloud events (AWS Lambda), and write Kubernetes CronJob manifests."""

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from drumbeat.core.cron import with_sunday_as_0
from drumbeat.core.errors import InvalidInput
from drumbeat.core.store_url import PASSWORD_VARIABLE
from drumbeat.triggers.deliveries import Deliveries
from drumbeat.triggers.model import BeatKind, Firing, RunBeats, Trigger, unused_input


async def answer_event(event: Mapping[str, Any], run: RunBeats, deliveries: Deliveries | None) -> Mapping[str, Any]:
    """Run the beat that an AWS Lambda event asks for. Returns the beat's report for each pool; to an HTTP event, a response.

    An HTTP event (function URL, API gateway) must be signed like any webhook. An event of a scheduler (EventBridge) has the
    input in ``detail``, or is the input itself. ``deliveries`` answers the HTTP events; without it they are refused.
    Raises InvalidInput.
    """
    if "headers" in event and ("body" in event or "requestContext" in event):
        return await _answer_http(event, deliveries)
    detail = event.get("detail")
    return {"beats": await run(firing_of(detail if isinstance(detail, Mapping) else event))}


def firing_of(fields: Mapping[str, Any]) -> Firing:
    """Return the beat that an event's fields ask for. Fields that the cloud adds are ignored. Raises InvalidInput."""
    given = fields.get("input", fields)
    if not isinstance(given, Mapping):
        raise InvalidInput(f"input: expected keys and values, got {type(given).__name__}")
    request = {**{key: fields[key] for key in ("machine", "trigger") if key in fields}, **given}
    machine = request.get("machine", BeatKind.CHECKER)
    if machine not in tuple(BeatKind):
        raise InvalidInput(f"machine: expected one of {', '.join(BeatKind)}, got {machine!r}")
    lost_after = _number(request, "stale_threshold_seconds")
    max_workers = _number(request, "max_workers")
    if unused := unused_input(BeatKind(machine), max_workers, lost_after):
        raise InvalidInput(unused)
    pool_id = request.get("pool_id")
    if pool_id is not None and not (isinstance(pool_id, str) and pool_id):
        raise InvalidInput(f"pool_id: expected a pool's name, got {pool_id!r}")
    return Firing(
        trigger=str(request.get("trigger", "event")),
        machine=BeatKind(machine),
        pool_id=pool_id,
        max_workers=max_workers,
        lost_after=None if lost_after is None else timedelta(seconds=lost_after),
    )


def _number(fields: Mapping[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1_000_000_000):
        raise InvalidInput(f"{name}: expected a whole number from 0 to 999999999, got {value!r}")
    return value


async def _answer_http(event: Mapping[str, Any], deliveries: Deliveries | None) -> Mapping[str, Any]:
    if deliveries is None:
        raise InvalidInput("expected a triggers.yml with a webhook, which an HTTP event needs, got no such file; add the file")
    context = event.get("requestContext") or {}
    http = context.get("http") or {}
    method = str(http.get("method") or event.get("httpMethod") or "POST")
    path = str(event.get("rawPath") or event.get("path") or "")
    answer = await deliveries.answer(method, path, event["headers"], _body(event))
    return {
        "statusCode": answer.status.value,
        "headers": {"Content-Type": "application/json"},
        "body": json.dumps(answer.body, default=str),
    }


def _body(event: Mapping[str, Any]) -> bytes:
    body = str(event.get("body") or "")
    if not event.get("isBase64Encoded"):
        return body.encode()
    try:
        return base64.b64decode(body, validate=True)
    except binascii.Error as exc:
        raise InvalidInput(f"body: expected base64, since isBase64Encoded is set: {exc}") from exc


def cron_job(
    trigger: Trigger, image: str, secret: str, arguments: Sequence[str], variables: Mapping[str, str] | None = None
) -> Mapping[str, Any]:
    """Return a Kubernetes CronJob that runs a trigger's beat. Raises InvalidInput if the trigger has no schedule.

    The container reads the store's URL from the Kubernetes secret ``secret``, and the password too if the secret has one;
    ``variables`` are written into the manifest.
    """
    if trigger.schedule is None:
        raise InvalidInput(f"trigger {trigger.name} has no schedule, which a CronJob needs; add one to triggers.yml")
    name = kubernetes_name(trigger.name)
    store = {"name": "DRUMBEAT_STORE", "valueFrom": {"secretKeyRef": {"name": secret, "key": "DRUMBEAT_STORE"}}}
    reference = {"name": secret, "key": PASSWORD_VARIABLE, "optional": True}
    password = {"name": PASSWORD_VARIABLE, "valueFrom": {"secretKeyRef": reference}}
    container = {
        "name": "beat",
        "image": image,
        "command": ["drumbeat", *arguments],
        "env": [store, password, *({"name": each, "value": value} for each, value in (variables or {}).items())],
    }
    pod = {"restartPolicy": "Never", "containers": [container]}
    job = {"backoffLimit": 0, "template": {"spec": pod}}
    spec = {
        "schedule": with_sunday_as_0(trigger.schedule),
        "timeZone": trigger.timezone or "Etc/UTC",
        "concurrencyPolicy": "Allow",  # the pool's lease and max_workers prevent too many workers
        "successfulJobsHistoryLimit": 1,
        "failedJobsHistoryLimit": 3,
        "jobTemplate": {"spec": job},
    }
    labels = {"app.kubernetes.io/name": "drumbeat", "app.kubernetes.io/component": "trigger"}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name, "labels": labels}, "spec": spec}


def kubernetes_name(name: str) -> str:
    """Return a trigger's name in the form that Kubernetes allows: at most 52 lowercase letters, digits and dashes."""
    plain = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name.lower())
    return f"drumbeat-{plain}"[:52].strip("-")
