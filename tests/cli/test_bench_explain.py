"""bench explain and show: a run in words, with a language model, without one, and with one that fails."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.explain.given import mark, marked_run
from cli.given import Said, invoke, make_store, ran
from drumbeat.store import Store
from servers.language_model import KEY, MODEL, Endpoint, language_model

RUN = mark("run")
FIRST = "This run loaded PostgreSQL with 8 connections on 1 worker for 48.6 s: 1,234 operations/s, p95 "


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    with language_model() as made:
        yield made


async def scene(store: Store) -> None:
    await marked_run(store)


@pytest.fixture
def store(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/s.db"
    make_store(url, scene)
    return url


def explained(folder: Path, store: str, endpoint: Endpoint, *options: str) -> Said:
    (folder / "drumbeat.toml").write_text(endpoint.toml)
    return ran("bench", "explain", RUN, *options, cwd=folder, DRUMBEAT_STORE=store, DRUMBEAT_LANGUAGE_MODEL_KEY=KEY)


def test_without_a_model_the_summary_is_shown_and_how_to_set_one_up(store: str, tmp_path: Path) -> None:
    said = ran("bench", "explain", RUN, cwd=tmp_path, DRUMBEAT_STORE=store)

    assert said.code == 0
    assert said.output.startswith(FIRST)
    assert "add the table [language_model] to drumbeat.toml" in said.output
    assert said.errors == ""


def test_what_the_model_wrote_is_shown_apart_and_kept(store: str, tmp_path: Path, endpoint: Endpoint) -> None:
    endpoint.says("The clients were the limit. Try 16 workers.")

    said = explained(tmp_path, store, endpoint)

    assert (said.code, said.errors) == (0, "")
    ours, _, theirs = said.output.partition(f"Written by the language model {MODEL} on ")
    assert ours.startswith(FIRST)
    assert "Try 16 workers." not in ours
    assert "  The clients were the limit. Try 16 workers.\nnote: Numbers in this text" in theirs
    shown = invoke("bench", "show", RUN, store=store).output
    assert FIRST in shown
    assert theirs in shown
    written = json.loads(invoke("bench", "show", RUN, "--json", store=store).output)
    assert written["summary"][0].startswith(FIRST)
    assert (written["explanation"]["model"], written["explanation"]["unknown_numbers"]) == (MODEL, ["16"])


@pytest.mark.parametrize("status", [401, 429, 500])
def test_a_refusal_is_one_line_and_the_summary_is_shown_all_the_same(
    store: str, tmp_path: Path, endpoint: Endpoint, status: int
) -> None:
    endpoint.refuses(status)

    said = explained(tmp_path, store, endpoint)

    assert said.code == 1
    assert said.output.startswith(FIRST)
    assert said.errors.count("\n") == 1
    assert f"(HTTP {status})" in said.errors
    assert KEY not in said.output + said.errors


def test_wrong_settings_are_one_line_too(store: str, tmp_path: Path) -> None:
    (tmp_path / "drumbeat.toml").write_text('[language_model]\nurl = "http://elsewhere/v1"\nmodel = "m"\n')

    said = ran("bench", "explain", RUN, cwd=tmp_path, DRUMBEAT_STORE=store)

    assert said.code == 1
    assert said.output.startswith(FIRST)
    assert "language_model: expected url to be https://HOST/PATH" in said.errors


def test_as_json(store: str, tmp_path: Path, endpoint: Endpoint) -> None:
    endpoint.says("It was slow.")
    good = json.loads(explained(tmp_path, store, endpoint, "--json").output)
    endpoint.refuses(429)
    bad = explained(tmp_path, store, endpoint, "--json")

    assert (good["explanation"]["text"], good["error"]) == ("It was slow.", None)
    told = json.loads(bad.output)
    assert "(HTTP 429)" in told["error"]
    assert told["explanation"] == good["explanation"]
    assert told["summary"] == good["summary"]
