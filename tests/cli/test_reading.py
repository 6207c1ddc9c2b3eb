"""Every reading command: a table, JSON, and a word when there is nothing."""

import json
import sqlite3
from typing import Any

import pytest

from cli.given import POOL, SUMMARY, bare_pool, invoke, make_store, scene
from drumbeat.core.errors import InvalidInput

READING: list[tuple[str, list[str], list[str]]] = [
    ("pools list", ["pool", "kind", "policy", "p", "fleet", "workers 2, target 5", "r1", "bench"], ["pool_id", "thresholds"]),
    (
        "workers list p",
        ["w-busy", "active", "healthy", "12.5", "w-broken", "error", "[red]boom[/]", "w-new"],
        ["status", "slot"],
    ),
    ("workers list p --live", ["w-busy", "w-new", "spawning"], ["worker_id", "heartbeat_at"]),
    ("events list p", ["WORKER_MOVED", "worker_id w-busy", "to active", "RUN"], ["sequence_id", "payload", "scope"]),
    ("beats list p", ["Spawn w-new: 1 of 2 workers are here", "nothing: 2 of 2 workers are here"], ["n", "actions", "view"]),
    ("runs list", ["r1", "[/odd] :smile:", "PREPARED"], ["run_id", "name", "status"]),
    ("samples list p", ["w-busy", "MEASUREMENT", "30.0", "2 ms"], ["operations", "latency", "worker_id"]),
    ("logs list p", ["hello", "[/closing] what nobody opened", "ERROR", "w-broken"], ["message", "level", "log_id"]),
]

EMPTY = [
    ("pools list", "no pools yet; try: drumbeat demo"),
    ("runs list", "no runs yet"),
    ("workers list p", "pool p has no workers"),
    ("events list p", "pool p has no events after 0"),
    ("events list p --after 7", "pool p has no events after 7"),
    ("beats list p", "pool p has no beats yet"),
    ("samples list p", "pool p has no samples yet"),
    ("logs list p", "no log lines in pool p"),
]


def rows(command: str, store: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(invoke(*command.split(), "--json", store=store).output)
    return found


@pytest.mark.parametrize(("command", "words", "_fields"), READING, ids=[row[0] for row in READING])
def test_a_table_for_people(full: str, command: str, words: list[str], _fields: list[str]) -> None:
    said = invoke(*command.split(), store=full)

    assert said.code == 0
    assert [word for word in words if word not in said.output] == []


@pytest.mark.parametrize(("command", "_words", "fields"), READING, ids=[row[0] for row in READING])
def test_json_for_programs(full: str, command: str, _words: list[str], fields: list[str]) -> None:
    said = invoke(*command.split(), "--json", store=full)

    found = json.loads(said.output)
    assert said.code == 0
    assert said.output.count("\n") == 1
    assert len(found) > 0
    assert all(field in row for row in found for field in fields)


@pytest.mark.parametrize(("command", "word"), EMPTY)
def test_nothing_is_said_to_be_nothing(url: str, command: str, word: str) -> None:
    make_store(url, bare_pool)
    if command == "pools list":
        url = url.replace("drumbeat.db", "other.db")
        invoke("store", "init", store=url)

    assert invoke(*command.split(), store=url).output == f"{word}\n"
    assert rows(command, url) == []


@pytest.mark.parametrize("command", [row[0] for row in READING])
def test_a_line_is_never_folded_in_a_pipe(full: str, command: str) -> None:
    """Each row is one line, but for a beat that did several things."""
    lines = invoke(*command.split(), store=full).output.splitlines()

    assert len(lines) == 1 + len(rows(command, full))


def test_json_has_the_values_of_the_row(full: str) -> None:
    busy = next(row for row in rows("workers list p", full) if row["worker_id"] == "w-busy")

    assert (busy["pool_id"], busy["slot"], busy["status"], busy["cpu_percent"]) == (POOL, 0, "active", 12.5)
    assert (busy["heartbeat_count"], busy["health"]) == (4, "healthy")


def test_json_shows_a_histogram_by_its_percentiles(full: str) -> None:
    latency = rows("samples list p", full)[0]["latency"]

    assert latency["count"] == 10
    assert latency["p50_ms"] == pytest.approx(2, rel=0.01)
    assert {"mean_ms", "p95_ms", "p99_ms"} < set(latency)


def test_only_the_living_are_shown_if_asked(full: str) -> None:
    assert {row["worker_id"] for row in rows("workers list p --live", full)} == {"w-busy", "w-new"}


@pytest.mark.parametrize(
    ("command", "field", "expected"),
    [
        ("events list p --limit 2", "sequence_id", [1, 2]),
        ("events list p --after 2 --limit 3", "sequence_id", [3, 4, 5]),
        ("beats list p --after 1", "n", [2, 3]),
        ("beats list p --limit 1", "n", [1]),
        ("samples list p --limit 2", "n", [1, 2]),
        ("samples list p --worker nobody", "n", []),
        ("samples list p --worker w-busy", "n", [1, 2, 3]),
        ("logs list p --level warning", "level", ["WARNING", "ERROR"]),
        ("logs list p --level ERROR", "level", ["ERROR"]),
        ("logs list p --worker w-busy", "message", ["hello"]),
        ("logs list p --limit 1", "message", ["hello"]),
        ("runs list --limit 1", "run_id", ["r1"]),
    ],
)
def test_what_is_shown_can_be_narrowed(full: str, command: str, field: str, expected: list[Any]) -> None:
    assert [row[field] for row in rows(command, full)] == expected


def test_a_beat_is_shown_whole(full: str) -> None:
    said = invoke("beats", "show", "p", "1", store=full).output

    assert "beat 1 at " in said
    assert "by me, epoch 1" in said
    assert "saw: wanted 2\nrule queue wanted 5: 15 ready jobs, 3 per worker\n" in said
    assert "limit policy max_workers made that 2: at most 2 are kept\n" in said
    assert "did: Spawn w-new: 1 of 2 workers are here  [not done: no capacity]\n" in said


def test_a_beat_that_did_nothing_says_why(full: str) -> None:
    assert "did nothing: 2 of 2 workers are here\n" in invoke("beats", "show", "p", "2", store=full).output


def test_the_last_beat_is_shown_if_none_is_named(full: str) -> None:
    assert "failed: observe: no answer\n" in invoke("beats", "show", "p", store=full).output


def test_a_beat_is_shown_as_json(full: str) -> None:
    beat = json.loads(invoke("beats", "show", "p", "1", "--json", store=full).output)

    assert (beat["n"], beat["epoch"], beat["summary"]) == (1, 1, SUMMARY)
    assert beat["actions"][0]["reason"] == "1 of 2 workers are here"


def test_a_beat_that_was_pruned_is_not_taken_for_the_next(url: str) -> None:
    make_store(url, scene)
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    with connection:
        connection.execute("DELETE FROM beats WHERE n = 1")
    connection.close()

    with pytest.raises(InvalidInput, match="pool 'p' has no beat 1"):
        invoke("beats", "show", "p", "1", store=url)
