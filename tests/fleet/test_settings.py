"""A fleet's policy from a file, from environment variables and from settings."""

from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from drumbeat.core.errors import InvalidSettings
from drumbeat.core.pool import PRESETS, PoolKind
from drumbeat.fleet.model import FleetPolicy, PolicyName, Schedule
from drumbeat.fleet.settings import (
    LEGACY,
    SUCCESSOR,
    VARIABLES,
    changed_policy,
    legacy_policy,
    load_policy,
    load_thresholds,
    read_policy,
    with_settings,
)
from fleet.given import seconds

LEGACY_TEXT = {  # as the earlier RunPod orchestrator lists them
    "MIN_ACTIVE_GPUS": 2,
    "MAX_ACTIVE_GPUS": 10,
    "TASKS_PER_GPU_THRESHOLD": 3,
    "GPU_IDLE_TIMEOUT_SEC": 300,
    "TASK_STUCK_TIMEOUT_SEC": 300,
    "SPAWNING_TIMEOUT_SEC": 300,
    "GRACEFUL_SHUTDOWN_TIMEOUT_SEC": 600,
    "ORCHESTRATOR_POLL_SEC": 30,
    "GPU_HEALTH_CHECK_TIMEOUT_SEC": 120,
}


def test_every_variable_of_the_earlier_orchestrator_is_there_with_its_default() -> None:
    assert {each.name: each.default for each in LEGACY} == LEGACY_TEXT


def test_every_variable_sets_a_field_and_means_it() -> None:
    for each in VARIABLES:
        text = {"provider": "runpod", "contract": "x", "failure_rate": "0.7"}.get(each.field, "7")
        told = getattr(
            load_policy({each.name: text}, **({} if each.field == "min_workers" else {"min_workers": 0})), each.field
        )
        assert told == (text if each.default == "" else seconds(7 * each.unit) if each.unit else float(text)), each.name


def test_the_defaults_of_later_variables_are_the_policys() -> None:
    usual = {each.name: each.default for each in fields(FleetPolicy)}
    for each in SUCCESSOR:
        if usual[each.field] is None or each.default == "":
            continue
        assert usual[each.field] == (seconds(float(each.default) * each.unit) if each.unit else each.default), each.name


def test_the_earlier_orchestrators_policy() -> None:
    policy = legacy_policy()

    assert (policy.policy, policy.min_workers, policy.max_workers) == (PolicyName.QUEUE_RATIO, 2, 10)
    assert (policy.spawning_timeout, policy.graceful_shutdown_timeout) == (seconds(300), seconds(600))


