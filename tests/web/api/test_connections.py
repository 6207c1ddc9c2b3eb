"""Connections over HTTP: passwords come in, and never go out."""

import logging
from pathlib import Path
from typing import Any

import httpx
import pytest

from drumbeat.core.connection import LONGEST_PASSWORD
from web.given import OPEN, Web, web

CONNECTIONS = "/api/v1/connections"
URL = "postgresql://bench@127.0.0.1:1/load"
PASSWORD = "open-sesame-4711"


async def kept(api: httpx.AsyncClient, name: str, url: str = URL, **more: Any) -> dict[str, Any]:
    made = await api.post(CONNECTIONS, json={"name": name, "url": url, **more})
    assert made.status_code == 201, made.text
    told: dict[str, Any] = made.json()
    return told


async def test_a_password_goes_in_and_never_out(
    api: httpx.AsyncClient, furnished: Web, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    answers = [
        await api.post(CONNECTIONS, json={"name": "sealed", "url": URL, "password": PASSWORD}),
        await api.get(f"{CONNECTIONS}/sealed"),
        await api.get(CONNECTIONS),
        await api.post(f"{CONNECTIONS}/sealed/test"),
        await api.get(f"{CONNECTIONS}/sealed/tables"),
        await api.patch(f"{CONNECTIONS}/sealed", json={"password": f"{PASSWORD}-2"}),
        await api.post(CONNECTIONS, json={"name": "sealed", "url": URL, "password": PASSWORD}),
        await api.post(CONNECTIONS, json={"name": "x", "url": f"postgresql://u:{PASSWORD}@h/d"}),
        await api.post(CONNECTIONS, json={"name": "x", "url": URL, "password": [PASSWORD]}),
        await api.post(CONNECTIONS, json={"name": "x", "url": 1, "password": PASSWORD}),
        await api.post("/api/v1/templates/plan", json={"document": {"target": {"connection": "sealed"}}}),
    ]

    assert [each.status_code for each in answers] == [201, 200, 200, 200, 422, 200, 409, 422, 422, 422, 422]
    assert answers[0].json()["has_password"]
    assert not answers[3].json()["ok"]
    assert all(PASSWORD not in each.text and PASSWORD not in str(each.headers) for each in answers)
    assert PASSWORD not in caplog.text
    written = b"".join(file.read_bytes() for file in furnished.folder.rglob("*") if file.is_file())
    assert b"sealed" in written
    assert PASSWORD.encode() not in written


async def test_a_password_may_be_as_long_as_a_private_key(api: httpx.AsyncClient) -> None:
    longest = "s" * LONGEST_PASSWORD

    made = await api.post(CONNECTIONS, json={"name": "keyed", "url": URL, "password": longest})
    changed = await api.patch(f"{CONNECTIONS}/keyed", json={"password": longest})
    refused = [
        await api.post(CONNECTIONS, json={"name": "longer", "url": URL, "password": f"{longest}s"}),
        await api.patch(f"{CONNECTIONS}/keyed", json={"password": f"{longest}s"}),
    ]

    assert (made.status_code, changed.status_code) == (201, 200)
    assert [(each.status_code, each.json()["errors"][0]["field"]) for each in refused] == [(422, "password")] * 2
    assert all(longest not in each.text for each in refused)


async def test_a_password_is_given_again_with_another_url(api: httpx.AsyncClient) -> None:
    await kept(api, "moving", password=PASSWORD)

    alone = await api.patch(f"{CONNECTIONS}/moving", json={"url": "postgresql://bench@other/load"})
    together = await api.patch(f"{CONNECTIONS}/moving", json={"url": "postgresql://bench@other/load", "password": "x"})
    without = await api.patch(f"{CONNECTIONS}/moving", json={"password": ""})

    assert (alone.status_code, alone.json()["errors"][0]["field"]) == (422, "password")
    assert together.json()["url"] == "postgresql://bench@other/load"
    assert not without.json()["has_password"]
    assert (await api.patch(f"{CONNECTIONS}/moving", json={})).status_code == 422


async def test_one_is_the_default(api: httpx.AsyncClient) -> None:
    for name in ("one", "two"):
        await kept(api, name)
        assert (await api.post(f"{CONNECTIONS}/{name}/default")).status_code == 200

    assert [each["name"] for each in (await api.get(CONNECTIONS)).json() if each["is_default"]] == ["two"]


async def test_its_tables_and_columns_are_told(api: httpx.AsyncClient, furnished: Web) -> None:
    await kept(api, "target", furnished.target)

    tested = (await api.post(f"{CONNECTIONS}/target/test")).json()
    tables = (await api.get(f"{CONNECTIONS}/target/tables")).json()
    columns = (await api.get(f"{CONNECTIONS}/target/tables/{tables[0]['name']}")).json()["columns"]
    nowhere = await api.get(f"{CONNECTIONS}/target/tables/nowhere")

    assert tested["ok"]
    assert tables[0]["reference"] == tables[0]["name"]
    assert all({"name", "type", "native_type", "nullable"} <= each.keys() for each in columns)
    assert nowhere.status_code == 422


async def test_a_run_is_made_through_its_name(api: httpx.AsyncClient, furnished: Web) -> None:
    await kept(api, "through", furnished.target)
    document = {"target": {"connection": "through"}, "workload": {"standard": "read-only", "scale": 0.01}}

    made = await api.post("/api/v1/runs", json={"document": document})
    config = (await api.get(made.headers["Location"])).json()["config"]

    assert made.status_code == 201
    assert config["target"]["url"] == furnished.target
    assert config["target"]["connection"] == "through"
    assert "url" not in config["document"]["target"]


async def test_one_that_is_removed_is_gone(api: httpx.AsyncClient) -> None:
    await kept(api, "short")

    assert (await api.delete(f"{CONNECTIONS}/short")).status_code == 204
    assert (await api.delete(f"{CONNECTIONS}/short")).status_code == 404
    assert (await api.get(f"{CONNECTIONS}/short/tables")).status_code == 404


async def test_without_a_key_no_password_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DRUMBEAT_KEY", raising=False)
    async with web(tmp_path, OPEN) as made, made.client() as api:
        refused = await api.post(CONNECTIONS, json={"name": "a", "url": URL, "password": PASSWORD})
        open_one = await api.post(CONNECTIONS, json={"name": "a", "url": URL})
        info = (await api.get("/api/v1/info")).json()

    assert refused.status_code == 422
    assert "DRUMBEAT_KEY" in refused.json()["detail"]
    assert open_one.status_code == 201
    assert not info["seals_passwords"]
