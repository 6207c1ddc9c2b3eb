"""Serverless triggers: what a cloud's event asks for, and what Kubernetes is told."""

import base64
import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from drumbeat.core.clock import ManualClock
from drumbeat.core.cron import parse_schedule
from drumbeat.core.errors import InvalidInput
from drumbeat.store.memory import MemoryStore
from drumbeat.triggers.deliveries import Deliveries
from drumbeat.triggers.model import BeatKind, Firing
from drumbeat.triggers.serverless import answer_event, cron_job, firing_of, kubernetes_name
from drumbeat.triggers.webhook import SIGNATURE, TIMESTAMP, sign
from triggers.given import SECRET, Beats, trigger

CLOCK = ManualClock()
CLOUD = trigger("cloud", "serverless", schedule="*/5 * * * *", secret_variable="HOOK", pool_id="papers")


async def ask(event: Mapping[str, Any], beats: Beats) -> Mapping[str, Any]:
    deliveries = Deliveries([CLOUD], beats, CLOCK, MemoryStore(CLOCK).answers, {"HOOK": SECRET})
    return await answer_event(event, beats, deliveries)


EVENTS = [
    ("a direct call", {"pool_id": "papers", "max_workers": 3}, Firing(trigger="event", pool_id="papers", max_workers=3)),
    ("an empty one", {}, Firing(trigger="event")),
    ("EventBridge", {"source": "aws.events", "detail": {"pool_id": "papers"}}, Firing(trigger="event", pool_id="papers")),
    (
        "a registry entry",
        {"machine": "parallelization_checker", "input": {"pool_id": "p"}},
        Firing(trigger="event", pool_id="p"),
    ),
    (
        "the reaper",
        {"machine": "stale_worker_reaper", "stale_threshold_seconds": 60},
        Firing(trigger="event", machine=BeatKind.REAPER, lost_after=timedelta(seconds=60)),
    ),
]


@pytest.mark.parametrize(("event", "firing"), [pytest.param(*rest, id=title) for title, *rest in EVENTS])
async def test_what_an_event_asks_for(event: Mapping[str, Any], firing: Firing) -> None:
    beats = Beats()

    answer = await ask(event, beats)

    assert beats.asked == [firing]
    assert answer == {"beats": {firing.pool_id or "all": {"led": True, "ok": True}}}


@pytest.mark.parametrize(
    ("event", "says"),
    [
        ({"machine": "x"}, "machine: expected one of"),
        ({"max_workers": "3"}, "max_workers: expected a whole number"),
        ({"max_workers": True}, "max_workers: expected a whole number"),
        ({"max_workers": -1}, "max_workers: expected a whole number"),
        ({"stale_threshold_seconds": 1e12}, "stale_threshold_seconds: expected"),
        ({"stale_threshold_seconds": 5}, "stale_threshold_seconds: not used by parallelization_checker"),
        ({"machine": "stale_worker_reaper", "max_workers": 5}, "max_workers: not used by stale_worker_reaper"),
        ({"pool_id": ""}, "pool_id: expected a pool's name"),
        ({"input": 7}, "input: expected keys and values"),
    ],
)
def test_what_no_event_may_say(event: Mapping[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        firing_of(event)


def http(body: str = "{}", *, encoded: bool = False, signed: bool = True) -> dict[str, Any]:
    stamp = int(CLOCK.now().timestamp())
    headers = {TIMESTAMP.lower(): str(stamp), SIGNATURE.lower(): sign(SECRET, stamp, body.encode())} if signed else {}
    sent = base64.b64encode(body.encode()).decode() if encoded else body
    return {
        "rawPath": "/triggers/cloud",
        "headers": headers,
        "body": sent,
        "isBase64Encoded": encoded,
        "requestContext": {"http": {"method": "POST"}},
    }


@pytest.mark.parametrize("encoded", [True, False])
async def test_an_http_event_is_a_webhook(encoded: bool) -> None:
    beats = Beats()

    answer = await ask(http(encoded=encoded), beats)

    assert (answer["statusCode"], json.loads(answer["body"])["repeated"]) == (200, False)
    assert beats.asked == [Firing(trigger="cloud", pool_id="papers")]


async def test_an_unsigned_http_event_is_refused() -> None:
    beats = Beats()

    for event in (http(signed=False), http(signed=False) | {"body": None}):
        assert (await ask(event, beats))["statusCode"] == 401

    assert beats.asked == []


async def test_an_api_gateways_older_form_is_known() -> None:
    event = http() | {"path": "/triggers/cloud", "httpMethod": "GET"}
    del event["rawPath"], event["requestContext"]

    assert (await ask(event, Beats()))["statusCode"] == 405


async def test_a_body_that_is_not_base64_is_refused() -> None:
    with pytest.raises(InvalidInput, match="body: expected base64"):
        await ask(http(encoded=True) | {"body": "~"}, Beats())


def test_the_cron_job_runs_the_beat_with_the_store_from_a_secret() -> None:
    made = cron_job(CLOUD, "registry/drumbeat:1", "stores", ["pool", "check", "papers"], {"DRUMBEAT_RETENTION": "off"})

    spec = made["spec"]
    (container,) = spec["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert (made["apiVersion"], made["kind"], made["metadata"]["name"]) == ("batch/v1", "CronJob", "drumbeat-cloud")
    assert (spec["schedule"], spec["timeZone"], spec["concurrencyPolicy"]) == ("*/5 * * * *", "Etc/UTC", "Allow")
    assert (container["image"], container["command"]) == ("registry/drumbeat:1", ["drumbeat", "pool", "check", "papers"])
    assert container["env"][0]["valueFrom"]["secretKeyRef"] == {"name": "stores", "key": "DRUMBEAT_STORE"}
    password = {"name": "stores", "key": "DRUMBEAT_STORE_PASSWORD", "optional": True}
    assert container["env"][1]["valueFrom"]["secretKeyRef"] == password
    assert container["env"][2:] == [{"name": "DRUMBEAT_RETENTION", "value": "off"}]


@pytest.mark.parametrize(
    ("schedule", "written"),
    [
        ("0 3 * * 7", "0 3 * * 0"),
        ("0 3 * * 5-7", "0 3 * * 0,5,6"),
        ("0 3 7 * 1,Fri-7", "0 3 7 * 1,0,5,6"),
        ("0 3 * * 1/3", "0 3 * * 0,1,4"),
        ("0 3 * * MON-FRI", "0 3 * * mon-fri"),
        ("0 3 * * */2", "0 3 * * */2"),
        ("*/7 7 7 7 *", "*/7 7 7 7 *"),
        ("@Daily", "@daily"),
    ],
)
def test_a_cron_jobs_schedule_has_sunday_as_0(schedule: str, written: str) -> None:
    made = cron_job(trigger("often", schedule=schedule), "i", "s", [])

    assert made["spec"]["schedule"] == written
    assert parse_schedule(written) == parse_schedule(schedule)


def test_a_cron_job_needs_a_schedule() -> None:
    with pytest.raises(InvalidInput, match="has no schedule"):
        cron_job(trigger("hook", "webhook"), "i", "s", [])


@pytest.mark.parametrize(
    ("name", "expected"),
    [("cron_5min", "drumbeat-cron-5min"), ("A.b", "drumbeat-a-b"), ("x" * 90, "drumbeat-" + "x" * 43), ("é_", "drumbeat")],
)
def test_names_are_what_kubernetes_allows(name: str, expected: str) -> None:
    assert kubernetes_name(name) == expected
