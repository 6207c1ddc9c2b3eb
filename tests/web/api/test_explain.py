"""A run in words over HTTP: the summary for everybody who may read, a language model's words when an operator asks."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from bench.explain.given import MARK, mark, marked_run
from drumbeat.core.pool import PoolKind, pool
from drumbeat.core.run import Run, RunId
from servers.language_model import KEY, MODEL, Endpoint, language_model
from web.given import LOCKED, READ_TOKEN, TOKEN, Web, bearer, web

RUN = f"/api/v1/runs/{mark('run')}"


@pytest.fixture(scope="module")
def shared() -> Iterator[Endpoint]:
    with language_model() as made:
        yield made


@pytest.fixture
def endpoint(shared: Endpoint, monkeypatch: pytest.MonkeyPatch) -> Endpoint:
    monkeypatch.setenv("DRUMBEAT_LANGUAGE_MODEL_KEY", KEY)
    shared.asked.clear()
    shared.says("The clients were the limit. Try 16 workers.")
    return shared


@pytest.fixture
async def made(tmp_path: Path, endpoint: Endpoint) -> AsyncIterator[Web]:
    async with web(tmp_path, LOCKED) as found:
        await marked_run(found.plane.store)
        found.plane.settings = replace(found.plane.settings, language_model=endpoint.table)
        yield found


@pytest.fixture
async def operator(made: Web) -> AsyncIterator[httpx.AsyncClient]:
    async with made.client(bearer(TOKEN)) as client:
        yield client


@pytest.fixture
async def reader(made: Web) -> AsyncIterator[httpx.AsyncClient]:
    async with made.client(bearer(READ_TOKEN)) as client:
        yield client


async def shown(client: httpx.AsyncClient) -> dict[str, Any]:
    answer = await client.get(RUN)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_run_says_in_words_what_it_did(reader: httpx.AsyncClient, endpoint: Endpoint) -> None:
    found = await shown(reader)

    assert found["summary"][0].startswith("This run loaded PostgreSQL with 8 connections on 1 worker")
    assert found["explanation"] is None
    assert endpoint.asked == []


async def test_an_operator_has_it_explained_and_a_reader_reads_it(
    operator: httpx.AsyncClient, reader: httpx.AsyncClient, endpoint: Endpoint
) -> None:
    answer = await operator.post(f"{RUN}/explain")

    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert (told["text"], told["model"], told["unknown_numbers"]) == (
        "The clients were the limit. Try 16 workers.", MODEL, ["16"]
    )  # fmt: skip
    assert "not by Drumbeat" in told["label"]
    found = await shown(reader)
    assert found["explanation"] == told
    assert "Try 16" not in " ".join(found["summary"])
    assert MARK not in endpoint.asked[0].body.decode().lower()


async def test_a_reader_may_not_have_it_explained(reader: httpx.AsyncClient, endpoint: Endpoint) -> None:
    assert (await reader.post(f"{RUN}/explain")).status_code == 403
    assert endpoint.asked == []


async def test_a_model_that_fails_is_a_bad_gateway_and_the_run_is_as_it_was(
    operator: httpx.AsyncClient, endpoint: Endpoint
) -> None:
    before = await shown(operator)
    endpoint.refuses(429)

    answer = await operator.post(f"{RUN}/explain")

    assert answer.status_code == 502
    assert "refuses for now (HTTP 429)" in answer.json()["detail"]
    assert KEY not in answer.text
    assert await shown(operator) == before


async def test_without_a_model_it_is_refused(made: Web, operator: httpx.AsyncClient) -> None:
    made.plane.settings = replace(made.plane.settings, language_model={})

    answer = await operator.post(f"{RUN}/explain")

    assert answer.status_code == 409
    assert "no language model is set up" in answer.json()["detail"]


async def test_a_run_that_is_under_way_or_not_there_is_not_explained(made: Web, operator: httpx.AsyncClient) -> None:
    await made.plane.store.runs.create(Run(run_id=RunId("new"), name="n", config={}), pool("new", PoolKind.BENCH))

    assert (await operator.post("/api/v1/runs/new/explain")).status_code == 409
    assert (await operator.post("/api/v1/runs/nowhere/explain")).status_code == 404
    assert (await operator.get("/api/v1/runs/new")).json()["summary"] == []
