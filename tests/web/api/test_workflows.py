"""Workflows over HTTP: jobs pushed after others, progress and graph, and cancel and requeue of subtrees."""

from typing import Any

import httpx

POOL = "/api/v1/pools/flowing"


async def push(api: httpx.AsyncClient, flow: str) -> None:
    """Push: a → b → c in one request; their ids begin with the workflow's."""
    jobs: list[dict[str, Any]] = [{"payload": 1, "job_id": f"{flow}-a", "type": "fetch"}]
    jobs += [{"payload": 2, "job_id": f"{flow}-b", "after": [f"{flow}-a"], "if_failed": "skip"}]
    jobs += [{"payload": 3, "job_id": f"{flow}-c", "after": [f"{flow}-b"], "after_any": True}]
    answer = await api.post(f"{POOL}/jobs/many", json={"jobs": [{**job, "workflow_id": flow} for job in jobs]})
    assert answer.status_code == 201, answer.text


async def test_a_workflow_is_pushed_and_shown(api: httpx.AsyncClient) -> None:
    await push(api, "w1")

    found = (await api.get("/api/v1/workflows/w1")).json()

    assert (found["jobs"], found["ended"], found["share"], found["counts"]) == (3, 0, 0.0, {"pending": 1, "waiting": 2})
    assert [(box["level"], box["type"], box["job_ids"]) for box in found["boxes"]] == [
        (0, "fetch", ["w1-a"]), (1, "", ["w1-b"]), (2, "", ["w1-c"]),
    ]  # fmt: skip
    assert found["links"] == [{"parent": 0, "child": 1}, {"parent": 1, "child": 2}]
    page = (await api.get("/api/v1/workflows/w1/jobs", params={"status": "waiting", "limit": 1})).json()
    assert [job["job_id"] for job in page["items"]] == ["w1-b"]
    shown = (await api.get(f"{POOL}/jobs/w1-b")).json()["job"]
    assert (shown["status"], shown["waits_for"], shown["if_failed"], shown["workflow_id"]) == ("waiting", 1, "skip", "w1")


async def test_subtrees_and_workflows_are_cancelled_and_requeued(api: httpx.AsyncClient) -> None:
    await push(api, "w2")

    cancelled = (await api.post(f"{POOL}/jobs/w2-b/cancel-subtree")).json()
    requeued = (await api.post(f"{POOL}/jobs/w2-b/requeue-subtree")).json()
    ended = (await api.post("/api/v1/workflows/w2/cancel")).json()

    assert (sorted(cancelled["cancelled"]), cancelled["requested"]) == (["w2-b", "w2-c"], [])
    assert sorted(requeued["job_ids"]) == ["w2-b", "w2-c"]
    assert sorted(ended["cancelled"]) == ["w2-a", "w2-b", "w2-c"]


async def test_what_cannot_be_is_refused_in_one_line(api: httpx.AsyncClient) -> None:
    missing = await api.post(f"{POOL}/jobs", json={"payload": 1, "after": ["nobody"]})
    circle = await api.post(f"{POOL}/jobs", json={"payload": 1, "job_id": "x", "after": ["x"]})
    policy = await api.post(f"{POOL}/jobs", json={"payload": 1, "after": ["x"], "if_failed": "retry"})

    assert (missing.status_code, circle.status_code, policy.status_code) == (404, 422, 422)
    assert "there is no job 'nobody' to wait for" in missing.json()["detail"]
    assert "circle" in circle.json()["detail"]
    for method, path in (("GET", ""), ("GET", "/jobs"), ("POST", "/cancel")):
        assert (await api.request(method, f"/api/v1/workflows/nothing{path}")).status_code == 404
    assert (await api.post(f"{POOL}/jobs/nobody/cancel-subtree")).status_code == 404


async def test_readers_see_workflows_and_cancel_none(reader: httpx.AsyncClient, operator: httpx.AsyncClient) -> None:
    await push(operator, "w3")

    assert (await reader.get("/api/v1/workflows/w3")).status_code == 200
    assert (await reader.post("/api/v1/workflows/w3/cancel")).status_code == 403
    assert (await reader.post(f"{POOL}/jobs/w3-a/cancel-subtree")).status_code == 403
