"""The page on the store knows every URL and every option of it."""

import inspect
from datetime import timedelta

import pytest

from docs.pages import page, rows, section
from drumbeat.settings import DEFAULT_STORE
from drumbeat.store.open import open_store
from drumbeat.store.redis.database import RedisDatabase
from drumbeat.store.sql.postgres import PostgresDatabase
from drumbeat.store.sql.sqlite import SqliteDatabase

TEXT = page("store")


def options(database: type) -> dict[str, str]:
    """The options of a database's URL with their defaults, as they are typed."""
    parameters = inspect.signature(database).parameters.values()
    keywords = [each for each in parameters if each.kind is each.KEYWORD_ONLY and each.name != "create"]
    return {each.name: typed(each.default) for each in keywords}


def typed(value: object) -> str:
    return f"{value.total_seconds():g}" if isinstance(value, timedelta) else str(value)


@pytest.mark.parametrize(
    ("heading", "database"),
    [("## SQLite", SqliteDatabase), ("## PostgreSQL", PostgresDatabase), ("## Redis", RedisDatabase)],
)
def test_every_option_is_there_with_its_default(heading: str, database: type) -> None:
    told = {row[0].strip("`"): row[1].strip("`") for row in rows(section(TEXT, heading))}

    assert told == options(database)


@pytest.mark.parametrize(
    ("url", "database"),
    [("sqlite:///x.db", SqliteDatabase), ("postgresql://h/d", PostgresDatabase), ("redis://h/0", RedisDatabase)],
)
def test_the_options_of_the_page_are_those_a_url_takes(url: str, database: type) -> None:
    given = "&".join(f"{name}={default}" for name, default in options(database).items())

    assert open_store(f"{url}?{given}").traits.shared


def test_the_default_is_there() -> None:
    assert f"`{DEFAULT_STORE}`" in TEXT


@pytest.mark.parametrize("url", [row[0].strip("`") for row in rows(TEXT.partition("## SQLite")[0])])
def test_every_url_of_the_page_opens_a_store(url: str) -> None:
    name = open_store(url).traits.name

    assert url.startswith(name)
