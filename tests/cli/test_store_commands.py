"""drumbeat store: made once, checked, brought up to date, pruned."""

import json
import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest

from cli.given import Said, invoke, make_store, scene
from drumbeat.cli.store import parse_age
from drumbeat.core.errors import InvalidInput, StoreNotReady, StoreTooNew, StoreUnavailable
from drumbeat.store.sql.migrate import LATEST

ALL = ", ".join(map(str, range(1, LATEST + 1)))


def write(url: str, statement: str) -> None:
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    with connection:
        connection.execute(statement)
    connection.close()


def test_a_store_is_made_once(url: str) -> None:
    path = url.removeprefix("sqlite:///")

    assert invoke("store", "init", store=url) == Said(0, f"sqlite:///{path}: schema version {LATEST} (applied {ALL})\n")
    assert invoke("store", "init", store=url) == Said(0, f"sqlite:///{path}: schema version {LATEST} (nothing to apply)\n")


def test_a_store_is_made_on_postgresql_too(postgres_url: str) -> None:
    first, second = invoke("store", "init", store=postgres_url), invoke("store", "migrate", store=postgres_url)

    assert first.output.endswith(f"(schema drumbeat): schema version {LATEST} (applied {ALL})\n")
    assert second.output.endswith(f"(schema drumbeat): schema version {LATEST} (nothing to apply)\n")


def test_the_option_counts_more_than_the_environment(url: str, tmp_path: Path) -> None:
    invoke("store", "init", "--store", url, store=f"sqlite:///{tmp_path}/other.db")

    assert (tmp_path / "drumbeat.db").exists()
    assert not (tmp_path / "other.db").exists()


def test_without_either_it_is_a_file_in_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert invoke("store", "init").code == 0
    assert (tmp_path / "drumbeat.db").exists()
    assert invoke("pools", "list").output == "no pools yet; try: drumbeat demo\n"


def test_migrating_makes_no_store_where_there_is_none(url: str, tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="drumbeat store init"):
        invoke("store", "migrate", store=url)

    assert list(tmp_path.iterdir()) == []


def test_a_good_store_has_no_problem(full: str) -> None:
    said = invoke("store", "check", store=full)

    assert said.code == 0
    assert f"schema version {LATEST} of {LATEST}, clock 20" in said.output
    assert "rows: pools 2, workers 3, events " in said.output
    assert said.output.endswith("no problem found\n")


def test_an_empty_store_has_no_rows(empty: str) -> None:
    assert "rows: none yet\n" in invoke("store", "check", store=empty).output


def test_a_check_is_json_if_asked(full: str) -> None:
    report = json.loads(invoke("store", "check", "--json", store=full).output)

    assert (report["backend"], report["schema_version"], report["latest_version"]) == ("sqlite", LATEST, LATEST)
    assert report["problems"] == []
    assert (report["rows"]["pools"], report["rows"]["samples"], report["rows"]["jobs"]) == (2, 3, 0)


def test_a_check_shows_no_secret(postgres_url: str) -> None:
    invoke("store", "init", store=postgres_url)

    said = invoke("store", "check", store=postgres_url)
    assert "postgres@" in postgres_url
    assert "postgresql://" in said.output
    assert "postgres@" not in said.output


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_a_problem_is_told_and_counts(url: str, arguments: list[str]) -> None:
    """Somebody else's database: it has no tables of ours."""
    write(url, "CREATE TABLE theirs (x)")

    said = invoke("store", "check", *arguments, store=url)

    assert said.code == 1
    assert f"the schema is version 0, this Drumbeat needs {LATEST}; run: drumbeat store migrate" in said.output


def test_a_store_without_tables_is_not_read(url: str) -> None:
    write(url, "CREATE TABLE theirs (x)")

    with pytest.raises(StoreNotReady, match="run: drumbeat store init"):
        invoke("pools", "list", store=url)


@pytest.mark.parametrize("command", ["init", "migrate", "check", "prune"])
def test_a_store_of_a_newer_version_is_left_alone(empty: str, command: str) -> None:
    write(empty, "INSERT INTO schema_version VALUES (9999, 0)")

    with pytest.raises(StoreTooNew, match="upgrade Drumbeat"):
        invoke("store", command, store=empty)


def _grow_old(url: str, table: str, column: str, days: int) -> None:
    write(url, f"UPDATE {table} SET {column} = {column} - {days * 86_400_000_000}")


def test_what_is_old_is_pruned(url: str) -> None:
    make_store(url, scene)
    _grow_old(url, "samples", "at", 31)
    _grow_old(url, "logs", "at", 29)

    assert invoke("store", "prune", store=url) == Said(
        0, "deleted: samples 3, logs 0, beats 0, workers 0, events 0, leases 0\n"
    )
    assert json.loads(invoke("store", "prune", "--older-than", "4w", "--json", store=url).output) == {
        "samples": 0,
        "logs": 3,
        "beats": 0,
        "workers": 0,
        "events": 0,
        "leases": 0,
    }


@pytest.mark.parametrize(
    ("given", "age"),
    [
        ("200ms", timedelta(milliseconds=200)),
        ("90s", timedelta(seconds=90)),
        ("1.5h", timedelta(minutes=90)),
        ("15m", timedelta(minutes=15)),
        ("12h", timedelta(hours=12)),
        ("30d", timedelta(days=30)),
        (" 4w ", timedelta(weeks=4)),
        ("0s", timedelta()),
        ("36500d", timedelta(days=36_500)),
    ],
)
def test_an_age_is_a_number_and_a_unit(given: str, age: timedelta) -> None:
    assert parse_age(given, "--for") == age


@pytest.mark.parametrize("given", ["", "30", "d", "-1d", "1.h", "30 d", "1y", "30D", "٣d", "1d2h"])
def test_anything_else_is_no_age(given: str) -> None:
    with pytest.raises(InvalidInput, match="--for: expected a duration such as 200ms, 90s, 12h or 30d, got "):
        parse_age(given, "--for")


@pytest.mark.parametrize("given", ["36501d", "999999999999w", "999999999999s"])
def test_an_age_has_an_end(given: str) -> None:
    with pytest.raises(InvalidInput, match="--for: expected a duration of at most 36500d"):
        parse_age(given, "--for")
