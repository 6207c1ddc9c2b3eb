"""Webhooks: let in by their signature, once each; whatever else is sent, the server stands."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from drumbeat.composition.plane import open_control_plane
from drumbeat.core.errors import StoreUnavailable
from drumbeat.core.pool import PoolId
from drumbeat.settings import Settings
from drumbeat.triggers.webhook import KEY, LARGEST_BODY, SIGNATURE, TIMESTAMP, sign
from web.given import LOCKED, TOKEN, Web, bearer, web

SECRET = "webhook-secret-0123456789"
FILE = """\
triggers:
  - name: reap
    type: webhook
    machine: stale_worker_reaper
    secret_variable: HOOK_SECRET
  - name: nightly
    type: cron
    schedule: "0 3 * * *"
    machine: stale_worker_reaper
"""
WAITING = """\
triggers:
  - {name: push, type: subprocess}
  - {name: beside, type: in-loop}
"""
HOOK = "/hooks/reap"


@pytest.fixture
async def hooked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Web]:
    """A locked server with a file of triggers."""
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    (tmp_path / "triggers.yml").write_text(FILE)
    async with web(tmp_path, replace(LOCKED, triggers=tmp_path / "triggers.yml")) as made:
        await made.plane.pool("jobs").create()
        yield made


@pytest.fixture
async def sender(hooked: Web) -> AsyncIterator[httpx.AsyncClient]:
    async with hooked.client() as client:
        yield client


def now() -> int:
    import time

    return int(time.clock_gettime(time.CLOCK_REALTIME))


def signed(body: bytes, key: str | None = None, at: int | None = None, secret: str = SECRET) -> dict[str, str]:
    stamp = now() if at is None else at
    headers = {TIMESTAMP: str(stamp), SIGNATURE: sign(secret, stamp, body, key)}
    return headers if key is None else {**headers, KEY: key}


async def test_a_signed_delivery_wakes_its_beat_once(sender: httpx.AsyncClient) -> None:
    body = json.dumps({"pool_id": "jobs"}).encode()
    headers = signed(body, "delivery-1")

    first = await sender.post(HOOK, content=body, headers=headers)
    replayed = await sender.post(HOOK, content=body, headers=headers)

    assert first.status_code == 200, first.text
    assert list(first.json()["beats"]) == ["jobs"]
    assert replayed.json() == {"trigger": "reap", "repeated": True, "beats": {}}


async def test_a_delivery_during_which_the_store_fails_is_to_be_sent_again(
    hooked: Web, sender: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(*_: object) -> None:
        raise StoreUnavailable("gone")

    headers = signed(b"", "delivery-2")
    with monkeypatch.context() as patch:
        patch.setattr(hooked.plane.store.pools, "list", gone)
        patch.setattr(hooked.plane.store.answers, "forget", gone)
        failed = await sender.post(HOOK, headers=headers)
    too_soon = await sender.post(HOOK, headers=headers)
    await hooked.plane.store.answers.forget("webhook/reap/key-delivery-2")  # as when its time is over
    again = await sender.post(HOOK, headers=headers)

    assert [failed.status_code, too_soon.status_code, again.status_code] == [503, 503, 200]
    assert failed.headers["Retry-After"] == "5"
    assert again.json()["repeated"] is False


@pytest.mark.parametrize(
    ("name", "headers"),
    [
        ("reap", {}),
        ("reap", signed(b"{}", secret="another-secret-0123456789")),
        ("reap", signed(b"other")),
        ("reap", signed(b"{}", at=1)),
        ("reap", {TIMESTAMP: "x", SIGNATURE: "y"}),
        ("reap", {KEY: "no key at all"}),
        ("nowhere", {KEY: "no key at all"}),
        ("nowhere", {}),
        ("nightly", signed(b"{}")),
        ("nowhere", signed(b"{}")),
    ],
)
async def test_whoever_does_not_sign_learns_nothing(sender: httpx.AsyncClient, name: str, headers: dict[str, str]) -> None:
    answer = await sender.post(f"/hooks/{name}", content=b"{}", headers=headers)
    nobody = await sender.post("/hooks/nobody", content=b"{}")

    assert answer.status_code == 401
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert (answer.content, answer.headers) == (nobody.content, nobody.headers)


async def test_a_signature_is_checked_also_where_there_is_no_such_webhook(
    sender: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that how long the answer takes tells nothing either."""
    checked: list[str] = []

    def digest(one: bytes, other: bytes) -> bool:
        checked.append(str(other))
        return one == other

    monkeypatch.setattr("drumbeat.triggers.webhook.hmac.compare_digest", digest)
    for name in ("reap", "nightly", "nowhere"):
        await sender.post(f"/hooks/{name}", content=b"{}", headers=signed(b"other"))

    assert len(checked) == 3


@pytest.mark.parametrize(
    ("body", "status"), [(b"[]", 400), (b"{", 400), (b'{"pool_id": 1}', 400), (b'{"pool_id": "nowhere"}', 422), (b"", 200)]
)
async def test_a_signed_delivery_that_cannot_be_used_is_told_so(sender: httpx.AsyncClient, body: bytes, status: int) -> None:
    assert (await sender.post(HOOK, content=body, headers=signed(body))).status_code == status


async def test_a_delivery_that_is_too_large_is_not_read(sender: httpx.AsyncClient) -> None:
    body = b" " * (LARGEST_BODY + 1)

    assert (await sender.post(HOOK, content=body, headers=signed(body))).status_code == 413


async def test_another_method_needs_a_token(sender: httpx.AsyncClient) -> None:
    assert (await sender.get(HOOK)).status_code == 401
    assert (await sender.get(HOOK, headers=bearer(TOKEN))).status_code == 405


