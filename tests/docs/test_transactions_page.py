"""Every example of the page on transactions does what it says, with its driver, on a real database."""

import ast
import inspect
import re
import sqlite3
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import drumbeat
from docs.pages import page, section
from drumbeat.core.job import JobStatus
from servers.postgres import PostgresServer
from transactions.drivers import use_django

TEXT = page("transactions")
PUSHES = re.findall(r"^### (.*)$", section(TEXT, "## Push"), re.MULTILINE)
TABLE = "CREATE TABLE orders (id integer PRIMARY KEY)"


def examples(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


async def run(example: str, names: dict[str, Any]) -> dict[str, Any]:
    """Run an example that may await at its top level, and return the names it has."""
    code = compile(example, "docs/transactions.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    outcome = eval(code, names)
    if inspect.isawaitable(outcome):
        await outcome
    return names


@pytest.fixture(scope="module")
def database(postgres: PostgresServer) -> Iterator[str]:
    url = postgres.new_database()
    yield url
    postgres.drop_database(url)


@pytest.fixture(scope="module")
async def db(database: str) -> AsyncIterator[drumbeat.Connection]:
    connection = await asyncpg.connect(database)
    await connection.execute(TABLE)
    await connection.close()
    async with drumbeat.connect(database) as db:
        yield db


@pytest.fixture
async def names(database: str, db: drumbeat.Connection) -> AsyncIterator[dict[str, Any]]:
    mail = db.pool("mail")
    await mail.create(exist_ok=True)
    connection = await asyncpg.connect(database)
    await connection.execute("DELETE FROM orders")
    yield {"DATABASE": database, "mail": mail}
    await connection.close()
    await mail.delete(unfinished=True)


async def orders(database: str) -> list[int]:
    connection = await asyncpg.connect(database)
    found = [row["id"] for row in await connection.fetch("SELECT id FROM orders")]
    await connection.close()
    return found


@pytest.mark.parametrize("heading", [each for each in PUSHES if each not in ("Django", "sqlite3")])
async def test_the_example_of_a_driver_writes_the_order_and_the_job(heading: str, names: dict[str, Any]) -> None:
    [example] = examples(section(TEXT, f"### {heading}"))

    await run(example, names)

    assert [job.payload for job in await names["mail"].list()] == [{"order": 7}]
    assert await orders(names["DATABASE"]) == [7]


async def test_the_example_of_django_writes_the_order_and_the_job(
    names: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    [example] = examples(section(TEXT, "### Django"))

    with use_django(names["DATABASE"]):
        await run(example, names)

    assert [job.payload for job in await names["mail"].list()] == [{"order": 7}]
    assert await orders(names["DATABASE"]) == [7]


async def test_the_example_of_sqlite_writes_the_order_and_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    [example] = examples(section(TEXT, "### sqlite3"))
    async with drumbeat.connect("sqlite:///shop.db") as db:
        mail = db.pool("mail")
        await mail.create()
        with closing(sqlite3.connect("shop.db")) as connection:
            connection.execute(TABLE)

            await run(example, {"mail": mail})

            assert connection.execute("SELECT id FROM orders").fetchall() == [(7,)]
        assert [job.payload for job in await mail.list()] == [{"order": 7}]


async def test_the_examples_complete_a_job(names: dict[str, Any], db: drumbeat.Connection) -> None:
    handler, by_hand = examples(section(TEXT, "## Complete"))
    mail: drumbeat.Pool = names["mail"]

    job_id = await mail.push({"order": 7})
    charge = (await run(handler, dict(names)))["charge"]
    await db.work("mail", charge)
    other = await mail.push({"order": 8})
    await run(by_hand, names)

    jobs: Mapping[str, Any] = {job.job_id: (job.status, job.result) for job in await mail.list()}
    assert jobs == {job_id: (JobStatus.DONE, {"charged": 7}), other: (JobStatus.DONE, "sent")}
    assert await orders(names["DATABASE"]) == [7, 8]
