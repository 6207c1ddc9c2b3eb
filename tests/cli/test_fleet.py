"""drumbeat fleet: simulate, plan, beat, explain, replay and people's hands, from the command line."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from cli.given import Said, drumbeat, eventually, invoke, ran
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.clock import SystemClock
from drumbeat.core.errors import InvalidInput, InvalidSettings, NotFound
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.fake import FakeSpawner, ListFails
from drumbeat.store import open_store
from drumbeat.store.contract.given import active

FIGURES = {
    "policy",
    "jobs",
    "worker_hours",
    "oracle_hours",
    "cost_ratio",
    "wait_p50_s",
    "wait_p95_s",
    "wait_p99_s",
    "spawns",
    "flaps",
}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    file = tmp_path / "trace.csv"
    file.write_text("arrival,duration\n" + "".join(f"{n * 20},45\n" for n in range(100)))
    return file


def simulated(trace: Path, *more: str) -> Any:
    return json.loads(invoke("fleet", "simulate", "--trace", str(trace), *more, "--json").output)


def test_a_simulation_tells_cost_and_wait(trace: Path) -> None:
    found = simulated(trace, "--policy", "lag_aware", "--spawn-lag", "120s", "--set", "max_workers=50")

    assert found.keys() >= FIGURES
    assert (found["policy"], found["jobs"], found["spawn_lag_s"]) == ("lag_aware", 100, 120)
    assert found["cost_ratio"] == pytest.approx(found["worker_hours"] / found["oracle_hours"])
    assert found["warm"].keys() >= FIGURES
    assert found["warm"]["wait_p95_s"] < found["wait_p95_s"]


def test_settings_change_a_simulation(trace: Path) -> None:
    few, many = simulated(trace, "--set", "max_workers=1"), simulated(trace, "--set", "max_workers=50")

    assert few["most_workers"] == 1 < many["most_workers"]
    assert few["wait_p95_s"] > many["wait_p95_s"]


def test_a_simulation_goes_by_the_files_policy(trace: Path, tmp_path: Path) -> None:
    file = tmp_path / "fleet.yml"
    file.write_text("policy: queue_cover\nmin_workers: 0\n")

    assert simulated(trace, "--file", str(file))["policy"] == "queue_cover"
    assert simulated(trace, "--file", str(file), "--policy", "lag_aware")["policy"] == "lag_aware"


def test_a_simulation_is_drawn_for_people(trace: Path, tmp_path: Path) -> None:
    said = invoke("fleet", "simulate", "--trace", str(trace), "--plot", str(tmp_path / "plot.svg"))

    assert "cost_ratio" in said.output
    assert said.output.split()[:2] == ["cold", "warm"]
    assert " workers " in said.output
    assert (tmp_path / "plot.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("more", "error", "message"),
    [
        (["--policy", "best"], InvalidInput, "got the policy 'best'"),
        (["--set", "max_workers"], InvalidInput, "expected --set FIELD=VALUE, got 'max_workers'"),
        (["--set", "colour=red"], InvalidSettings, "has no field colour"),
        (["--set", "every=0"], InvalidSettings, "every to be 0.1 s or more"),
        (["--set", "max_workers=0"], InvalidInput, "got one that allows 0"),
        (["--spawn-lag", "soon"], InvalidInput, "got 'soon'"),
        (["--plot", "plot.png"], InvalidInput, r"end in \.html or \.svg"),
    ],
)
def test_a_mistake_in_a_simulation_is_named(trace: Path, more: list[str], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        invoke("fleet", "simulate", "--trace", str(trace), *more)


def test_a_pool_of_jobs_is_scaled_and_keeps_how_its_workers_work(url: str) -> None:
    invoke("pool", "create", "p", "--handler", "command:cat", "--concurrency", "4", store=url)
    invoke("fleet", "create", "p", "--set", "min_workers=0", "--set", "max_workers=3", store=url)

    made = json.loads(invoke("fleet", "status", "p", "--json", store=url).output)["policy"]
    kept = {name: made[name] for name in ("policy", "min_workers", "max_workers", "concurrency", "handlers", "mode")}
    assert kept == {
        "policy": "lag_aware",
        "min_workers": 0,
        "max_workers": 3,
        "concurrency": 4,
        "handlers": {"": "command:cat"},
        "mode": "loop",
    }


PRICED = ("--set", "min_workers=0", "--set", "max_per_day=20", "--set", "price_per_hour=0.5")


def policy_of(url: str) -> Any:
    return json.loads(invoke("fleet", "status", "p", "--json", store=url).output)["policy"]


def test_a_fleet_changes_only_in_what_is_given_and_says_in_what(url: str) -> None:
    invoke("fleet", "create", "p", "--set", "needs_gpu=true", *PRICED, store=url)
    before = policy_of(url)

    said = invoke("fleet", "create", "p", "--set", "max_workers=5", "--set", "idle_timeout=5m", store=url).output

    assert "pool p, changed: max_workers 10 → 5, idle_timeout 600 s → 300 s" in said
    assert policy_of(url) == before | {"max_workers": 5, "idle_timeout_seconds": 300.0}
    assert "pool p, changed: nothing" in invoke("fleet", "create", "p", store=url).output


def test_a_fleet_is_told_how_long_its_jobs_take(url: str, trace: Path) -> None:
    invoke("fleet", "create", "p", "--expected-service", "90s", store=url)

    assert policy_of(url)["expected_service_seconds"] == 90
    slow = "--spawn-lag", "300s"
    assert simulated(trace, *slow, "--expected-service", "45s")["wait_mean_s"] < simulated(trace, *slow)["wait_mean_s"]
    with pytest.raises(InvalidSettings, match="expected_service"):
        invoke("fleet", "create", "p", "--expected-service", "soon", store=url)


def test_a_fixed_fleets_workers_are_changed(url: str) -> None:
    invoke("fleet", "create", "p", "--policy", "fixed", "--set", "workers=2", store=url)

    assert "workers 2 → 5" in invoke("fleet", "create", "p", "--set", "workers=5", store=url).output


@pytest.mark.parametrize("command", ["beat", "run", "plan"])
def test_a_pool_that_nobody_made_a_fleet_keeps_its_workers(url: str, command: str) -> None:
    invoke("pool", "create", "p", "--handler", "command:cat", store=url)

    with pytest.raises(InvalidInput, match="make it one with: drumbeat fleet create p"):
        invoke("fleet", command, "p", store=url)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["file=x"], "has no field file"),
        (["max_worker=1"], r"has no field max_worker; did you mean max_workers\?"),
        (["provider=runpod"], "got sqlite, which only this machine can reach; copy it with: drumbeat store copy sqlite:////"),
        (["max_per_day=0.01"], "set price_per_hour, or drop the ceiling"),
        (["provider=gcp"], r"expected the name of an engine \(local\), got 'gcp'"),
        (["engine=gcp"], r"expected the name of an engine \(local\), got 'gcp'"),
        (["needs_gpu=perhaps"], "needs_gpu to be true or false"),
    ],
)
def test_a_fleet_that_cannot_be_is_not_made(url: str, settings: list[str], said: str) -> None:
    with pytest.raises(InvalidSettings, match=said):
        invoke("fleet", "create", "p", *(word for each in settings for word in ("--set", each)), store=url)
    assert json.loads(invoke("pool", "list", "--json", store=url).output) == []


def test_no_is_no(url: str) -> None:
    invoke("fleet", "create", "p", "--set", "needs_gpu=true", store=url)
    assert policy_of(url)["needs_gpu"] is True

    invoke("fleet", "create", "p", "--set", "needs_gpu=false", store=url)
    assert "needs_gpu" not in policy_of(url)


def test_a_plan_heeds_the_environment_as_a_beat_does(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    invoke("fleet", "create", "p", "--set", "min_workers=1", store=url)
    monkeypatch.setenv("MIN_ACTIVE_GPUS", "3")

    plan = invoke("fleet", "plan", "p", store=url).output

    assert "wanted: 3 workers" in plan
    assert "to do:\n  Spawn worker-0" in plan
    assert policy_of(url)["min_workers"] == 1


def test_what_the_environment_will_overrule_is_said(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAX_ACTIVE_GPUS", "9")

    said = invoke("fleet", "create", "p", "--set", "max_workers=2", store=url).output

    assert "in fleet run, beat and plan, environment variables override: max_workers 2 → 9" in said.replace("\n", " ")


def test_a_beat_with_a_provider_there_is_not_leaves_no_trace(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    invoke("fleet", "create", "p", "--set", "min_workers=0", store=url)
    monkeypatch.setenv("DRUMBEAT_PROVIDER", "nope")
    with pytest.raises(InvalidSettings, match="got 'nope'"):
        invoke("fleet", "beat", "p", store=url)
    monkeypatch.delenv("DRUMBEAT_PROVIDER")

    assert "wanted: 0 workers" in invoke("fleet", "plan", "p", store=url).output
    assert json.loads(invoke("fleet", "beat", "p", "--json", store=url).output)["led"]


def test_a_plan_writes_nothing_and_says_what_each_rule_wants(url: str) -> None:
    invoke("fleet", "create", "p", "--policy", "queue_cover", "--set", "min_workers=0", store=url)
    invoke("pool", "push", "p", "1", store=url)

    plan = json.loads(invoke("fleet", "plan", "p", "--json", store=url).output)

    assert plan["wanted"] == 1
    assert plan["actions"][0].startswith("Spawn worker-0")
    assert json.loads(invoke("fleet", "workers", "p", "--json", store=url).output) == []
    assert json.loads(invoke("beats", "list", "p", "--json", store=url).output) == []


def test_a_fleet_is_watched(url: str) -> None:
    told = ["--set", "min_workers=0", "--set", "price_per_hour=2", "--set", "max_per_day=5"]
    invoke("fleet", "create", "p", "--policy", "queue_cover", *told, store=url)
    invoke("pool", "push", "p", "1", store=url)

    before = invoke("fleet", "watch", "p", "--once", store=url).output
    assert "no workers" in before
    assert "1 ready" in before
    assert "no beat yet" in before

    invoke("fleet", "create", "p", "--policy", "queue_cover", *told, "--set", "max_workers=0", store=url)
    invoke("fleet", "beat", "p", store=url)

    after = invoke("fleet", "watch", "p", "--once", store=url).output
    assert "beat 1 at" in after
    assert "wanted 0 workers" in after
    assert "policy max_workers: 1 → 0: at most 0 workers are allowed" in after
    assert "nothing was done" in after
    assert "0.000 of 5 this day" in after


def test_a_provider_is_tried_again(url: str) -> None:
    invoke("fleet", "create", "p", "--policy", "fixed", "--set", "workers=0", store=url)
    invoke("pool", "create", "jobs", store=url)

    assert "its next beat asks the engine again" in invoke("fleet", "retry", "p", store=url).output
    assert json.loads(invoke("fleet", "retry", "p", "--json", store=url).output)["pool_id"] == "p"
    assert "ForgetRefusals: a user asked at" in invoke("fleet", "plan", "p", store=url).output
    with pytest.raises(InvalidInput, match="drumbeat fleet create jobs"):
        invoke("fleet", "retry", "jobs", store=url)


def test_what_is_not_there_is_named(url: str, empty: str) -> None:
    with pytest.raises(NotFound):
        invoke("fleet", "status", "nobody", store=empty)
    for given in ("noon", "9999-12-31T23:59:59-12:00"):
        with pytest.raises(InvalidInput, match="expected a time such as"):
            invoke("fleet", "explain", "nobody", "--at", given, store=empty)


def test_a_fleet_beats_explains_itself_and_lets_go(tmp_path: Path) -> None:
    def fleet(*arguments: str) -> Said:
        said = (drumbeat if arguments[0] == "beat" else ran)("fleet", *arguments, cwd=tmp_path)
        assert said.code == 0, said
        return said

    def ended() -> bool:
        fleet("beat", "p")
        return not json.loads(fleet("workers", "p", "--json").output)

    fleet("create", "p", "--handler", "command:cat", "--set", "min_workers=0", "--set", "max_workers=1")
    ran("pool", "push", "p", "1", cwd=tmp_path)
    first = json.loads(fleet("beat", "p").output)
    assert first["actions"]["workers_spawned"] == 1
    assert first["status"]["queued_tasks"] == 1
    assert "did" not in fleet("explain", "p").output
    assert "Spawn worker-0" in fleet("explain", "p").output
    assert "Spawn worker-0" in fleet("events", "p").output
    try:
        replayed = json.loads(fleet("replay", "p", "--json").output)
        assert (replayed["share"], replayed["beats"]) == (1.0, 1)
        assert "would want 0" in fleet("replay", "p", "--set", "max_workers=0").output
        assert "per worker and hour" in fleet("spend", "p").output
        fleet("create", "p", "--set", "min_workers=0", "--set", "max_workers=0")
    finally:
        fleet("drain", "p", "--within", "1s")
        eventually(ended, "no worker is left")


def test_whoever_is_told_to_leave_is_shown_as_terminating(url: str) -> None:
    """At once, while its row still says active; its namesakes in two other pools stay as they are."""

    async def prepare() -> None:
        async with open_store(url) as store:
            for name in ("p", "q", "r"):
                await active(store, await store.pools.get(PoolId(name)), WorkerId("worker-0"))

    for name in ("p", "q", "r"):
        invoke("fleet", "create", name, "--policy", "fixed", "--set", "workers=1", store=url)
    asyncio.run(prepare())
    invoke("fleet", "drain", "p", "worker-0", "--within", "1h", store=url)

    for name, standing, leaves in (("p", "terminating", True), ("q", "active", False), ("r", "active", False)):
        said = invoke("fleet", "status", name, store=url).output
        (told,) = json.loads(invoke("fleet", "status", name, "--json", store=url).output)["workers"]
        (row,) = json.loads(invoke("fleet", "workers", name, "--json", store=url).output)
        assert f"worker-0 {standing} (healthy, 0 jobs" in said
        assert ("1 live workers, 1 of them terminating" in said, ", leaves by 2" in said) == (leaves, leaves)
        assert (told["status"], told["terminating"], row["terminating"]) == ("active", leaves, leaves)
        assert standing in invoke("fleet", "workers", name, store=url).output
        assert f"fleet {name} · 1 {standing}" in invoke("fleet", "watch", name, "--once", store=url).output


@pytest.mark.parametrize("how", ["for people", "--json"])
def test_a_plan_and_a_beat_never_hide_a_failing_provider(url: str, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    invoke("fleet", "create", "p", "--policy", "fixed", "--set", "workers=0", store=url)
    spawner = FakeSpawner(SystemClock(), [ListFails(reason="HTTP 401: invalid bearer token", times=2)])
    monkeypatch.setattr(ControlPlane, "spawner", lambda plane, provider: spawner)
    words = () if how == "for people" else (how,)

    plan = invoke("fleet", "plan", "p", *words, store=url)
    beat = invoke("fleet", "beat", "p", store=url)
    after = invoke("fleet", "plan", "p", *words, store=url)

    assert (plan.code, beat.code, after.code) == (1, 1, 0)
    assert "HTTP 401: invalid bearer token" in plan.output
    assert json.loads(beat.output)["provider_error"] == "pool p: HTTP 401: invalid bearer token"
    assert (
        "alarm: the provider failed to list its instances: pool p: HTTP 401" in invoke("fleet", "status", "p", store=url).output
    )


def test_a_worker_may_be_exempt_from_capacity(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three pools whose workers have the same name, one: there another is started for it, and it is not sent away."""
    spawner = FakeSpawner(SystemClock())
    monkeypatch.setattr(ControlPlane, "spawner", lambda plane, provider: spawner)

    async def prepare() -> None:
        async with open_store(url) as store:
            for name in ("p", "q", "r"):
                await active(store, await store.pools.get(PoolId(name)), WorkerId("worker-0"))

    def spawned(name: str) -> int:
        return int(json.loads(invoke("fleet", "beat", name, store=url).output)["actions"]["workers_spawned"])

    for name in ("p", "q", "r"):
        invoke("fleet", "create", name, "--policy", "fixed", "--set", "workers=1", store=url)
    asyncio.run(prepare())
    invoke("fleet", "exempt", "p", "worker-0", store=url)

    assert "worker-0 active (healthy, 0 jobs, exempt from capacity)" in invoke("fleet", "status", "p", store=url).output
    assert [spawned(name) for name in ("p", "q", "r")] == [1, 0, 0]
    invoke("fleet", "exempt", "p", "worker-0", "--off", store=url)
    told = json.loads(invoke("fleet", "beat", "p", store=url).output)
    assert told["actions"]["workers_terminated"] == 1
    with pytest.raises(NotFound):
        invoke("fleet", "exempt", "p", "nobody", store=url)
