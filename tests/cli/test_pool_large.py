"""drumbeat pool sweep, and large values and results that expire on the command line."""

import json
from pathlib import Path

import pytest

from cli.given import invoke, piped
from drumbeat.core.errors import InvalidInput, InvalidSettings


def test_a_large_payload_is_shown_whole_and_a_sweep_keeps_it(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRUMBEAT_LARGE", f"file://{tmp_path}/large")
    text = "x" * 100_000
    job_id = invoke("pool", "push", "p", json.dumps(text), store=url).output.strip()

    swept = invoke("pool", "sweep", "--older-than", "0s", "--dry-run", store=url)

    assert job_id.startswith("large-")
    assert swept.output == "would delete 0 of 1 large values\n"
    assert json.loads(invoke("pool", "show", "p", job_id, "--json", store=url).output)["payload"] == text


@pytest.mark.parametrize("way", ["lines", "complete jobs", "a file", "an argument"])
def test_a_payload_above_the_limit_of_the_store_is_pushed_as_a_large_value(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setenv("DRUMBEAT_LARGE", f"file://{tmp_path}/large")
    text = "x" * 2_000_000
    file = tmp_path / "jobs.jsonl"
    file.write_text(json.dumps({"payload": text}) if way == "complete jobs" else json.dumps(text), encoding="utf-8")

    match way:
        case "a file":
            invoke("pool", "import", "p", str(file), store=url)
        case "an argument":
            invoke("pool", "push", "p", json.dumps(text), store=url)
        case _:
            more = ["--jobs"] if way == "complete jobs" else []
            piped(file.read_text(encoding="utf-8"), "pool", "push", "p", "-", *more, store=url)

    job = json.loads(invoke("pool", "list", "p", "--json", store=url).output)
    assert json.loads(invoke("pool", "show", "p", job["job_id"], "--json", store=url).output)["payload"] == text


def test_a_sweep_that_would_delete_values_before_their_push_is_refused(
    empty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRUMBEAT_LARGE", f"file://{tmp_path}/large")

    with pytest.raises(InvalidInput, match="expected an age of at least 10 minutes, got 599 s: a younger value may belong"):
        invoke("pool", "sweep", "--older-than", "599s", store=empty)
    assert invoke("pool", "sweep", "--older-than", "10m", store=empty).output == "deleted 0 of 0 large values\n"


def test_a_sweep_without_a_place_names_the_setting(empty: str) -> None:
    with pytest.raises(InvalidSettings, match=r"expected the setting \[pool\] large"):
        invoke("pool", "sweep", store=empty)


def test_a_pool_is_created_and_updated_with_the_time_to_live_of_results(url: str) -> None:
    created = json.loads(invoke("pool", "create", "p", "--result-ttl", "1h", "--json", store=url).output)
    updated = json.loads(invoke("pool", "create", "p", "--update", "--result-ttl", "2h", "--json", store=url).output)

    assert (created["policy"]["result_ttl"], updated["policy"]["result_ttl"]) == (3600, 7200)
    with pytest.raises(InvalidInput, match="expected result_ttl to be above 0"):
        invoke("pool", "create", "p", "--update", "--result-ttl", "0s", store=url)
