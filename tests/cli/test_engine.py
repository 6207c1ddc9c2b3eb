"""drumbeat engine: kinds, list, check, workers and logs."""

import json
from pathlib import Path

import pytest

from cli.given import drumbeat, eventually, processes_of, ran
from drumbeat.composition.engine_check import EngineCheck

TWO = """
[engines.here]
kind = "local"
price_per_hour = 0.5

[engines.broken]
kind = "local"
slots = 0
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "engines.toml").write_text('[engines.here]\nkind = "local"\nprice_per_hour = 0.5\n')
    (tmp_path / "task.py").write_text("def double(payload):\n    return payload['n'] * 2\n")
    return tmp_path


def test_kinds_say_what_is_missing(tmp_path: Path) -> None:
    done = ran("engine", "kinds", "--json", cwd=tmp_path)

    kinds = {each["kind"]: each for each in json.loads(done.output)}
    assert kinds["local"] | {"usable": True, "problem": None, "extra": None, "elsewhere": False} == kinds["local"]
    assert kinds["runpod"]["install"] == "pip install 'drumbeat[runpod]'"
    assert kinds["spcs"]["install"] == "pip install 'drumbeat[snowflake]'"
    assert "RUNPOD_API_KEY" in kinds["runpod"]["problem"]


def test_the_list_shows_prices_and_problems(tmp_path: Path) -> None:
    (tmp_path / "engines.toml").write_text(TWO)

    done = ran("engine", "list", "--json", cwd=tmp_path)

    engines = {each["name"]: each for each in json.loads(done.output)}
    assert list(engines) == ["local", "here", "broken"]
    assert (engines["here"]["price_per_hour"], engines["here"]["problem"]) == (0.5, None)
    assert engines["here"]["traits"]["unique_names"] is True
    assert "expected slots to be 1 or more, got 0" in engines["broken"]["problem"]
    assert "unique names" in ran("engine", "list", cwd=tmp_path).output


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_an_engine_is_checked_with_a_real_worker(folder: Path, store: str, request: pytest.FixtureRequest) -> None:
    url = f"sqlite:///{folder}/d.db" if store == "sqlite" else str(request.getfixturevalue("postgres_url"))

    done = drumbeat("engine", "check", "here", "--json", cwd=folder, DRUMBEAT_STORE=url)

    found = json.loads(done.output)
    assert (done.code, found["ok"]) == (0, True), found
    assert [step["step"] for step in found["steps"]][-1] == "clean up"
    assert json.loads(ran("pools", "list", "--json", cwd=folder, DRUMBEAT_STORE=url).output) == []
    assert processes_of(folder) == []


def test_a_failed_check_names_the_step(tmp_path: Path) -> None:
    (tmp_path / "engines.toml").write_text(TWO)

    done = ran("engine", "check", "broken", cwd=tmp_path)

    assert done.code == 1
    assert done.output.startswith("FAIL  settings")
    assert done.output.splitlines()[-1] == "engine broken failed its check (settings); the check left nothing behind"
    assert ran("engine", "check", "nope", cwd=tmp_path).code == 1


@pytest.mark.parametrize("timeout", ["20", "20s", "0.5m"])
def test_the_limit_of_a_check_is_seconds_or_a_duration(tmp_path: Path, timeout: str) -> None:
    (tmp_path / "engines.toml").write_text(TWO)

    done = ran("engine", "check", "broken", "--timeout", timeout, cwd=tmp_path)

    assert done.output.startswith("FAIL  settings"), done.errors


def test_an_interrupted_check_says_that_nothing_is_left(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def interrupt(check: EngineCheck) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(EngineCheck, "run", interrupt)

    done = ran("engine", "check", "here", cwd=folder)

    assert done.code == 130
    assert done.output.splitlines()[-1] == "the check of engine here was interrupted; the check left nothing behind"


def test_an_engine_of_an_unknown_kind_leaves_the_others_usable(folder: Path) -> None:
    with (folder / "engines.toml").open("a") as file:
        file.write('[engines.x]\nkind = "vax"\n')

    listed = json.loads(ran("engine", "list", "--json", cwd=folder).output)
    made = ran("pool", "create", "jobs", "--engine", "here", cwd=folder)
    refused = ran("pool", "create", "others", "--engine", "x", cwd=folder)

    assert [(each["name"], each["problem"] is None) for each in listed] == [("local", True), ("here", True), ("x", False)]
    assert (made.code, refused.code) == (0, 1)
    assert "expected the kind of engine 'x' to be one of local" in refused.errors
    assert "engine x" in ran("engine", "workers", cwd=folder).output


def test_spaces_in_a_list_of_engines_do_not_matter(folder: Path) -> None:
    ran("pool", "create", "jobs", "--engine", "here, local", cwd=folder)
    ran("fleet", "create", "f", "--engine", "here , local", cwd=folder)

    pools = json.loads(ran("pools", "list", "--json", cwd=folder).output)
    assert [each["policy"]["provider"] for each in pools] == ["here,local", "here,local"]


def test_a_pool_runs_its_jobs_at_its_engine(folder: Path) -> None:
    made = ran("pool", "create", "jobs", "--handler", "task:double", "--engine", "here", cwd=folder)
    ran("pool", "push", "jobs", '{"n": 21}', cwd=folder)

    checked = ran("pool", "check", "jobs", "--json", cwd=folder)

    assert "engine here" in made.output
    assert json.loads(checked.output)["jobs"]["summary"]["spawned"] == 1
    eventually(lambda: _done(folder) == 1, "the job is done")
    workers = json.loads(ran("workers", "list", "jobs", "--json", cwd=folder).output)
    assert [each["provider"] for each in workers] == ["here"]
    assert (folder / ".drumbeat" / "engines" / "here").is_dir()
    eventually(lambda: processes_of(folder) == [], "the worker ends")


def _done(folder: Path) -> int:
    return int(json.loads(ran("pool", "status", "jobs", "--json", cwd=folder).output)["jobs"]["done"])


def test_a_fleet_runs_and_leaves_its_engine(folder: Path) -> None:
    ran("fleet", "create", "f", "--policy", "fixed", "--set", "workers=1", "--engine", "here", cwd=folder)
    ran("fleet", "beat", "f", cwd=folder)
    try:
        eventually(lambda: len(_workers(folder)) == 1, "the worker is listed by its engine")
        (worker,) = _workers(folder)
        assert (worker["engine"], worker["pool_id"], worker["worker_id"]) == ("here", "f", "worker-0")
        assert (worker["state"], worker["price_per_hour"]) == ("running", 0.5)
        logs = ran("engine", "logs", "here", "f", "worker-0", "--lines", "5", cwd=folder)
        assert logs.code == 0
        assert ran("engine", "logs", "here", "f", "worker-9", cwd=folder).code == 1
    finally:
        killed = ran("fleet", "kill", "f", "worker-0", cwd=folder)
    assert killed.code == 0
    assert _workers(folder) == []
    assert processes_of(folder) == []


def _workers(folder: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(ran("engine", "workers", "--json", cwd=folder).output)["workers"]
    return found


def test_workers_elsewhere_need_a_store_that_they_can_reach(folder: Path) -> None:
    commands = (
        ("fleet", "create", "f", "--engine", "runpod"),
        ("pool", "create", "p", "--engine", "here,runpod"),
        ("engine", "check", "runpod"),
    )
    for command in commands:
        done = ran(*command, cwd=folder)

        assert done.code == 1
        said = done.errors + done.output
        assert f"drumbeat store copy sqlite:///{folder}/drumbeat.db postgresql://" in said
        assert "export DRUMBEAT_STORE=" in said
        assert not (folder / "drumbeat.db").exists(), "no store is created in vain"
    checked = json.loads(ran("engine", "check", "runpod", "--json", cwd=folder).output)
    assert [(step["step"], step["ok"]) for step in checked["steps"]] == [("settings", False)]


def test_a_store_at_localhost_is_a_warning_for_workers_elsewhere(folder: Path, postgres_url: str) -> None:
    done = ran("pool", "create", "p", "--engine", "runpod", cwd=folder, DRUMBEAT_STORE=postgres_url)

    assert done.code == 0
    assert "which is another machine for the workers of runpod" in done.errors


TEMPLATE = """
name: quick
target: {{url: "sqlite:///{folder}/t.db"}}
workload: {{standard: tpcb, scale: 0.01}}
timing: {{warmup_seconds: 0, duration_seconds: 1}}
concurrent_connections: 1
"""


def test_a_benchmark_runs_at_its_engine(folder: Path) -> None:
    (folder / "quick.yml").write_text(TEMPLATE.format(folder=folder))
    ran("bench", "prepare", f"sqlite:///{folder}/t.db", "--workload", "tpcb", "--scale", "0.01", cwd=folder)

    done = drumbeat("bench", "run", "quick.yml", "--engine", "here,local", "--json", cwd=folder)

    assert done.code == 0, done.errors
    run_id = json.loads(done.output)["run"]["run_id"]
    workers = json.loads(ran("workers", "list", run_id, "--json", cwd=folder).output)
    assert [(each["provider"], each["meta"]["engine"]) for each in workers] == [("here,local", "here")]
    assert processes_of(folder) == []