def test_hand_counts_more_than_environment_and_that_more_than_the_file(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yml"
    file.write_text("policy: lag_aware\nmin_workers: 1\nmax_workers: 3\nkeep_idle: 1\nidle_timeout: 10m\nwait_slo: 90\n")

    policy = load_policy({"MAX_ACTIVE_GPUS": "4", "MACHINES_TO_KEEP_IDLE": "2"}, file, keep_idle=3)

    assert policy == FleetPolicy(
        policy=PolicyName.LAG_AWARE, min_workers=1, max_workers=4, keep_idle=3, idle_timeout=seconds(600), wait_slo=seconds(90)
    )


def test_how_disks_are_watched_is_set_by_variables_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yml"
    file.write_text("storage_max_gb: 300\nstorage_min_free_gb: 20.5\nstorage_check_interval_cycles: 3\n")
    told = {
        "STORAGE_CHECK_INTERVAL_CYCLES": "20",
        "STORAGE_MIN_FREE_GB": "30",
        "STORAGE_MAX_PERCENT_USED": "92.5",
        "STORAGE_EXPANSION_INCREMENT_GB": "100",
    }
    usual, by_file, by_both = load_policy({}), load_policy({}, file), load_policy(told, file)

    assert _storage(usual) == (10, 50, 85, 50, 1000)
    assert _storage(by_file) == (3, 20.5, 85, 50, 300)
    assert _storage(by_both) == (20, 30, 92.5, 100, 300)
    assert FleetPolicy.from_json(by_both.to_json()) == by_both


def _storage(policy: FleetPolicy) -> tuple[float, ...]:
    limits = (policy.storage_min_free_gb, policy.storage_max_percent_used)
    return (policy.storage_check_interval_cycles, *limits, policy.storage_expansion_increment_gb, policy.storage_max_gb)


def test_schedules_can_be_taken_away() -> None:
    policy = read_policy({"schedules": [{"from": "08:00", "to": "18:00", "max_workers": 4}]})

    assert len(policy.schedules) == 1
    assert with_settings(policy, {"schedules": None}).schedules == ()


def test_schedules_are_written_as_people_write_them(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yml"
    file.write_text('schedules:\n  - {from: "08:00", to: "18:30", days: [mon, Friday], utc_offset: "-01:00", max_workers: 4}\n')

    assert load_policy({}, file).schedules == (
        Schedule(begin=480, end=1110, days=(0, 4), utc_offset=timedelta(hours=-1), max_workers=4),
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"max_wrokers": 3}, r"has no field max_wrokers; did you mean max_workers\?$"),
        ({"Max-Workers": 3}, r"has no field Max-Workers; did you mean max_workers\?$"),
        ({"MAX_ACTIVE_GPUS": 3}, r"has no field MAX_ACTIVE_GPUS; did you mean max_workers\?$"),
        ({"idle_timeout_seconds": 3}, r"did you mean idle_timeout\?$"),
        ({"idle_timeout": "soon"}, "expected idle_timeout to be a number of seconds, or a duration such as 90s"),
        ({"idle_timeout": True}, "expected idle_timeout"),
        ({"max_workers": "many"}, "expected numbers"),
        ({"max_workers": 1.5}, "expected numbers"),
        ({"policy": "magic"}, "expected policy to be one of fixed, queue_ratio, queue_cover, lag_aware; got 'magic'"),
        ({"policy": ["fixed"]}, "got policy"),
        ({"provider": "gcp,"}, "expected the name of an engine, or several separated by commas"),
        ({"engine": "a,b,a"}, "expected each engine once, got 'a,b,a'"),
        ({"needs_gpu": "maybe"}, "needs_gpu to be true or false"),
        ({"needs_gpu": 2}, "needs_gpu to be true or false"),
        ({"max_workers": True}, "expected numbers"),
        ({"max_workers": 1e23}, "max_workers to be 100000 or less"),
        ({"contract": {"x": 1}}, "contract to be a text"),
        ({"failure_rate": 80}, "failure_rate to be 1 or less"),
        ({"storage_max_percent_used": 850}, "storage_max_percent_used to be 100 or less"),
        ({"every": 0}, "every to be 0.1 s or more, got 0 s"),
        ({"every": "99999d"}, "every to be 3.1536e.09 s or less"),
        ({"heartbeat_timeout": 0}, "heartbeat_timeout to be 0.001 s or more"),
        ({"spawning_timeout": "0s"}, "spawning_timeout to be 0.001 s or more"),
        ({"stuck_timeout": 0}, "stuck_timeout to be 0.001 s or more"),
        ({"file": "x"}, "has no field file"),
        ({"schedules": [{"from": "08:75", "to": "18:00"}]}, "expected a time like"),
        ({"schedules": [{"from": "-08:00", "to": "18:00"}]}, "expected a time like"),
        ({"schedules": [{"from": "08:00", "to": "25:00"}]}, "expected a time like"),
        ({"schedules": [{"from": "08:00", "to": "18:00", "utc_offset": "99:00"}]}, "expected a time like"),
        ({"schedules": [{"from": "08:00", "to": "18:00", "utc_offset": "+15:00"}]}, "between -14:00 and .14:00"),
        ({"schedules": [{"from": "08:00", "to": "18:00", "min_workers": 9, "max_workers": 2}]}, "min_workers ≤ max_workers"),
        ({"schedules": [{"from": "08:00", "to": "18:00", "min_workers": 19}]}, "set both in the schedule"),
        ({"schedules": [{"from": "08:00", "to": "18:00", "max_workers": -4}]}, "max_workers from 0 to 100000, got -4"),
        ({"schedules": [{"from": "08:00", "to": "18:00", "min_workers": 2.5}]}, "expected numbers"),
        ({"schedules": [{"from": "08:00", "to": "18:00", "days": 5}]}, "expected days"),
        ({"schedules": [{"from": "08:00", "to": "18:00", "days": ["monkey"]}]}, "expected days"),
        ({"max_workers": 1, "min_workers": 2}, "min_workers ≤ max_workers, got min 2 and max 1; set both"),
        ({"schedules": "always"}, "list of schedules"),
        ({"schedules": [{"from": "08:00"}]}, "from and to"),
        ({"schedules": [{"from": 480, "to": "18:00"}]}, "in quotes"),
        ({"schedules": [{"from": "08:00", "to": "18:00", "days": ["someday"]}]}, "expected days"),
        ({"concurrency": 0}, "concurrency to be 1 or more"),
        ({"max_per_day": -1}, "max_per_day to be 0 or more"),
        ({"storage_max_gb": -1}, "storage_max_gb to be 0 or more"),
        ({"storage_expansion_increment_gb": 1.5}, "expected numbers"),
    ],
)
def test_what_cannot_be_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSettings, match=said):
        read_policy(settings)


