"""From a request to a beat and an answer: once per delivery, in whichever process, and again only if the beat failed."""

import asyncio
import json
from collections.abc import Mapping
from datetime import timedelta
from http import HTTPStatus
from typing import Any

import pytest

from drumbeat.core.clock import Clock, ManualClock
from drumbeat.core.errors import InvalidInput, InvalidSettings, NotFound, StoreUnavailable
from drumbeat.store.interface import Answers
from drumbeat.store.memory import MemoryStore
from drumbeat.triggers.deliveries import HANDLED_WITHIN, Deliveries, WebhookAnswer
from drumbeat.triggers.model import Firing
from drumbeat.triggers.server import serve
from drumbeat.triggers.webhook import KEY, LARGEST_BODY, SIGNATURE, TIMESTAMP, WINDOW, sign
from triggers.given import SECRET, Beats, trigger

CLOCK = ManualClock()
HOOK = trigger("hook", "webhook", secret_variable="HOOK", max_workers=3)
BODY = b'{"pool_id": "papers"}'


def desk(store: MemoryStore, beats: Beats, clock: Clock = CLOCK) -> Deliveries:
    """What one process answers requests with."""
    return Deliveries([HOOK, trigger(schedule="* * * * *")], beats, clock, store.answers, {"HOOK": SECRET})


def headers(body: bytes = BODY, key: str | None = None, clock: Clock = CLOCK) -> Mapping[str, str]:
    stamp = int(clock.now().timestamp())
    return {TIMESTAMP: str(stamp), SIGNATURE: sign(SECRET, stamp, body, key), **({KEY: key} if key else {})}


async def post(deliveries: Deliveries, path: str = "/triggers/hook", **more: Any) -> WebhookAnswer:
    return await deliveries.answer("POST", path, headers(**more), BODY)


async def test_a_signed_request_wakes_the_beat_and_hears_of_it() -> None:
    beats = Beats()

    answer = await post(desk(MemoryStore(CLOCK), beats))

    assert beats.asked == [Firing(trigger="hook", pool_id="papers", max_workers=3)]
    assert answer == WebhookAnswer(
        status=HTTPStatus.OK, body={"trigger": "hook", "repeated": False, "beats": {"papers": {"led": True, "ok": True}}}
    )


async def test_a_replay_wakes_nobody_whichever_process_it_comes_to() -> None:
    store, beats = MemoryStore(CLOCK), Beats()

    one = desk(store, beats)

    answers = [await post(each) for each in (one, one, desk(store, beats))]

    assert [answer.body["repeated"] for answer in answers] == [False, True, True]
    assert len(beats.asked) == 1


async def test_of_many_at_once_one_wakes_the_beat() -> None:
    store, beats = MemoryStore(CLOCK), Beats()
    listeners = [desk(store, beats) for _ in range(20)]

    answers = await asyncio.gather(*(post(each, key="k") for each in listeners))

    assert [answer.body.get("repeated") for answer in answers].count(False) == 1
    assert {answer.status for answer in answers} <= {HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE}
    assert len(beats.asked) == 1


async def test_a_delivery_whose_beat_still_runs_is_to_be_sent_again_later() -> None:
    """It is not answered as done, since the beat may yet fail."""
    holds = asyncio.Event()
    store, beats = MemoryStore(CLOCK), Beats(holds=holds, fails=[StoreUnavailable("gone")])
    async with asyncio.TaskGroup() as group:
        first = group.create_task(post(desk(store, beats), key="k"))
        while not beats.running:
            await asyncio.sleep(0)
        meanwhile = await post(desk(store, beats), key="k")
        holds.set()

    assert (meanwhile.status, first.result().status) == (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.SERVICE_UNAVAILABLE)
    assert "repeat it after 60 s" in meanwhile.body["error"]
    assert (await post(desk(store, beats), key="k")).body["repeated"] is False


class FailingAnswers:
    """The answers of a store of which one operation fails: before anything is written, or after."""

    def __init__(self, inner: Answers, name: str, *, after: bool = False) -> None:
        self._inner, self._name, self._after = inner, name, after

    def __getattr__(self, name: str) -> Any:
        work = getattr(self._inner, name)
        if name != self._name:
            return work

        async def failing(*given: Any) -> None:
            if self._after:
                await work(*given)
            raise StoreUnavailable("postgresql://secret is gone")

        return failing


@pytest.mark.parametrize(
    ("operation", "after", "beat_fails"),
    [("hold", False, False), ("hold", True, False), ("forget", False, True), ("forget", True, True)],
)
async def test_a_delivery_during_which_the_store_fails_is_not_swallowed(operation: str, after: bool, beat_fails: bool) -> None:
    clock = ManualClock()
    store, beats = MemoryStore(clock), Beats(fails=[StoreUnavailable("gone")] if beat_fails else [])
    answers: Any = FailingAnswers(store.answers, operation, after=after)
    broken = Deliveries([HOOK], beats, clock, answers, {"HOOK": SECRET})

    failed = await post(broken, key="k", clock=clock)
    await clock.advance(HANDLED_WITHIN)
    again = await post(desk(store, beats, clock), key="k", clock=clock)

    assert failed.status is HTTPStatus.SERVICE_UNAVAILABLE
    assert "secret" not in str(failed.body)
    assert (again.status, again.body["repeated"]) == (HTTPStatus.OK, False)


