"""Templates over HTTP: kept, changed until they are used, copied, planned, previewed."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from web.given import Web, document

TEMPLATES = "/api/v1/templates"


@pytest.fixture
def draft(furnished: Web) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(document(furnished))
    return found


async def kept(api: httpx.AsyncClient, draft: dict[str, Any], name: str) -> dict[str, Any]:
    made = await api.post(TEMPLATES, json={"document": {**draft, "name": name}})
    assert made.status_code == 201, made.text
    told: dict[str, Any] = made.json()
    return told


async def test_a_template_is_kept_found_changed_copied_and_removed(api: httpx.AsyncClient, draft: dict[str, Any]) -> None:
    made = await kept(api, draft, "lives")
    at = f"{TEMPLATES}/{made['template_id']}"

    changed = await api.put(at, json={"settings": {"concurrent_connections": 7}})
    replaced = await api.put(f"{TEMPLATES}/lives", json={"document": {**draft, "name": "lives", "tags": ["nightly"]}})
    copied = await api.post(f"{at}/copy", json={"name": "lives on", "settings": {"target_qps": 9}})

    assert changed.json()["config"]["concurrent_connections"] == 7
    assert replaced.json()["tags"] == ["nightly"]
    assert copied.status_code == 201
    assert copied.json()["config"]["target_qps"] == 9
    assert (await api.get(copied.headers["Location"])).json() == copied.json()
    assert [each["name"] for each in (await api.get(TEMPLATES, params={"tag": "nightly"})).json()] == ["lives", "lives on"]
    assert (await api.delete(at)).status_code == 204
    assert (await api.get(at)).status_code == 404


@pytest.mark.parametrize("name", ["plan", "preview"])
async def test_a_template_may_be_named_like_a_path(api: httpx.AsyncClient, draft: dict[str, Any], name: str) -> None:
    made = await kept(api, draft, name)
    at = f"{TEMPLATES}/{name}"

    assert (await api.get(at)).json() == made
    assert (await api.head(at)).status_code == 200
    assert (await api.options(at)).headers["Allow"] == "DELETE, GET, HEAD, OPTIONS, POST, PUT"
    assert (await api.post(at, json={"document": draft})).status_code == 200, "the path itself still answers"
    assert (await api.put(at, json={"settings": {"concurrent_connections": 7}})).json()["config"]["concurrent_connections"] == 7
    assert (await api.delete(at)).status_code == 204
    assert (await api.get(at)).status_code == 404


@pytest.mark.parametrize("name", ["schema", "new"])
async def test_a_template_is_found_by_any_name(api: httpx.AsyncClient, draft: dict[str, Any], name: str) -> None:
    made = await kept(api, draft, name)

    assert (await api.get(f"{TEMPLATES}/{name}")).json() == (await api.get(f"{TEMPLATES}/{made['template_id']}")).json() == made
    assert (await api.get(f"{TEMPLATES}/{name}/plan")).status_code == 200
    assert (await api.delete(f"{TEMPLATES}/{name}")).status_code == 204
    assert (await api.get(f"{TEMPLATES}/{name}")).status_code == 404


async def test_a_template_that_was_used_is_read_only(api: httpx.AsyncClient, draft: dict[str, Any]) -> None:
    made = await kept(api, draft, "used")
    assert (await api.post("/api/v1/runs", json={"template": "used"})).status_code == 201

    answer = await api.put(f"{TEMPLATES}/{made['template_id']}", json={"settings": {"concurrent_connections": 7}})

    assert answer.status_code == 409
    assert "copy" in answer.json()["detail"]
    assert (await api.get(f"{TEMPLATES}/used")).json()["usage_count"] == 1


@pytest.mark.parametrize(
    ("path", "body", "status", "field"),
    [
        ("", {}, 422, "document"),
        ("", {"document": {}}, 422, "name"),
        ("", {"document": {"name": "kept"}}, 409, None),
        ("", {"document": {"name": "a"}, "name": "two\nlines"}, 422, "name"),
        ("", {"document": {"name": "a", "timing": {"warmup_seconds": "soon"}}}, 422, "timing.warmup_seconds"),
        ("", {"document": {"name": "a", "target": {"password": "p"}}}, 422, "target.password"),
        ("/kept/copy", {"name": "kept"}, 409, None),
        ("/nowhere/copy", {"name": "x"}, 404, None),
        ("/plan", {}, 422, "template"),
        ("/plan", {"template": "nowhere"}, 404, None),
        ("/preview", {"document": {}}, 422, "target.url"),
    ],
)
async def test_what_cannot_be_is_refused(
    api: httpx.AsyncClient, path: str, body: dict[str, Any], status: int, field: str | None
) -> None:
    answer = await api.post(f"{TEMPLATES}{path}", json=body)

    assert answer.status_code == status, answer.text
    if field is not None:
        assert field in [each["field"] for each in answer.json()["errors"]], answer.text


async def test_a_change_of_nothing_is_refused(api: httpx.AsyncClient) -> None:
    assert (await api.put(f"{TEMPLATES}/kept", json={})).status_code == 422


async def test_it_says_what_it_would_start_and_run(api: httpx.AsyncClient, draft: dict[str, Any]) -> None:
    plan = await api.get(f"{TEMPLATES}/kept/plan")
    drafted = await api.post(f"{TEMPLATES}/plan", json={"document": draft, "settings": {"concurrent_connections": 4}})
    preview = await api.post(f"{TEMPLATES}/preview", json={"template": "kept"})

    assert (plan.json()["total_connections"], plan.json()["can_proceed"]) == (2, True)
    assert drafted.json()["total_connections"] == 4
    assert all("SELECT" in each["statements"][0] for each in preview.json()["operations"])


async def test_the_schema_of_documents_is_there(api: httpx.AsyncClient) -> None:
    assert "scaling" in (await api.get("/api/v1/template-schema")).json()["properties"]


async def test_single_settings_and_copies_leave_the_rest_as_it_is(api: httpx.AsyncClient, draft: dict[str, Any]) -> None:
    made = await kept(api, {**draft, "description": "why", "tags": ["one"]}, "described")

    changed = (await api.put(f"{TEMPLATES}/described", json={"settings": {"concurrent_connections": 7}})).json()
    copied = (await api.post(f"{TEMPLATES}/described/copy", json={"name": "described again"})).json()

    assert {**changed, "updated_at": None} == {
        **made, "updated_at": None, "config": {**made["config"], "concurrent_connections": 7},
    }  # fmt: skip
    assert (copied["description"], copied["tags"], copied["config"]) == ("why", ["one"], changed["config"])


async def test_a_change_of_what_somebody_else_has_changed_since_is_refused(
    api: httpx.AsyncClient, draft: dict[str, Any]
) -> None:
    at = f"{TEMPLATES}/{(await kept(api, draft, 'shared'))['template_id']}"
    seen = (await api.get(at)).headers["ETag"]

    first = await api.put(at, json={"settings": {"concurrent_connections": 7}}, headers={"If-Match": seen})
    second = await api.put(at, json={"settings": {"target_qps": 9}}, headers={"If-Match": seen})
    third = await api.put(at, json={"settings": {"target_qps": 9}}, headers={"If-Match": f'"x", {first.headers["ETag"]}'})
    whatever = await api.put(at, json={"settings": {"target_qps": 8}}, headers={"If-Match": "*"})

    assert [each.status_code for each in (first, second, third, whatever)] == [200, 412, 200, 200]
    assert "changed meanwhile" in second.json()["detail"]
    assert third.json()["config"]["concurrent_connections"] == 7
    assert (await api.get(at)).headers["ETag"] == whatever.headers["ETag"] != seen


async def test_of_many_who_change_the_same_at_once_one_does(api: httpx.AsyncClient, draft: dict[str, Any]) -> None:
    at = f"{TEMPLATES}/{(await kept(api, draft, 'fought over'))['template_id']}"
    seen = {"If-Match": (await api.get(at)).headers["ETag"]}

    answers = await asyncio.gather(*(api.put(at, json={"settings": {"target_qps": 200 + n}}, headers=seen) for n in range(8)))

    assert sorted(each.status_code for each in answers) == [200] + 7 * [412]


async def test_being_used_is_no_change(api: httpx.AsyncClient, draft: dict[str, Any]) -> None:
    made = await kept(api, draft, "looked at")
    before = (await api.get(f"{TEMPLATES}/{made['template_id']}")).headers["ETag"]
    await api.post("/api/v1/runs", json={"template": "looked at"})

    assert (await api.get(f"{TEMPLATES}/{made['template_id']}")).headers["ETag"] == before