def test_a_schedules_bounds_are_numbers_however_they_are_written() -> None:
    (made,) = read_policy({"schedules": [{"from": "08:00", "to": "24:00", "min_workers": "2"}]}).schedules

    assert (made.min_workers, made.end) == (2, 1440)


def test_a_schedule_may_count_on_anothers_maximum() -> None:
    day, peak = {"from": "08:00", "to": "18:00", "max_workers": 20}, {"from": "12:00", "to": "13:00", "min_workers": 15}

    assert len(read_policy({"max_workers": 10, "schedules": [day, peak]}).schedules) == 2


@pytest.mark.parametrize(
    ("told", "meant"),
    [("true", True), ("Yes", True), ("1", True), (True, True), ("false", False), ("no", False), (0, False), (False, False)],
)
def test_yes_and_no_are_what_they_say(told: Any, meant: bool) -> None:
    assert read_policy({"needs_gpu": told}).needs_gpu is meant


def test_no_time_to_drain_is_none_and_not_the_usual_time() -> None:
    limits = read_policy({"graceful_shutdown_timeout": 0}).limits(PRESETS[PoolKind.JOBS])

    assert limits.drain_within == seconds(0)


@pytest.mark.parametrize("policy", ["lag_aware", "queue_ratio"])
@pytest.mark.parametrize(("most", "bounds"), [("0", (0, 0)), ("1", (1, 1)), ("2", (2, 2)), ("3", (2, 3))])
def test_a_maximum_below_the_usual_minimum_lowers_it(policy: str, most: str, bounds: tuple[int, int]) -> None:
    by_variable = load_policy({"MAX_ACTIVE_GPUS": most}, policy=policy)
    kept = load_policy({}, policy=policy).to_json()

    for made in (by_variable, changed_policy(kept, {"max_workers": most}), with_settings(by_variable, {"keep_idle": 1})):
        assert (made.min_workers, made.max_workers) == bounds


@pytest.mark.parametrize("name", ["file", "environment"])
def test_a_field_there_is_not_is_named_whatever_it_is_called(name: str) -> None:
    with pytest.raises(InvalidSettings, match=f"has no field {name}"):
        load_policy({}, None, **{name: "x"})


def test_what_was_kept_changes_only_in_what_is_set() -> None:
    kept = read_policy({"policy": "lag_aware", "max_per_day": 20, "price_per_hour": 0.5, "min_workers": 0}).to_json()

    changed = changed_policy(kept, {"max_workers": "5", "max_per_day": None})

    assert changed == FleetPolicy(policy=PolicyName.LAG_AWARE, price_per_hour=0.5, min_workers=0, max_workers=5)