async def test_a_delivery_whose_process_died_may_come_again_soon() -> None:
    clock = ManualClock()
    store, beats = MemoryStore(clock), Beats(holds=asyncio.Event())
    async with asyncio.TaskGroup() as group:
        dying = group.create_task(post(desk(store, beats, clock), key="k", clock=clock))
        while not beats.running:
            await asyncio.sleep(0)
        beats.holds = None
        await clock.advance(HANDLED_WITHIN)
        again = await post(desk(store, beats, clock), key="k", clock=clock)
        dying.cancel()

    assert (again.status, again.body["repeated"]) == (HTTPStatus.OK, False)


async def test_a_delivery_whose_beat_ran_is_done_even_if_that_cannot_be_recorded() -> None:
    store, beats = MemoryStore(CLOCK), Beats()
    answers: Any = FailingAnswers(store.answers, "give")

    answer = await post(Deliveries([HOOK], beats, CLOCK, answers, {"HOOK": SECRET}))

    assert (answer.status, answer.body["repeated"]) == (HTTPStatus.OK, False)


async def test_a_delivery_is_known_for_a_day() -> None:
    clock = ManualClock()
    store, beats = MemoryStore(clock), Beats()
    repeated = []

    for hours in (0, 23, 2):
        await clock.advance(timedelta(hours=hours))
        repeated.append((await post(desk(store, beats, clock), key="k", clock=clock)).body["repeated"])

    assert repeated == [False, True, False]


async def test_by_the_time_a_delivery_is_forgotten_its_signature_is_too_old() -> None:
    clock, beats = ManualClock(), Beats()
    deliveries, kept = desk(MemoryStore(clock), beats, clock=clock), headers(clock=clock)
    await deliveries.answer("POST", "/triggers/hook", kept, BODY)
    statuses = set()

    for _ in range(60):
        await clock.advance(timedelta(hours=1))
        statuses.add((await deliveries.answer("POST", "/triggers/hook", kept, BODY)).status)

    assert statuses == {HTTPStatus.UNAUTHORIZED}
    assert len(beats.asked) == 1
    assert timedelta(days=1) > WINDOW * 2


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NotFound("no pool 'papers'"), HTTPStatus.UNPROCESSABLE_ENTITY),
        (InvalidInput("a fleet pool"), HTTPStatus.UNPROCESSABLE_ENTITY),
        (StoreUnavailable("postgresql://secret"), HTTPStatus.SERVICE_UNAVAILABLE),
    ],
)
async def test_a_delivery_whose_beat_failed_may_come_again(error: Exception, status: HTTPStatus) -> None:
    beats = Beats(fails=[error])
    deliveries = desk(MemoryStore(CLOCK), beats)

    failed, again = await post(deliveries), await post(deliveries)

    assert (failed.status, again.status, again.body["repeated"]) == (status, HTTPStatus.OK, False)
    assert "secret" not in str(failed.body)


@pytest.mark.parametrize(
    ("beat", "status"),
    [
        ({"led": False, "why_not": "another checker is running"}, HTTPStatus.OK),
        ({"led": True, "ok": False, "error": "observe: secret"}, HTTPStatus.SERVICE_UNAVAILABLE),
        ({"led": True, "ok": False, "actions": [{"type": "Spawn", "error": "secret"}]}, HTTPStatus.SERVICE_UNAVAILABLE),
    ],
)
async def test_a_delivery_that_woke_no_beat_of_its_own_may_come_again(beat: dict[str, object], status: HTTPStatus) -> None:
    asked: list[Firing] = []

    async def run(firing: Firing) -> Mapping[str, object]:
        asked.append(firing)
        return {"papers": beat}

    deliveries = Deliveries([HOOK], run, CLOCK, MemoryStore(CLOCK).answers, {"HOOK": SECRET})

    answers = [await post(deliveries), await post(deliveries)]

    assert [(answer.status, answer.body.get("repeated", False)) for answer in answers] == [(status, False)] * 2
    assert len(asked) == 2
    assert "secret" not in str(answers)


