"""Pools, jobs, fleets, triggers and figures over HTTP."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from drumbeat.composition.offline import fleet_policy
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.core.worker import WorkerId, WorkerStatus
from drumbeat.store.contract.given import joined, moved
from web.given import Web, fleet, web

JOBS = "/api/v1/pools/jobs/jobs"


class TestPools:
    async def test_a_pool_is_made_once_and_shown(self, api: httpx.AsyncClient) -> None:
        body = {"pool_id": "made", "mode": "loop", "concurrency": 4, "capabilities": ["gpu"], "lease": 30, "max_workers": 2}

        made, again = await api.post("/api/v1/pools", json=body), await api.post("/api/v1/pools", json=body)

        assert (made.status_code, again.status_code) == (201, 409)
        assert made.json()["policy"] == {
            "mode": "loop", "concurrency": 4, "capabilities": ["gpu"], "lease": 30, "max_workers": 2,
        }  # fmt: skip
        shown = (await api.get(made.headers["Location"])).json()
        assert (shown["jobs"]["ready"], shown["workers"], shown["paused"]) == (0, [], False)
        assert (shown["unhandled"], shown["no_handler"], shown["trouble"]) == ({}, None, None)
        assert "made" in [each["pool_id"] for each in (await api.get("/api/v1/pools", params={"kind": "jobs"})).json()]

    async def test_jobs_without_a_handler_are_told(self, api: httpx.AsyncClient, furnished: Web) -> None:
        await furnished.plane.pool("typed").create(handlers={"resize": "m:f"})
        await api.post("/api/v1/pools/typed/jobs", json={"payload": 1, "type": "x"})

        shown = (await api.get("/api/v1/pools/typed")).json()

        assert shown["unhandled"] == {"x": 1}
        assert shown["no_handler"].startswith("1 job of type 'x' waits: no handler; add one with: drumbeat pool create typed")

    async def test_what_its_workers_run_is_not_said_over_http(self, api: httpx.AsyncClient) -> None:
        answer = await api.post("/api/v1/pools", json={"pool_id": "evil", "handlers": {"": "command:rm -rf /"}})

        assert answer.status_code == 422
        assert answer.json()["errors"][0]["field"] == "handlers"

    async def test_a_pool_is_deleted_and_its_unfinished_jobs_only_if_asked(self, api: httpx.AsyncClient) -> None:
        await api.post("/api/v1/pools", json={"pool_id": "short-lived"})
        await api.post("/api/v1/pools/short-lived/jobs", json={"payload": 1})

        refused = await api.delete("/api/v1/pools/short-lived")
        deleted = await api.delete("/api/v1/pools/short-lived", params={"unfinished": True})

        assert (refused.status_code, deleted.status_code) == (409, 204)
        assert "1 unfinished jobs" in refused.json()["detail"]
        assert (await api.get("/api/v1/pools/short-lived")).status_code == 404

    async def test_a_pool_is_paused_for_a_while_or_until_resumed(self, api: httpx.AsyncClient) -> None:
        await api.post("/api/v1/pools", json={"pool_id": "pausing"})

        await api.post("/api/v1/pools/pausing/pause", json={"seconds": 3600})
        assert (await api.get("/api/v1/pools/pausing")).json()["paused"]
        forever = await api.post("/api/v1/pools/pausing/pause", json={})
        resumed = await api.post("/api/v1/pools/pausing/resume")

        assert forever.json()["paused_until"].startswith("9999")
        assert resumed.json()["paused_until"] is None
        assert (await api.post("/api/v1/pools/pausing/pause", json={"seconds": -1})).status_code == 422

    @pytest.mark.parametrize(
        "part", ["", "/workers", "/events", "/beats", "/beats/last", "/logs", "/samples", "/jobs", "/jobs/x", "/jobs/x/explain"]
    )
    async def test_an_unknown_pool_has_nothing(self, api: httpx.AsyncClient, part: str) -> None:
        assert (await api.get(f"/api/v1/pools/nowhere{part}")).status_code == 404

    async def test_a_pool_of_another_kind_is_no_pool_of_jobs(self, api: httpx.AsyncClient, furnished: Web) -> None:
        run_id = (await api.get("/api/v1/runs")).json()["items"][0]["run_id"]

        assert (await api.get(f"/api/v1/pools/{run_id}")).status_code == 422


class TestJobs:
    async def test_a_job_is_pushed_shown_and_explained(self, api: httpx.AsyncClient) -> None:
        body = {
            "payload": {"n": [1, None, "ü"]}, "type": "mail", "priority": 5, "delay": 60, "max_attempts": 2,
            "backoff": {"first": 2}, "timeout": 30, "group": "g", "group_limit": 1, "group_rate": {"count": 1, "per": 60},
            "capability": "gpu", "unique_key": "k1",
        }  # fmt: skip

        pushed = await api.post("/api/v1/pools/new/jobs", json=body)
        again = await api.post("/api/v1/pools/new/jobs", json=body)
        shown = (await api.get(pushed.headers["Location"])).json()
        why = (await api.get(f"{pushed.headers['Location']}/explain")).json()

        assert pushed.status_code == 201
        assert again.json() == pushed.json()
        assert (shown["job"]["payload"], shown["job"]["priority"], shown["attempts"]) == ({"n": [1, None, "ü"]}, 5, [])
        assert why["why"] == "delayed"
        assert why["reasons"][0]["says"]

    async def test_an_event_is_sent_to_a_job_once(self, api: httpx.AsyncClient) -> None:
        job = (await api.post("/api/v1/pools/new/jobs", json={"payload": 1})).headers["Location"]

        sent = await api.post(f"{job}/events", json={"name": "approval", "value": {"by": "Ada"}})
        again = await api.post(f"{job}/events", json={"name": "approval"})
        unknown = await api.post("/api/v1/pools/new/jobs/none/events", json={"name": "approval"})
        shown = (await api.get(job)).json()
        why = (await api.get(f"{job}/explain")).json()

        assert (sent.status_code, again.status_code, unknown.status_code) == (204, 409, 404)
        assert "the first one counts" in again.json()["detail"]
        [step] = shown["steps"]
        assert (step["kind"], step["position"], step["name"], step["result"]) == ("sent", -1, "approval", {"by": "Ada"})
        assert (shown["job"]["has_steps"], shown["job"]["events_sent"]) == (True, 1)
        assert "event 'approval' was sent" in why["steps"][0]

    @pytest.mark.parametrize("option", ["job_id", "unique_key", "group", "workflow_id"])
    async def test_an_empty_key_is_refused(self, api: httpx.AsyncClient, option: str) -> None:
        answer = await api.post("/api/v1/pools/empty/jobs", json={"payload": 1, option: ""})

        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, option)

    async def test_many_are_pushed_or_none(self, api: httpx.AsyncClient) -> None:
        many = await api.post("/api/v1/pools/many/jobs/many", json={"jobs": [{"payload": n} for n in range(5)]})
        wrong = await api.post("/api/v1/pools/many/jobs/many", json={"jobs": [{"payload": 1}, {"payload": 1, "priority": "x"}]})
        listed = (await api.get("/api/v1/pools/many/jobs", params={"limit": 3})).json()
        rest = (await api.get(listed["next"])).json()

        assert many.status_code == 201
        assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, "jobs.1.priority")
        assert [each["job_id"] for each in (*listed["items"], *rest["items"])] == many.json()["job_ids"]
        assert rest["next"] is None

    @pytest.mark.parametrize("many", [False, True])
    async def test_a_payload_above_the_limit_of_the_store_is_pushed_as_a_large_value(self, tmp_path: Path, many: bool) -> None:
        job = {"payload": "x" * 2_000_000}
        async with web(tmp_path, large=f"file://{tmp_path}/large") as made, made.client() as api:
            path, body = ("/jobs/many", {"jobs": [job]}) if many else ("/jobs", job)
            answer = await api.post(f"/api/v1/pools/p{path}", json=body)

            assert answer.status_code == 201
            assert (await made.plane.pool("p").job(answer.json()["job_ids"][0])).payload == job["payload"]

    async def test_an_empty_list_of_jobs_to_requeue_is_refused(self, api: httpx.AsyncClient) -> None:
        before = (await api.get(f"{JOBS}/one")).json()["job"]["status"]

        answer = await api.post(f"{JOBS}/requeue", json={"job_ids": []})

        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "job_ids")
        assert "leave job_ids out to requeue all poisoned jobs" in answer.json()["errors"][0]["detail"]
        assert (await api.get(f"{JOBS}/one")).json()["job"]["status"] == before

    async def test_poisoned_jobs_are_requeued_and_pending_ones_cancelled(self, api: httpx.AsyncClient) -> None:
        poisoned = (await api.get(JOBS, params={"status": "poisoned"})).json()["items"]

        requeued = await api.post(f"{JOBS}/requeue", json={"job_ids": ["one"]})
        cancelled = await api.post(f"{JOBS}/cancel", json={"job_ids": ["two"]})
        unknown = await api.post(f"{JOBS}/cancel", json={"job_ids": ["nobody"]})
        none = await api.post(f"{JOBS}/requeue", json={})

        assert [(each["job_id"], each["last_error"]) for each in poisoned] == [("one", "it broke")]
        assert requeued.json() == {"job_ids": ["one"]}
        assert [(each["job_id"], each["status"]) for each in cancelled.json()] == [("two", "cancelled")]
        assert unknown.status_code == 404
        assert none.json() == {"job_ids": []}

    @pytest.mark.parametrize(
        ("body", "field"),
        [
            ({}, "payload"),
            ({"payload": 1, "nonsense": 1}, "nonsense"),
            ({"payload": 1, "delay": -1}, "delay"),
            ({"payload": 1, "delay": 1e300}, "delay"),
            ({"payload": 1, "run_at": "tomorrow"}, "run_at"),
            ({"payload": "\ud800"}, "payload"),
            ({"payload": {"a": ["x\0"]}}, "payload.a.0"),
            ({"payload": 1, "type": "\0"}, "type"),
        ],
    )
    async def test_what_is_no_job_is_refused_by_its_field(self, api: httpx.AsyncClient, body: Any, field: str) -> None:
        answer = await api.post(JOBS, content=json.dumps(body), headers={"Content-Type": "application/json"})

        assert answer.status_code == 422
        assert answer.json()["errors"][0]["field"] == field

    @pytest.mark.parametrize(
        "text", ["", "{", "[NaN]", '{"payload": Infinity}', "[" * 100_000, '{"payload":' + "[" * 110 + "]" * 110 + "}", "\xff"]
    )
    async def test_what_is_no_json_is_refused(self, api: httpx.AsyncClient, text: str) -> None:
        answer = await api.post(JOBS, content=text, headers={"Content-Type": "application/json"})

        assert answer.status_code in (400, 422)
        assert answer.headers["Content-Type"] == "application/problem+json"


class TestFleet:
    async def test_it_stands_explains_plans_and_costs(self, api: httpx.AsyncClient) -> None:
        shown = (await api.get("/api/v1/fleet/fleet")).json()
        plan = (await api.get("/api/v1/fleet/fleet/plan")).json()
        spent = (await api.get("/api/v1/fleet/fleet/spend")).json()

        assert [each["worker_id"] for each in shown["workers"]] == ["w1"]
        assert (plan["policy"], plan["pool_id"]) == ("lag_aware", "fleet")
        assert plan["sentences"]
        assert spent["price_per_hour"] == 2
        assert (await api.get("/api/v1/fleet/fleet/explain")).status_code == 404
        assert (await api.get("/api/v1/fleet/fleet/deeds")).json() == []
        assert (await api.get("/api/v1/fleet/nowhere")).status_code == 404

    async def test_a_worker_is_drained_and_killed(self, api: httpx.AsyncClient, furnished: Web) -> None:
        await fleet(furnished, "leaving")
        unknown = await api.post("/api/v1/fleet/leaving/drain", json={"workers": ["nobody"]})
        drained = await api.post("/api/v1/fleet/leaving/drain", json={"within": 60})
        killed = await api.post("/api/v1/fleet/leaving/workers/w1/kill")
        again = await api.post("/api/v1/fleet/leaving/workers/w1/kill")

        assert unknown.status_code == 404
        assert (drained.status_code, drained.json()) == (202, {"workers": ["w1"]})
        assert killed.json()["status"] == "terminated"
        assert again.status_code == 422

    async def test_a_worker_is_exempt_and_the_provider_tried_again(self, api: httpx.AsyncClient, furnished: Web) -> None:
        await fleet(furnished, "tested")
        exempt = await api.post("/api/v1/fleet/tested/workers/w1/exempt")
        counts = await api.post("/api/v1/fleet/tested/workers/w1/exempt", json={"exempt": False})
        unknown = await api.post("/api/v1/fleet/tested/workers/w9/exempt")
        retried = await api.post("/api/v1/fleet/tested/retry")
        no_fleet = await api.post("/api/v1/fleet/jobs/retry")

        assert [answer.json()["meta"]["capacity_exempt"] for answer in (exempt, counts)] == [True, False]
        assert (unknown.status_code, no_fleet.status_code) == (404, 422)
        assert (retried.status_code, retried.json()["pool_id"]) == (202, "tested")
        assert (await furnished.plane.store.notes.find("fleet/tested/retry")) is not None

    async def test_workers_that_are_elsewhere_are_asked_for_there_or_not_at_all(
        self, api: httpx.AsyncClient, furnished: Web
    ) -> None:
        fleet, store = "elsewhere", furnished.plane.store
        policy = fleet_policy(None, {"policy": "lag_aware", "provider": "runpod", "price_per_hour": "2"})
        home = await store.pools.create(pool(fleet, PoolKind.FLEET, **policy.to_json()))
        await moved(store, await joined(store, home, WorkerId("w1")), WorkerStatus.WAITING, WorkerStatus.ACTIVE)
        answers = [
            await api.get(f"/api/v1/fleet/{fleet}/plan"),
            await api.get(f"/api/v1/fleet/{fleet}/spend"),
            await api.post(f"/api/v1/fleet/{fleet}/workers/w1/kill"),
        ]

        assert {answer.status_code for answer in answers} == {422}
        assert {"workers at runpod can reach" in answer.json()["detail"] for answer in answers} == {True}
        assert [each.status for each in await store.workers.list(PoolId(fleet))] == [WorkerStatus.ACTIVE]

    async def test_a_trace_of_jobs_that_take_no_time_is_simulated_too(self, api: httpx.AsyncClient) -> None:
        jobs = [{"arrival": 1000, "duration": 1e-300}, {"arrival": 1000, "duration": 0}]

        assert (await api.post("/api/v1/simulate", json={"jobs": jobs})).status_code == 200

    async def test_a_runs_pool_is_no_fleet(self, api: httpx.AsyncClient) -> None:
        run_id = (await api.get("/api/v1/runs", params={"status": "COMPLETED"})).json()["items"][0]["run_id"]

        for part in ("", "/plan", "/explain", "/spend", "/deeds"):
            assert (await api.get(f"/api/v1/fleet/{run_id}{part}")).status_code == 422

    async def test_a_pool_that_nobody_scales_has_no_plan(self, api: httpx.AsyncClient) -> None:
        answer = await api.get("/api/v1/fleet/jobs/plan")

        assert (answer.status_code, "drumbeat fleet create" in answer.json()["detail"]) == (422, True)

    async def test_a_trace_is_simulated(self, api: httpx.AsyncClient) -> None:
        jobs = [{"arrival": n * 10, "duration": 30} for n in range(50)]

        found = await api.post("/api/v1/simulate", json={"jobs": jobs, "settings": {"max_workers": 3}, "spawn_lag": 60})

        assert found.status_code == 200, found.text
        assert found.json()["figures"]["jobs"] == 50
        assert max(found.json()["course"]["workers"]) <= 3

    @pytest.mark.parametrize(
        "body",
        [
            {"jobs": []},
            {"jobs": [{"arrival": -1, "duration": 1}]},
            {"jobs": [{"arrival": 1e300, "duration": 1}]},
            {"jobs": [{"arrival": 0, "duration": 1}], "settings": {"nonsense": 1}},
            {"jobs": [{"arrival": 0, "duration": 86_400}], "settings": {"every": "1ms"}},
            {"jobs": [{"arrival": 0, "duration": 1}], "policy": "nonsense"},
        ],
    )
    async def test_a_trace_that_would_take_too_long_is_refused(self, api: httpx.AsyncClient, body: dict[str, Any]) -> None:
        assert (await api.post("/api/v1/simulate", json=body)).status_code == 422


class TestHealth:
    async def test_it_lives_is_ready_and_says_what_it_is(self, api: httpx.AsyncClient) -> None:
        info = (await api.get("/api/v1/info")).json()

        assert (await api.get("/health")).json() == {"status": "alive"}
        assert (await api.get("/ready")).json() == {"status": "ready"}
        assert (info["name"], info["role"], info["store"], info["seals_passwords"]) == ("drumbeat", "operator", "sqlite", True)

    async def test_prometheus_finds_what_it_looks_for(self, api: httpx.AsyncClient) -> None:
        answer = await api.get("/metrics")

        lines = answer.text.splitlines()
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert "drumbeat_up 1" in lines
        assert 'drumbeat_runs{status="COMPLETED"} 2' in lines
        assert any(line.startswith('drumbeat_jobs{pool="jobs",state="ready"} ') for line in lines)
        assert any(line.startswith('drumbeat_spent{pool="fleet",period="month"} ') for line in lines)
        helped = {line.split()[2] for line in lines if line.startswith("# HELP")}
        assert {line.partition("{")[0].split()[0] for line in lines if not line.startswith("#")} == helped

    async def test_its_description_is_whole(self, api: httpx.AsyncClient) -> None:
        found = (await api.get("/api/v1/openapi.json")).json()

        assert found["openapi"].startswith("3.1")
        assert "HTTPValidationError" not in found["components"]["schemas"]
        for path, operations in found["paths"].items():
            for method, operation in operations.items():
                assert operation["operationId"], (method, path)
                assert operation.get("summary"), (method, path)
                assert "401" in operation["responses"]

    @pytest.mark.parametrize(
        ("path", "allowed"),
        [
            ("/health", "GET, HEAD, OPTIONS"),
            ("/api/v1/runs", "GET, HEAD, OPTIONS, POST"),
            ("/api/v1/templates/x", "DELETE, GET, HEAD, OPTIONS, PUT"),
        ],
    )
    async def test_head_options_and_what_is_not_allowed(self, api: httpx.AsyncClient, path: str, allowed: str) -> None:
        options, head, got = await api.options(path), await api.head(path), await api.get(path)
        wrong = await api.request("PATCH", path)

        assert (options.status_code, options.headers["Allow"]) == (204, allowed)
        assert (head.status_code, head.content) == (got.status_code, b"")
        assert head.headers["Content-Length"] == str(len(got.content))
        assert (wrong.status_code, wrong.headers["Allow"]) == (405, allowed)

    @pytest.mark.parametrize("job_id", ["many", "cancel", "requeue", "cancel-matching"])
    async def test_a_job_may_be_named_like_a_path(self, api: httpx.AsyncClient, job_id: str) -> None:
        pushed = await api.post("/api/v1/pools/named/jobs", json={"payload": 1, "job_id": job_id})

        assert pushed.status_code == 201
        assert (await api.get(pushed.headers["Location"])).json()["job"]["job_id"] == job_id
        assert (await api.options(pushed.headers["Location"])).headers["Allow"] == "GET, HEAD, OPTIONS, POST"

    async def test_what_is_not_there_is_a_problem(self, api: httpx.AsyncClient) -> None:
        for answer in (await api.get("/api/v1/nonsense"), await api.options("/api/v1/nonsense")):
            assert (answer.status_code, answer.json()["title"]) == (404, "Not Found")


@pytest.mark.parametrize("name", ["a b", "ünd%20", "a#1?&='", "a:b@c", "%2e%2e", "🥁"])
async def test_a_pool_of_an_odd_name_is_found_under_its_path(api: httpx.AsyncClient, name: str) -> None:
    made = await api.post("/api/v1/pools", json={"pool_id": name})
    shown = await api.get(f"/api/v1/pools/{quote(name, safe='')}")
    pushed = await api.post(f"/api/v1/pools/{quote(name, safe='')}/jobs", json={"payload": 1})

    assert (made.status_code, shown.status_code, pushed.status_code) == (201, 200, 201)


@pytest.mark.parametrize("name", ["a/b", "..", ".", "a\\b", "a\tb", " a", "\u200b", "x" * 201, ""])
async def test_a_name_that_no_path_can_hold_is_refused_and_said_why(api: httpx.AsyncClient, name: str) -> None:
    refused = await api.post("/api/v1/pools", json={"pool_id": name})

    assert refused.status_code == 422
    assert "pool_id" in [each["field"].removeprefix("body.") for each in refused.json()["errors"]]


class TestOperations:
    async def test_jobs_are_counted_then_cancelled_by_filter(self, api: httpx.AsyncClient) -> None:
        jobs = "/api/v1/pools/by-filter/jobs"
        for kind in ("mail", "mail", "sms"):
            await api.post(jobs, json={"payload": 1, "type": kind})

        dry = (await api.post(f"{jobs}/cancel-matching", json={"filter": {"job_type": "mail"}, "dry_run": True})).json()
        done = (await api.post(f"{jobs}/cancel-matching", json={"filter": {"job_type": "mail"}})).json()
        moved = await api.post(
            f"{jobs}/reschedule-matching", json={"filter": {"job_type": "sms"}, "run_at": "2030-01-01T00:00:00Z"}
        )
        raised = await api.post(f"{jobs}/prioritise-matching", json={"filter": {"job_type": "sms"}, "priority": 3})
        assert (moved.json()["changed"], raised.json()["changed"]) == (1, 1)
        back = (await api.post(f"{jobs}/requeue-matching", json={"filter": {"statuses": ["cancelled"]}, "limit": 1})).json()

        assert (dry["dry_run"], dry["matched"], dry["changed"], len(dry["examples"])) == (True, 2, 0, 2)
        assert (done["matched"], done["changed"], done["skipped_ids"]) == (2, 2, [])
        assert (back["changed"], back["limited"]) == (1, True)

    @pytest.mark.parametrize("body", [{}, {"filter": {}}, {"filter": {"statuses": ["done"]}}, {"filter": {"kind": "x"}}])
    async def test_a_filter_that_cannot_be_used_is_refused(self, api: httpx.AsyncClient, body: dict[str, Any]) -> None:
        assert (await api.post(f"{JOBS}/cancel-matching", json=body)).status_code == 422

    async def test_errors_are_grouped(self, api: httpx.AsyncClient, furnished: Web) -> None:
        failing = furnished.plane.pool("failing")
        await failing.push_many([{}] * 2, max_attempts=1, type="fetch")
        for seconds in (3, 17):
            claimed = await failing.claim()
            assert claimed is not None
            await failing.fail(claimed, f"timeout after {seconds} s")

        found = (await api.get("/api/v1/pools/failing/errors", params={"newer_than": 3600})).json()

        assert [(each["error"], each["jobs"], each["types"]) for each in found["groups"]] == [
            ("timeout after <n> s", 2, ["fetch"])
        ]
        assert (await api.get("/api/v1/pools/failing/errors", params={"type": "x"})).json()["groups"] == []
        assert (await api.get("/api/v1/pools/nowhere/errors")).status_code == 404

    async def test_a_job_type_is_paused_and_resumed(self, api: httpx.AsyncClient) -> None:
        await api.post("/api/v1/pools", json={"pool_id": "by-type"})

        await api.post("/api/v1/pools/by-type/pause", json={"types": ["mail"]})
        paused = (await api.get("/api/v1/pools/by-type")).json()
        await api.post("/api/v1/pools/by-type/resume", json={"types": ["mail"]})

        assert (paused["paused"], paused["paused_types"]) == (False, ["mail"])
        assert (await api.get("/api/v1/pools/by-type")).json()["paused_types"] == []
        both = await api.post("/api/v1/pools/by-type/pause", json={"types": ["mail"], "seconds": 5})
        assert (both.status_code, "expected no time when types are given" in both.json()["detail"]) == (422, True)
