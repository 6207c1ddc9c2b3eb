"""triggers.yml: the seed's own examples are taken as they stand, and whatever is wrong is named."""

import re
from datetime import timedelta
from pathlib import Path

import pytest

from drumbeat.core.errors import InvalidSettings
from drumbeat.triggers.file import load_triggers, parse_triggers
from drumbeat.triggers.model import BeatKind, Firing, Trigger, TriggerType

SEED = """\
# trigger_registry.yml
triggers:
  - name: cron_5min
    type: cron
    schedule: "*/5 * * * *"
    machine: parallelization_checker
    input:
      pool_id: paper_analysis

  - name: local_subprocess
    type: subprocess
    on: work_added  # event name
    machine: parallelization_checker
"""


def test_the_seeds_registry_is_taken_as_it_stands() -> None:
    assert parse_triggers(SEED) == [
        Trigger(name="cron_5min", type=TriggerType.CRON, schedule="*/5 * * * *", pool_id="paper_analysis"),
        Trigger(name="local_subprocess", type=TriggerType.SUBPROCESS),
    ]


def test_a_trigger_of_every_kind_is_read() -> None:
    triggers = parse_triggers("""
triggers:
  - {name: nightly, type: cron, schedule: "@daily", timezone: Europe/Vienna, machine: stale_worker_reaper,
     input: {stale_threshold_seconds: 90}}
  - {name: hook, type: webhook, secret_variable: HOOK_SECRET, input: {pool_id: papers, max_workers: 3}}
  - {name: push, type: subprocess, "on": work_added}
  - {name: beside, type: in-loop}
  - {name: cloud, type: serverless, schedule: "0 * * * *"}
""")

    assert [trigger.type for trigger in triggers] == list(TriggerType)
    assert triggers[0].lost_after == timedelta(seconds=90)
    assert (triggers[0].machine, triggers[0].timezone) == (BeatKind.REAPER, "Europe/Vienna")
    assert (triggers[1].secret_variable, triggers[1].max_workers) == ("HOOK_SECRET", 3)


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("in_loop", TriggerType.IN_LOOP),
        ("inline", TriggerType.IN_LOOP),
        ("lambda", TriggerType.SERVERLESS),
        ("k3s", TriggerType.SERVERLESS),
        ("Lambda", TriggerType.SERVERLESS),
    ],
)
def test_the_seeds_other_words_for_a_kind_are_known(word: str, kind: TriggerType) -> None:
    assert parse_triggers(f"triggers: [{{name: a, type: {word}}}]")[0].type is kind