def test_a_change_to_queue_ratio_adds_the_earlier_orchestrators_defaults() -> None:
    changed = changed_policy({"policy": "lag_aware", "max_workers": 4}, {"policy": "queue_ratio"})

    assert changed == with_settings(legacy_policy(), {"max_workers": 4})


@pytest.mark.parametrize(("every", "gone"), [(seconds(30), seconds(600)), (timedelta(minutes=10), timedelta(minutes=50))])
def test_workers_stay_alone_for_some_beats_and_ten_minutes_at_least(every: timedelta, gone: timedelta) -> None:
    policy = FleetPolicy(every=every)
    jobs, gpu = load_thresholds(policy, preset="jobs"), load_thresholds(policy, preset="gpu")

    assert jobs is not None
    assert gpu is not None
    assert jobs.controller_gone_after == gone
    assert gpu.controller_gone_after == max(gone, timedelta(minutes=30))


@pytest.mark.parametrize(
    ("text", "said"), [("- a\n", "fields of a policy"), ("a: [\n", "expected YAML"), (None, "cannot read the fleet's policy")]
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, text: str | None, said: str) -> None:
    file = tmp_path / "fleet.yml"
    if text is not None:
        file.write_text(text)

    with pytest.raises(InvalidSettings, match=said):
        load_policy({}, file)


def test_a_variable_that_is_no_number_is_named() -> None:
    with pytest.raises(InvalidSettings, match="expected a number in the environment variable MAX_ACTIVE_GPUS, got 'ten'"):
        load_policy({"MAX_ACTIVE_GPUS": "ten"})


def test_another_policy_by_hand_keeps_the_rest() -> None:
    policy = FleetPolicy(policy=PolicyName.LAG_AWARE, keep_idle=2, max_lifetime=seconds(60))

    changed = with_settings(policy, {"max_workers": "6", "idle_timeout": "2m"})

    assert (changed.max_workers, changed.idle_timeout, changed.keep_idle) == (6, seconds(120), 2)
    assert changed.max_lifetime == seconds(60)


def test_the_daemon_beats_as_the_environment_says() -> None:
    assert load_policy({}).every == seconds(30)
    assert load_policy({"ORCHESTRATOR_POLL_SEC": "5", "MAX_ACTIVE_GPUS": "1"}).every == seconds(5)


def test_queue_ratio_has_the_earlier_orchestrators_defaults_unless_set() -> None:
    policy = load_policy({"MAX_ACTIVE_GPUS": "4"}, policy="queue_ratio")

    assert policy == with_settings(legacy_policy(), {"max_workers": 4})
    assert (policy.heartbeat_timeout, policy.spawning_timeout) == (seconds(300), seconds(300))


def test_a_file_names_a_provider_and_a_preset(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yml"
    file.write_text("provider: runpod\npreset: jobs\n")
    policy = load_policy({}, file)

    assert (policy.provider, load_policy({"DRUMBEAT_PROVIDER": "local"}, file).provider) == ("runpod", "local")
    assert load_thresholds(policy, file) == replace(PRESETS[PoolKind.JOBS], controller_gone_after=seconds(600))
    assert load_thresholds(policy, file, "gpu") == load_thresholds(policy)


@pytest.mark.parametrize(("provider", "start"), [("local", None), ("runpod", 600)])
def test_where_gpus_are_rented_their_preset_is_the_usual_one(provider: str, start: float | None) -> None:
    found = load_thresholds(FleetPolicy(provider=provider))

    assert (found.start_within if found else None) == (seconds(start) if start else None)


def test_a_fleet_that_is_there_keeps_its_limits_unless_a_preset_is_told() -> None:
    assert load_thresholds(FleetPolicy(provider="runpod"), is_new=False) is None


def test_a_preset_that_is_no_name_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yml"
    file.write_text("preset: [a]\n")

    with pytest.raises(InvalidSettings, match=r"expected preset to be jobs or gpu, got \['a'\]"):
        load_thresholds(FleetPolicy(), file)


def test_a_preset_there_is_not_is_named() -> None:
    with pytest.raises(InvalidSettings, match="jobs or gpu, got 'lazy'"):
        load_thresholds(FleetPolicy(), preset="lazy")
