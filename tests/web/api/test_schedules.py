"""Schedules of a pool over HTTP."""

import httpx
import pytest

SCHEDULES = "/api/v1/pools/timed/schedules"


async def test_a_schedule_is_added_shown_paused_resumed_and_removed(api: httpx.AsyncClient) -> None:
    body = {"name": "nightly 1", "payload": {"a": 1}, "cron": "0 3 * * *", "tz": "Europe/Berlin", "type": "report"}

    added = await api.post(SCHEDULES, json={**body, "backoff": {"first": 5}})
    again = await api.post(SCHEDULES, json=body)
    changed = await api.post(SCHEDULES, json={**body, "cron": "@daily", "update": True})

    assert (added.status_code, again.status_code, changed.status_code) == (201, 409, 201)
    assert (added.json()["options"]["type"], added.json()["options"]["backoff"]["first"]) == ("report", "PT5S")
    shown = (await api.get(added.headers["Location"])).json()
    assert (shown["cron"], shown["payload"], len(shown["next"])) == ("@daily", {"a": 1}, 5)
    assert "no process has looked after the schedules of timed yet" in shown["problem"]
    paused = await api.post(f"{added.headers['Location']}/pause")
    assert (paused.json()["paused"], paused.json()["next"]) == (True, [])
    assert (await api.post(f"{added.headers['Location']}/resume")).json()["paused"] is False
    assert [each["name"] for each in (await api.get(SCHEDULES)).json()] == ["nightly 1"]
    assert (await api.delete(added.headers["Location"])).status_code == 204
    assert (await api.get(SCHEDULES)).json() == []
    assert (await api.get(added.headers["Location"])).status_code == 404


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"name": "x", "cron": "0 0 31 2 *"}, "a day of month that exists"),
        ({"name": "a/b", "every": 60}, "expected the name of a schedule"),
        ({"name": "x"}, "expected either cron or every"),
        ({"name": "x", "every": 0.5}, "every"),
        ({"name": "x", "every": 60, "handlers": {}}, "handlers"),
    ],
)
async def test_a_schedule_that_cannot_be_is_refused(api: httpx.AsyncClient, body: dict[str, object], says: str) -> None:
    answer = await api.post(SCHEDULES, json=body)

    assert answer.status_code == 422
    assert says in answer.text


async def test_readers_see_schedules_and_change_none(reader: httpx.AsyncClient, operator: httpx.AsyncClient) -> None:
    assert (await operator.post(SCHEDULES, json={"name": "s", "every": 60})).status_code == 201

    assert (await reader.get(SCHEDULES)).status_code == 200
    assert (await reader.post(SCHEDULES, json={"name": "t", "every": 60})).status_code == 403
    assert (await reader.post(f"{SCHEDULES}/s/pause")).status_code == 403
    assert (await reader.delete(f"{SCHEDULES}/s")).status_code == 403