CRON = "name: a, type: cron, schedule: '* * * * *'"
BAD = [
    ("not a list", "triggers: 7", "triggers: expected a list, got int"),
    ("nothing", "", "expected a list under the key 'triggers', got NoneType"),
    ("not YAML", "triggers: [", "expected YAML"),
    ("a wrong top key", "trigers: []", "trigers: there is no such key; expected only 'triggers'"),
    ("not an entry", "triggers: [7]", r"triggers\[0\]: expected a trigger as keys and values, got 7"),
    (
        "a wrong key",
        f"triggers: [{{{CRON}, shedule: x}}]",
        r"triggers\[0\] \(a\): shedule: there is no such key; expected one of",
    ),
    (
        "a wrong input",
        f"triggers: [{{{CRON}, input: {{pool: x}}}}]",
        "input.pool: there is no such key; expected one of pool_id",
    ),
    ("a key of another kind", f"triggers: [{{{CRON}, secret_variable: X}}]", "secret_variable: there is no such key"),
    ("no name", "triggers: [{type: in-loop}]", "name: this key is required"),
    ("no schedule", "triggers: [{name: a, type: cron}]", "schedule: this key is required"),
    ("no secret", "triggers: [{name: a, type: webhook}]", "secret_variable: this key is required"),
    ("a wrong type", "triggers: [{name: a, type: crom}]", "type: expected one of cron, webhook, .*, got 'crom'"),
    ("no type", "triggers: [{name: a}]", "type: expected one of .*, got None"),
    (
        "a wrong event",
        "triggers: [{name: a, type: subprocess, on: work_done}]",
        "on: Input should be 'work_added', got 'work_done'",
    ),
    (
        "warmth elsewhere",
        "triggers: [{name: a, type: in-loop, keep_warm_seconds: 5}]",
        "keep_warm_seconds: there is no such key",
    ),
    (
        "no warmth",
        "triggers: [{name: a, type: subprocess, keep_warm_seconds: 0}]",
        "keep_warm_seconds: .*greater than 0, got 0",
    ),
    (
        "a wrong machine",
        f"triggers: [{{{CRON}, machine: x}}]",
        "machine: expected parallelization_checker, stale_worker_reaper or fleet_beat, or the file of a Flat.*got 'x'",
    ),
    ("a machine for no pool", f"triggers: [{{{CRON}, machine: x.yml}}]", "input.pool_id: expected the pool whose workers"),
    ("hooks of no machine", f"triggers: [{{{CRON}, hooks: {{a: 'm:f'}}}}]", "need a FlatMachines file in the key 'machine'"),
    (
        "a wrong schedule",
        "triggers: [{name: a, type: cron, schedule: '61 * * * *'}]",
        "schedule: minute: expected 0 to 59, got '61'",
    ),
    ("a wrong zone", f"triggers: [{{{CRON}, timezone: Mars}}]", "timezone: expected the name of a time zone"),
    ("a wrong cap", f"triggers: [{{{CRON}, input: {{max_workers: many}}}}]", "input.max_workers: .*valid integer, got 'many'"),
    (
        "a cap below nothing",
        f"triggers: [{{{CRON}, input: {{max_workers: -1}}}}]",
        "input.max_workers: .*greater than or equal to 0",
    ),
    ("a name for a shell", "triggers: [{name: 'a; rm', type: in-loop}]", "name: String should match"),
    ("a secret", "triggers: [{name: a, type: webhook, secret: hush}]", "secret: there is no such key"),
    ("two of one name", "triggers: [{name: a, type: in-loop}, {name: a, type: in-loop}]", "2 triggers are named 'a'"),
]


@pytest.mark.parametrize(("text", "says"), [pytest.param(*rest, id=title) for title, *rest in BAD])
def test_what_is_wrong_is_named(text: str, says: str) -> None:
    with pytest.raises(InvalidSettings, match=says):
        parse_triggers(text)


@pytest.mark.parametrize("text", ["{}", "triggers:", "triggers: []"])
def test_a_file_may_have_none(text: str) -> None:
    assert not parse_triggers(text)


def test_a_subprocess_trigger_may_keep_a_process_warm() -> None:
    [kept] = parse_triggers("triggers: [{name: a, type: subprocess, keep_warm_seconds: 90}]")

    assert kept.keep_warm == timedelta(seconds=90)


def test_a_machine_that_workers_run_is_found_from_the_files_folder(tmp_path: Path) -> None:
    file = tmp_path / "triggers.yml"
    machine = "machine: worker.yml, machines: {step: sub/step.yml}, hooks: {a: 'hooks.py:A', b: 'mod:B'}"
    file.write_text(f"triggers: [{{name: a, type: subprocess, {machine}, input: {{pool_id: papers}}}}]")
    with pytest.raises(InvalidSettings, match=r"trigger a: machine: expected a FlatMachines file .*worker\.yml, got none"):
        load_triggers(file)
    (tmp_path / "sub").mkdir()
    for name in ("worker.yml", "sub/step.yml"):
        (tmp_path / name).touch()

    [trigger] = load_triggers(file)

    firing = trigger.firing()
    assert firing.worker is not None
    assert firing.worker.file == str(tmp_path / "worker.yml")
    assert firing.worker.machines == {"step": str(tmp_path / "sub/step.yml")}
    assert firing.worker.hooks == {"a": f"{tmp_path}/hooks.py:A", "b": "mod:B"}
    assert (firing.machine, Firing.from_json(firing.to_json())) == (BeatKind.CHECKER, firing)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("machine: ~nobody.here/worker.yml", "trigger a: machine: expected the path of a FlatMachines file, got ~nobody.here/"),
        ("machine: worker.yml, machines: {step: ~nobody.here/s.yml}", "got ~nobody.here/s.yml: there is no user 'nobody.here'"),
        (
            "machine: worker.yml, hooks: {a: '~nobody.here/h.py:A'}",
            "hooks: expected the path of a Python file, got ~nobody.here/",
        ),
    ],
)
def test_the_home_folder_of_an_unknown_user_is_refused(tmp_path: Path, keys: str, said: str) -> None:
    file = tmp_path / "triggers.yml"
    file.write_text(f"triggers: [{{name: a, type: subprocess, {keys}, input: {{pool_id: papers}}}}]")
    (tmp_path / "worker.yml").touch()

    with pytest.raises(InvalidSettings, match=re.escape(said)):
        load_triggers(file)