async def test_a_webhook_whose_secret_is_missing_lets_nobody_in(
    sender: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOOK_SECRET")

    answer = await sender.post(HOOK, content=b"{}", headers=signed(b"{}"))

    assert answer.status_code == 401
    assert "HOOK_SECRET" not in answer.text


async def test_a_webhook_whose_secret_is_missing_leaves_the_others_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    more = "  - {name: other, type: webhook, machine: stale_worker_reaper, secret_variable: OTHER_SECRET}\n"
    (tmp_path / "triggers.yml").write_text(FILE + more)
    async with web(tmp_path, replace(LOCKED, triggers=tmp_path / "triggers.yml")) as made, made.client() as sender:
        await made.plane.pool("jobs").create()
        other = await sender.post("/hooks/other", content=b"{}", headers=signed(b"{}"))
        nobody = await sender.post("/hooks/nobody", content=b"{}", headers=signed(b"{}"))
        reap = await sender.post(HOOK, content=b"{}", headers=signed(b"{}"))

    assert (other.status_code, other.content) == (401, nobody.content)
    assert reap.status_code == 200


async def test_without_a_file_there_is_no_webhook(tmp_path: Path) -> None:
    async with web(tmp_path) as made, made.client() as sender:
        assert (await sender.post(HOOK, content=b"{}", headers=signed(b"{}"))).status_code == 401
        assert (await sender.get("/api/v1/triggers")).json() == []
        assert (await sender.post("/api/v1/triggers/reap/fire")).status_code == 404


async def test_triggers_are_listed_and_pulled(hooked: Web) -> None:
    async with hooked.client(bearer(TOKEN)) as operator:
        listed = (await operator.get("/api/v1/triggers")).json()
        fired = await operator.post("/api/v1/triggers/nightly/fire")
        unknown = await operator.post("/api/v1/triggers/nowhere/fire")

    assert [(each["name"], each["type"], each["due"] is None) for each in listed] == [
        ("reap", "webhook", True),
        ("nightly", "cron", False),
    ]
    assert list(fired.json()["beats"]) == ["jobs"]
    assert unknown.status_code == 404


TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=60)


@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    body=st.binary(max_size=300)
    | st.recursive(st.none() | st.text(), st.lists, max_leaves=5).map(lambda v: json.dumps(v).encode()),
    headers=st.dictionaries(st.sampled_from([TIMESTAMP, SIGNATURE, KEY, "Content-Type"]), TEXT),
    good=st.booleans(),
    name=st.sampled_from(["reap", "nightly", "x", "%00", "..", "ü"]),
)
async def test_whatever_is_sent_the_server_stands(
    sender: httpx.AsyncClient, body: bytes, headers: dict[str, str], good: bool, name: str
) -> None:
    sent = {key.encode(): value.encode("latin-1") for key, value in (headers | (signed(body) if good else {})).items()}

    answer = await sender.post(f"/hooks/{name}", content=body, headers=sent)

    assert answer.status_code < 500
    assert good or answer.status_code >= 400


@pytest.mark.parametrize(
    ("path", "body"),
    [("/api/v1/pools/heard/jobs", {"payload": 1}), ("/api/v1/pools/heard/jobs/many", {"jobs": [{"payload": 1}]})],
)
async def test_a_push_pulls_the_triggers_of_the_servers_own_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, object]
) -> None:
    """Those that run beside it are waited for at its end."""
    monkeypatch.setattr("drumbeat.triggers.detached.start_detached", lambda command, *_: sent.append(tuple(command)))
    (tmp_path / "elsewhere.yml").write_text(WAITING)
    sent: list[tuple[str, ...]] = []
    async with open_control_plane(
        Settings(store=f"sqlite:///{tmp_path}/drumbeat.db", state_dir=tmp_path), create=True
    ) as plane:
        await plane.pool("heard").create(max_workers=0)
        async with (
            web(tmp_path, replace(LOCKED, triggers=tmp_path / "elsewhere.yml")) as made,
            made.client(bearer(TOKEN)) as api,
        ):
            answer = await api.post(path, json=body)

        assert answer.status_code == 201
        assert [json.loads(command[-1])["trigger"] for command in sent] == ["push"]
        assert await plane.store.beats.last(PoolId("heard")) is not None


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("requeue", {"job_ids": ["one"]}),
        ("requeue", {}),
        ("requeue-matching", {"filter": {"job_type": "t"}}),
        ("one/requeue-subtree", {}),
        ("reschedule-matching", {"filter": {"job_type": "t"}, "run_at": "2026-01-01T00:00:00Z"}),
    ],
)
async def test_jobs_that_can_run_again_pull_the_triggers_of_a_push(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, object]
) -> None:
    sent: list[tuple[str, ...]] = []
    monkeypatch.setattr("drumbeat.triggers.detached.start_detached", lambda command, *_: sent.append(tuple(command)))
    (tmp_path / "elsewhere.yml").write_text(WAITING)
    settings = Settings(store=f"sqlite:///{tmp_path}/drumbeat.db", state_dir=tmp_path)
    async with open_control_plane(settings, create=True) as plane:
        heard = plane.pool("heard")
        await heard.create(max_workers=0)
        await heard.push(1, job_id="one", type="t", delay=0 if "requeue" in path else 3600, max_attempts=1)
        if job := await heard.claim():
            await heard.fail(job, "it fails")
        async with (
            web(tmp_path, replace(LOCKED, triggers=tmp_path / "elsewhere.yml")) as made,
            made.client(bearer(TOKEN)) as api,
        ):
            answer = await api.post(f"/api/v1/pools/heard/jobs/{path}", json=body)

        assert answer.status_code == 200, answer.text
        assert [json.loads(command[-1])["trigger"] for command in sent] == ["push"]
        assert await plane.store.jobs.size(PoolId("heard"), 9) == 1
