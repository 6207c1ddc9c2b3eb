"""Runs over HTTP: made, started, stopped, listed, read, compared, run again and removed."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from drumbeat.bench.results import judgement
from drumbeat.core.run import Execution, RunId
from drumbeat.core.worker import WorkerId
from web.given import Web, document, ended_run

FAILURES = (("DATABASE_ERROR", "40001"), ("DATABASE_ERROR", "23505"), ("CONNECTION", None))
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


async def ids(api: httpx.AsyncClient, **query: Any) -> list[str]:
    found = await api.get("/api/v1/runs", params={"limit": 1000, **query})
    assert found.status_code == 200, found.text
    return [each["run_id"] for each in found.json()["items"]]


async def run_named(api: httpx.AsyncClient, name: str) -> str:
    return (await ids(api, search=name, status="COMPLETED"))[0]


async def new_run(api: httpx.AsyncClient, **more: Any) -> str:
    made = await api.post("/api/v1/runs", json={"template": "kept", **more})
    assert made.status_code == 201, made.text
    run_id: str = made.json()["run"]["run_id"]
    return run_id


class TestMaking:
    async def test_a_run_is_made_from_a_template_and_says_where_it_is(self, api: httpx.AsyncClient) -> None:
        made = await api.post("/api/v1/runs", json={"template": "kept", "settings": {"concurrent_connections": 3}})

        assert made.status_code == 201
        told = made.json()
        assert (told["run"]["status"], told["preflight"]["total_connections"]) == ("PREPARED", 3)
        shown = await api.get(made.headers["Location"])
        assert shown.json()["config"]["concurrent_connections"] == 3

    async def test_a_run_is_made_from_a_document(self, api: httpx.AsyncClient, furnished: Web) -> None:
        document = {
            "name": "by hand",
            "target": {"url": furnished.target},
            "workload": {"standard": "read-only", "scale": 0.01},
        }

        made = await api.post("/api/v1/runs", json={"document": document})

        assert made.status_code == 201
        assert made.json()["run"]["name"] == "by hand"

    @pytest.mark.parametrize(
        ("body", "status", "field"),
        [
            ({}, 422, "template"),
            ({"template": "kept", "document": {}}, 422, "template"),
            ({"template": "nowhere"}, 404, None),
            ({"document": {}}, 422, "target.url"),
            ({"document": {"load_mode": "NONSENSE"}}, 422, "load_mode"),
            ({"document": {"load_mode": "NONSENSE", "target_qps": -1}}, 422, "target_qps"),
            ({"template": "kept", "settings": {"scaling.nonsense": 1}}, 422, "scaling.nonsense"),
            ({"template": "kept", "settings": {"a=b": 1}}, 422, "settings"),
            ({"template": "kept", "nonsense": 1}, 422, "nonsense"),
            ({"document": {"target": {"url": "postgresql://u:secret@h/d"}}}, 422, "target.url"),
        ],
    )
    async def test_what_cannot_be_run_is_refused_and_the_field_named(
        self, api: httpx.AsyncClient, body: dict[str, Any], status: int, field: str | None
    ) -> None:
        before = await ids(api)

        answer = await api.post("/api/v1/runs", json=body)

        assert answer.status_code == status, answer.text
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert answer.json()["status"] == status
        assert "secret" not in answer.text
        if field is not None:
            assert field in [each["field"] for each in answer.json()["errors"]], answer.text
        assert await ids(api) == before

    async def test_a_run_may_start_at_once_and_is_no_orphan_while_an_orchestrator_is_expected(
        self, api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(judgement, "TAKEN_OVER_WITHIN", timedelta(days=1))
        run_id = await new_run(api, start=True)

        standing = (await api.get(f"/api/v1/runs/{run_id}/status")).json()

        assert (standing["run"]["status"], standing["is_orphan"], standing["led_by"]) == ("STARTING", False, None)

    async def test_a_run_is_made_again_with_another_setting(self, api: httpx.AsyncClient) -> None:
        run_id = await run_named(api, "first")

        made = await api.post(f"/api/v1/runs/{run_id}/rerun", json={"settings": {"concurrent_connections": 5}})

        assert made.status_code == 201
        assert made.json()["preflight"]["total_connections"] == 5
        assert made.headers["Location"].endswith(made.json()["run"]["run_id"])

    async def test_a_run_is_made_again_and_listed_though_its_template_was_removed(
        self, api: httpx.AsyncClient, furnished: Web
    ) -> None:
        draft = json.loads(document(furnished, name="removed"))
        template = (await api.post("/api/v1/templates", json={"document": draft})).json()["template_id"]
        run_id = (await api.post("/api/v1/runs", json={"template": "removed"})).json()["run"]["run_id"]
        assert (await api.delete(f"/api/v1/templates/{template}")).status_code == 204

        made = await api.post(f"/api/v1/runs/{run_id}/rerun", json={"settings": {"concurrent_connections": 5}})

        assert made.status_code == 201, made.text
        assert made.json()["run"]["template_id"] == template
        assert await ids(api, template=template) == [made.json()["run"]["run_id"], run_id]
        for unknown in ("removed", "nowhere"):
            assert (await api.get("/api/v1/runs", params={"template": unknown})).status_code == 404


class TestMoving:
    async def test_a_run_is_started_once_and_stopped(self, api: httpx.AsyncClient) -> None:
        run_id = await new_run(api)

        started = await api.post(f"/api/v1/runs/{run_id}/start")
        again = await api.post(f"/api/v1/runs/{run_id}/start")
        stopped = await api.post(f"/api/v1/runs/{run_id}/stop")
        removed = await api.delete(f"/api/v1/runs/{run_id}")

        assert [started.status_code, again.status_code, stopped.status_code] == [202, 409, 202]
        assert started.json()["status"] == "STARTING"
        assert stopped.json()["status"] == "CANCELLING"
        assert removed.status_code == 409

    async def test_a_run_that_never_began_is_removed(self, api: httpx.AsyncClient) -> None:
        run_id = await new_run(api)

        assert (await api.delete(f"/api/v1/runs/{run_id}")).status_code == 204
        assert (await api.get(f"/api/v1/runs/{run_id}")).status_code == 404
        assert (await api.delete(f"/api/v1/runs/{run_id}")).status_code == 404


class TestListing:
    @pytest.mark.parametrize(
        ("query", "found"),
        [
            ({"search": "FIRST"}, {"first"}),
            ({"search": "first", "status": "COMPLETED"}, {"first"}),
            ({"search": "first", "status": ["RUNNING", "FAILED"]}, set()),
            ({"search": "first", "load_mode": "CONCURRENCY"}, {"first"}),
            ({"search": "first", "load_mode": "QPS"}, set()),
            ({"search": "first", "scaling_mode": "AUTO"}, {"first"}),
            ({"search": "first", "database": "sqlite"}, {"first"}),
            ({"search": "first", "database": "postgresql"}, set()),
            ({"search": "first", "since": "2100-01-01T00:00:00Z"}, set()),
            ({"search": "first", "until": "2100-01-01T00:00:00+01:00"}, {"first"}),
            ({"search": "first", "nonsense": "1"}, {"first"}),
        ],
    )
    async def test_runs_are_found(self, api: httpx.AsyncClient, query: dict[str, Any], found: set[str]) -> None:
        answer = await api.get("/api/v1/runs", params={**query, "status": query.get("status", "COMPLETED")})

        assert {each["name"] for each in answer.json()["items"]} == found

    async def test_pages_follow_one_another(self, api: httpx.AsyncClient) -> None:
        for _ in range(3):
            await new_run(api)
        everything = await ids(api)
        seen: list[str] = []
        path: str | None = "/api/v1/runs?limit=2"
        while path is not None:
            page = await api.get(path)
            seen += [each["run_id"] for each in page.json()["items"]]
            path = page.json()["next"]
            assert (path is None) == ("Link" not in page.headers)

        assert seen == everything

    async def test_runs_are_put_in_order(self, api: httpx.AsyncClient) -> None:
        newest, oldest = await ids(api), await ids(api, sort="created_at")
        names = [each["name"] for each in (await api.get("/api/v1/runs", params={"sort": "name"})).json()["items"]]

        assert oldest == newest[::-1]
        assert names == sorted(names)

    @pytest.mark.parametrize(
        "query",
        [
            {"limit": 0},
            {"limit": 1001},
            {"offset": -1},
            {"status": "x"},
            {"database": "oracle"},
            {"since": "yesterday"},
            {"since": "0"},
            {"until": "2100-01-01T00:00:00"},
        ],
    )
    async def test_a_query_that_makes_no_sense_is_refused(self, api: httpx.AsyncClient, query: dict[str, Any]) -> None:
        answer = await api.get("/api/v1/runs", params=query)

        assert answer.status_code == 422
        assert answer.json()["errors"][0]["field"].startswith(f"query.{next(iter(query))}")


class TestVerdicts:
    async def verdicts(self, api: httpx.AsyncClient, run_id: str, name: str) -> list[Any]:
        """As the list, the run and its status tell it."""
        listed = (await api.get("/api/v1/runs", params={"search": name, "status": "COMPLETED"})).json()["items"]
        shown = (await api.get(f"/api/v1/runs/{run_id}")).json()
        standing = (await api.get(f"/api/v1/runs/{run_id}/status")).json()
        return [(each["verdict"], each["verdict_reason"]) for each in (*listed, shown, standing, standing["run"])]

    async def test_a_missed_objective_is_told_wherever_the_run_is(self, api: httpx.AsyncClient, furnished: Web) -> None:
        missed = await ended_run(furnished, "too many errors", slo={"overall": {"max_error_pct": 5}}, errors=3)
        kept = await ended_run(furnished, "few errors", slo={"overall": {"max_error_pct": 50}}, errors=3)

        assert set(await self.verdicts(api, missed, "too many errors")) == {
            ("MISSED", "error rate of all kinds: 20 %, limit 5 %")
        }
        assert set(await self.verdicts(api, kept, "few errors")) == {("PASSED", "its objective was met")}

    async def test_without_an_objective_nothing_is_passed_and_without_operations_it_failed(
        self, api: httpx.AsyncClient, furnished: Web
    ) -> None:
        empty = await ended_run(furnished, "measured nothing", operations=0)

        assert set(await self.verdicts(api, await run_named(api, "first"), "first")) == {
            ("NO_OBJECTIVE", "no objective was set")
        }
        assert set(await self.verdicts(api, empty, "measured nothing")) == {("NOT_MEASURED", "nothing was measured")}

    async def test_a_run_that_nobody_leads_is_an_orphan_in_every_answer_and_has_no_verdict(
        self, api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(judgement, "TAKEN_OVER_WITHIN", timedelta())
        made = await api.post("/api/v1/runs", json={"template": "kept", "start": True})
        run_id = made.json()["run"]["run_id"]

        shown = (await api.get(f"/api/v1/runs/{run_id}")).json()
        standing = (await api.get(f"/api/v1/runs/{run_id}/status")).json()
        stopped = (await api.post(f"/api/v1/runs/{run_id}/stop")).json()

        for told in (made.json()["run"], shown, standing["run"], stopped):
            assert (told["verdict"], told["is_orphan"]) == ("PENDING", True)
        assert standing["is_orphan"]

    async def test_stopping_and_starting_answer_with_the_verdict_that_reading_gives(
        self, api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(judgement, "TAKEN_OVER_WITHIN", timedelta(days=1))
        ended, prepared, started = await run_named(api, "first"), await new_run(api), await new_run(api)

        answers = {
            ended: (await api.post(f"/api/v1/runs/{ended}/stop")).json(),
            prepared: (await api.post(f"/api/v1/runs/{prepared}/stop")).json(),
            started: (await api.post(f"/api/v1/runs/{started}/start")).json(),
        }

        for run_id, told in answers.items():
            shown = (await api.get(f"/api/v1/runs/{run_id}")).json()
            assert {name: shown[name] for name in told} == told
        assert [told["verdict"] for told in answers.values()] == ["NO_OBJECTIVE", "CANCELLED", "PENDING"]


PARTS = (
    "status", "samples", "steps", "decisions", "workers", "events", "beats", "logs", "results", "errors", "executions",
    "report", "regression", "trend",
)  # fmt: skip


class TestReading:
    @pytest.mark.parametrize("part", ["", *(f"/{part}" for part in PARTS)])
    async def test_an_unknown_run_has_nothing(self, api: httpx.AsyncClient, part: str) -> None:
        answer = await api.get(f"/api/v1/runs/nowhere{part}")

        assert answer.status_code == 404
        assert "nowhere" in answer.json()["detail"]

    async def test_its_course_is_thinned_here(self, api: httpx.AsyncClient) -> None:
        run_id = await run_named(api, "first")

        whole = (await api.get(f"/api/v1/runs/{run_id}/samples")).json()
        one = (await api.get(f"/api/v1/runs/{run_id}/samples", params={"points": 1})).json()

        assert whole["origin"] is not None
        assert len(one["points"]) == 1
        point = one["points"][0]
        assert point["p50_ms"] == pytest.approx(3, rel=0.02)
        assert point["p99_ms"] == pytest.approx(9, rel=0.02)
        assert sum(each["qps"] * each["seconds"] for each in whole["points"]) == pytest.approx(point["qps"] * point["seconds"])

    async def test_a_stretch_of_its_course_can_be_asked_for(self, api: httpx.AsyncClient) -> None:
        at = f"/api/v1/runs/{await run_named(api, 'first')}/samples"

        whole = (await api.get(at)).json()["points"]
        before = (await api.get(at, params={"until": whole[0]["offset"] + 1})).json()["points"]
        after = (await api.get(at, params={"since": whole[-1]["offset"] + 1})).json()["points"]
        wrong = await api.get(at, params={"since": -1})

        assert (before, after, wrong.status_code) == (whole[:1], [], 422)

    async def test_its_failed_operations_are_found_by_class_and_code(self, api: httpx.AsyncClient, furnished: Web) -> None:
        run_id = await new_run(api)
        await furnished.plane.store.executions.load(
            Execution(
                run_id=RunId(run_id), worker_id=WorkerId("w"), n=n, connection=0, kind="k", duration_ms=1.0, ok=False,
                started_at=MOMENT, error_class=error_class, error=code,
            )
            for n, (error_class, code) in enumerate(FAILURES)
        )  # fmt: skip

        async def found(**query: Any) -> list[int]:
            answer = await api.get(f"/api/v1/runs/{run_id}/executions", params=query)
            return [each["n"] for each in answer.json()["items"]]

        assert await found() == [0, 1, 2]
        assert await found(error_class="DATABASE_ERROR") == [0, 1]
        assert await found(error_class="DATABASE_ERROR", error="23505") == [1]
        assert await found(error_class="CONNECTION") == [2]
        assert await found(error_class="CONNECTION", ok=True) == []

    @pytest.mark.parametrize("order", ["started_at", "duration_ms"])
    async def test_all_its_operations_are_found_page_by_page(self, api: httpx.AsyncClient, furnished: Web, order: str) -> None:
        run_id = await new_run(api)
        await furnished.plane.store.executions.load(
            Execution(
                run_id=RunId(run_id), worker_id=WorkerId(f"w:{n % 2}"), n=n, connection=0, kind="k", duration_ms=n % 4 / 3,
                ok=True, started_at=MOMENT + timedelta(seconds=n // 3),
            )
            for n in range(10)
        )  # fmt: skip
        path = f"/api/v1/runs/{run_id}/executions"
        whole = (await api.get(path, params={"order": order})).json()["items"]

        found: list[dict[str, Any]] = []
        following = f"{path}?order={order}&limit=3&offset=1"
        while following:
            page = (await api.get(following)).json()
            found, following = [*found, *page["items"]], page["next"]
            assert "offset" not in (following or ""), "offset is limited, and a later page costs more"

        assert [each["n"] for each in found] == [each["n"] for each in whole[1:]]
        assert len(whole) == 10

    @pytest.mark.parametrize("after", ["", "7", "x:1:w", "1:-1:w", "9999999999999999999999:1:w", "1:1:"])
    async def test_a_position_that_is_none_is_refused(self, api: httpx.AsyncClient, after: str) -> None:
        answer = await api.get(f"/api/v1/runs/{await new_run(api)}/executions", params={"after": after})

        assert answer.status_code == 422
        assert "expected a position from the field next" in answer.text

    async def test_its_steps_results_and_decisions_are_there(self, api: httpx.AsyncClient) -> None:
        at = f"/api/v1/runs/{await run_named(api, 'first')}"

        steps, results = (await api.get(f"{at}/steps")).json(), (await api.get(f"{at}/results")).json()

        assert [(each["n"], each["outcome"], each["error_rate"]) for each in steps] == [(1, "STABLE", 0.0)]
        assert (await api.get(f"{at}/steps", params={"type": "QPS_SCALING"})).json() == []
        assert [(each["worker_id"], each["operations"]) for each in results] == [(None, 15)]
        assert (await api.get(f"{at}/decisions")).status_code == 200
        assert (await api.get(f"{at}/errors")).json()["errors"] == 0
        assert (await api.get(f"{at}/executions")).json() == {"items": [], "next": None}
        assert (await api.post(f"{at}/executions/load")).json() == {"files": 0, "rows": 0, "elsewhere": []}
        assert (await api.post(f"{at}/enrich")).status_code == 200

    async def test_it_tells_what_its_pool_tells(self, api: httpx.AsyncClient) -> None:
        run_id = await run_named(api, "first")

        for part in ("workers", "events", "beats", "logs"):
            of_run, of_pool = [await api.get(f"/api/v1/{noun}/{run_id}/{part}") for noun in ("runs", "pools")]
            assert of_run.json() == of_pool.json()
            assert of_run.status_code == 200

    async def test_its_pool_tells_the_rest(self, api: httpx.AsyncClient) -> None:
        at = f"/api/v1/pools/{await run_named(api, 'first')}"

        workers = (await api.get(f"{at}/workers")).json()

        assert [(each["status"], each["health"]) for each in workers] == [("terminated", None)]
        assert (await api.get(f"{at}/workers", params={"live": True})).json() == []
        samples = (await api.get(f"{at}/samples")).json()
        assert [each["n"] for each in samples] == [1, 2, 3, 4, 5]
        later = (await api.get(f"{at}/samples", params={"since": samples[2]["at"]})).json()
        assert later == [each for each in samples if each["at"] > samples[2]["at"]]
        assert (await api.get(f"{at}/samples", params={"failed": True})).json() == []
        assert [each["message"] for each in (await api.get(f"{at}/logs", params={"level": "WARNING"})).json()["items"]] == [
            "said"
        ]
        assert (await api.get(f"{at}/logs", params={"level": "ERROR"})).json()["items"] == []
        assert [each["why_not"] for each in (await api.get(f"{at}/beats")).json()["items"]] == ["nothing to do"]
        assert (await api.get(f"{at}/beats/last")).json()["view"] == {"seen": 1}
        events = (await api.get(f"{at}/events", params={"limit": 1})).json()
        assert events["items"][0]["sequence_id"] == 1
        following = (await api.get(events["next"])).json()
        assert following["items"][0]["sequence_id"] == 2

    @pytest.mark.parametrize(
        ("form", "begins", "kind"),
        [
            ("html", "<!", "text/html"),
            ("markdown", "#", "text/markdown"),
            ("csv", "", "text/csv"),
            ("json", "{", "application/json"),
            ("junit", "<", "application/xml"),
            ("prometheus", "#", "text/plain"),
        ],
    )
    async def test_it_is_written_down(self, api: httpx.AsyncClient, form: str, begins: str, kind: str) -> None:
        answer = await api.get(f"/api/v1/runs/{await run_named(api, 'first')}/report", params={"form": form})

        assert answer.status_code == 200
        assert answer.headers["Content-Type"].startswith(kind)
        assert answer.text.startswith(begins)
        assert "sandbox" in answer.headers["Content-Security-Policy"]

    async def test_two_runs_are_compared(self, api: httpx.AsyncClient) -> None:
        two = [await run_named(api, "first"), await run_named(api, "second")]

        found = (await api.get("/api/v1/compare", params={"run": two})).json()
        page = await api.get("/api/v1/compare", params={"run": two, "form": "html"})
        regression = (await api.get(f"/api/v1/runs/{two[1]}/regression", params={"against": two[0]})).json()
        alone = await api.get("/api/v1/compare", params={"run": two[:1]})

        assert [(each["before"], each["after"]) for each in found] == [tuple(two)]
        assert page.text.startswith("<!")
        assert regression["exit_code"] in (0, 5, 6)
        assert regression["comparison"][0]["before"] == two[0]
        assert alone.status_code == 422

    async def test_a_run_is_part_of_the_trend_of_its_kind(self, api: httpx.AsyncClient) -> None:
        run_id = await run_named(api, "second")

        found = (await api.get(f"/api/v1/runs/{run_id}/trend")).json()

        assert found["runs"][-1]["run_id"] == run_id
        assert found["trends"]["operations/s"]["runs"] == len(found["runs"])