def test_everything_that_is_wrong_is_named_at_once() -> None:
    with pytest.raises(InvalidSettings) as caught:
        parse_triggers("triggers: [{name: a, type: cron, x: 1}, {name: b, type: webhook}]")

    assert all(
        part in str(caught.value)
        for part in ("(a): schedule: this key is required", "x: there is no such key", "(b): secret_variable:")
    )


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match=r"cannot read triggers from .*missing\.yml"):
        load_triggers(tmp_path / "missing.yml")
    (tmp_path / "bad.yml").write_text("triggers: 7")
    with pytest.raises(InvalidSettings, match=r"bad\.yml: triggers: expected a list"):
        load_triggers(tmp_path / "bad.yml")


@pytest.mark.parametrize(("own", "given", "fired"), [("p", None, "p"), ("p", "q", "p"), (None, "q", "q"), (None, None, None)])
def test_a_triggers_own_pool_counts_most(own: str | None, given: str | None, fired: str | None) -> None:
    trigger = Trigger(name="t", type=TriggerType.WEBHOOK, pool_id=own, max_workers=2)

    assert trigger.firing(given) == Firing(trigger="t", pool_id=fired, max_workers=2)


@pytest.mark.parametrize(
    ("kind", "own", "hears"),
    [
        ("subprocess", None, True),
        ("in-loop", "p", True),
        ("in-loop", "q", False),
        ("cron", None, False),
        ("webhook", "p", False),
    ],
)
def test_who_hears_of_work_in_a_pool(kind: str, own: str | None, hears: bool) -> None:
    assert Trigger(name="t", type=TriggerType(kind), pool_id=own).fires_on_push_to("p") is hears


def test_a_trigger_may_beat_a_fleet() -> None:
    (made,) = parse_triggers(
        "triggers: [{name: t, type: cron, schedule: '* * * * *', machine: fleet_beat, input: {pool_id: gpus, max_workers: 3}}]"
    )

    assert (made.firing().machine, made.pool_id, made.max_workers) == ("fleet_beat", "gpus", 3)


@pytest.mark.parametrize(
    ("machine", "given", "says"),
    [
        ("fleet_beat", "stale_threshold_seconds: 5", "stale_threshold_seconds: .* set heartbeat_timeout"),
        ("parallelization_checker", "stale_threshold_seconds: 5", "stale_threshold_seconds: .* use stale_worker_reaper"),
        ("worker.yml", "pool_id: p, stale_threshold_seconds: 5", "stale_threshold_seconds: .* use stale_worker_reaper"),
        ("stale_worker_reaper", "max_workers: 5", "max_workers: not used by stale_worker_reaper, which starts no workers"),
    ],
)
def test_an_input_that_the_beat_would_ignore_is_refused(machine: str, given: str, says: str) -> None:
    with pytest.raises(InvalidSettings, match=rf"triggers\[0\] \(t\): input.{says}"):
        parse_triggers(f"triggers: [{{name: t, type: in-loop, machine: {machine}, input: {{{given}}}}}]")