async def test_an_error_nobody_expected_is_raised_and_the_delivery_may_come_again() -> None:
    beats = Beats(fails=[ZeroDivisionError()])
    deliveries = desk(MemoryStore(CLOCK), beats)

    with pytest.raises(ZeroDivisionError):
        await post(deliveries)

    assert (await post(deliveries)).body["repeated"] is False


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/", HTTPStatus.NOT_FOUND),
        ("POST", "/triggers/other", HTTPStatus.NOT_FOUND),
        ("POST", "/triggers/t", HTTPStatus.NOT_FOUND),
        ("POST", "hook", HTTPStatus.NOT_FOUND),
        ("GET", "/triggers/hook", HTTPStatus.METHOD_NOT_ALLOWED),
        ("POST", "/triggers/hook?x=1", HTTPStatus.OK),
    ],
)
async def test_where_webhooks_are(method: str, path: str, status: HTTPStatus) -> None:
    answer = await desk(MemoryStore(CLOCK), Beats()).answer(method, path, headers(), BODY)

    assert answer.status is status


async def test_an_unsigned_request_is_refused_with_the_field_named() -> None:
    beats = Beats()

    answer = await desk(MemoryStore(CLOCK), beats).answer("POST", "/triggers/hook", {}, BODY)

    assert answer.status is HTTPStatus.UNAUTHORIZED
    assert answer.body["error"].startswith(SIGNATURE)
    assert beats.asked == []


@pytest.mark.parametrize(("variables", "got"), [({}, "got none"), ({"HOOK": "short-secret"}, "got 12 characters")])
async def test_a_webhook_without_its_secret_is_refused_and_others_are_answered(variables: dict[str, str], got: str) -> None:
    store, beats, other = MemoryStore(CLOCK), Beats(), trigger("other", "webhook", secret_variable="OTHER")
    deliveries = Deliveries([HOOK, other], beats, CLOCK, store.answers, {"OTHER": SECRET, **variables})

    with pytest.raises(InvalidSettings, match=f"environment variable HOOK, {got}") as caught:
        await post(deliveries)
    with pytest.raises(InvalidSettings, match=f"environment variable HOOK, {got}"):
        deliveries.check_secrets()

    assert "short-secret" not in str(caught.value)
    assert (await post(deliveries, "/triggers/other")).status is HTTPStatus.OK
    assert beats.names == ["other"]


async def talk(port: int, said: bytes, *, end: bool = True) -> tuple[int, dict[str, object]]:
    """Send bytes as they are; the status and the body of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(said)
    if end:
        writer.write_eof()
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


def request(more: Mapping[str, str] | None = None, line: str = "POST /triggers/hook HTTP/1.1") -> bytes:
    named = {"Host": "localhost", "Content-Length": str(len(BODY)), **headers(), **(more or {})}
    return "\r\n".join([line, *(f"{name}: {value}" for name, value in named.items()), "", ""]).encode() + BODY


async def test_over_a_real_socket() -> None:
    beats = Beats()
    deliveries = desk(MemoryStore(CLOCK), beats)

    async with serve(deliveries.answer, "127.0.0.1", 0) as (host, port):
        first, second = await talk(port, request(), end=False), await talk(port, request())

    assert host == "127.0.0.1"
    assert first == (200, {"trigger": "hook", "repeated": False, "beats": {"papers": {"led": True, "ok": True}}})
    assert second == (200, {"trigger": "hook", "repeated": True})
    assert len(beats.asked) == 1


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (b"\r\n\r\n", 400),
        (b"hello\r\n\r\n", 400),
        (b"POST /triggers/hook HTTP/1.1\r\n", 400),
        (b"POST /triggers/hook SMTP\r\n\r\n", 400),
        (request({"Content-Length": "many"}), 400),
        (request({"Content-Length": "-1"}), 400),
        (request({"Content-Length": "99"}), 400),
        (request({"Content-Length": str(LARGEST_BODY + 1)}), 413),
        (request({"Content-Length": "9" * 5000}), 413),
        (request({"Transfer-Encoding": "chunked"}), 411),
        (request({"X-Long": "x" * 20_000}), 431),
        (request(line="GET / HTTP/1.1"), 404),
        (request({SIGNATURE: "sha256=00"}), 401),
    ],
)
async def test_what_is_no_request_is_answered_all_the_same(said: bytes, status: int) -> None:
    beats = Beats()

    async with serve(desk(MemoryStore(CLOCK), beats).answer, "127.0.0.1", 0) as (_, port):
        answered, body = await talk(port, said)
        assert (await talk(port, request()))[0] == 200

    assert answered == status
    assert body["error"]
    assert len(beats.asked) == 1


async def test_an_error_nobody_expected_ends_no_server() -> None:
    beats = Beats(fails=[ZeroDivisionError("hush")])

    async with serve(desk(MemoryStore(CLOCK), beats).answer, "127.0.0.1", 0) as (_, port):
        failed, again = await talk(port, request()), await talk(port, request())

    assert failed == (500, {"error": "internal error; see the server's log"})
    assert again[0] == 200


async def test_a_port_that_is_taken_is_told() -> None:
    answer = desk(MemoryStore(CLOCK), Beats()).answer

    async with serve(answer, "127.0.0.1", 0) as (_, port):
        with pytest.raises(InvalidSettings, match="choose another --port"):
            async with serve(answer, "127.0.0.1", port):
                pass
