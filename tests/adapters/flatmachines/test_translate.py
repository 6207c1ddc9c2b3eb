"""From the seed's machines to those of the installed package."""

from pathlib import Path
from typing import Any

import flatmachines
import pytest
import yaml

from adapters.flatmachines.seed import CONFIG, NAMES, kept
from drumbeat.adapters.flatmachines import Setting, translate
from drumbeat.adapters.flatmachines.expressions import bare, condition, evaluate, is_computed, needs_jinja
from drumbeat.core.errors import InvalidInput

HERE = Setting(folder=CONFIG)


def machine(states: dict[str, Any], version: str = "0.8.3", **data: Any) -> dict[str, Any]:
    return {"spec": "flatmachine", "spec_version": version, "data": {"name": "made", "states": states, **data}}


def state(made: dict[str, Any], name: str) -> Any:
    return made["data"]["states"][name]


def plan(owner: dict[str, Any], role: str = "hooks") -> Any:
    (ours,) = [ref for ref in owner[role] if isinstance(ref, dict) and ref["name"] == "pool"]
    return ours["args"]["plan"]


@pytest.mark.parametrize("name", NAMES)
def test_a_translated_machine_is_of_the_installed_version_and_the_original_is_unchanged(name: str) -> None:
    before = kept(name)
    made = translate(before, HERE)
    assert made["spec_version"] == flatmachines.__version__
    assert before == kept(name)
    assert yaml.safe_load(yaml.dump(made)) == made


def test_counting_and_launching_becomes_spawning() -> None:
    made = state(translate(kept("parallelization_checker"), HERE), "spawn_workers")
    assert made["action"] == "spawn_workers"
    assert not {"foreach", "launch", "launch_input"} & set(made)
    assert plan(made)["spawn"]["machine"] == "job_worker"


def test_launching_for_each_item_of_a_list_becomes_a_launch_each() -> None:
    given = machine(
        {"go": {"foreach": "{{ context.papers }}", "as": "paper", "launch": "reader", "launch_input": {"p": "{{ paper }}"}}}
    )
    made = state(translate(given, HERE), "go")
    assert made["action"] == "launch_each"
    assert plan(made)["spawn"] == {
        "foreach": "{{ context.papers }}",
        "as": "paper",
        "machine": "reader",
        "input": {"p": "{{ paper }}"},
    }


def test_an_action_for_each_item_is_left_to_the_hook() -> None:
    made = state(translate(kept("stale_worker_reaper"), HERE), "reap_workers")
    assert (plan(made)["foreach"], plan(made)["as"]) == ("{{ context.stale_workers }}", "worker")
    assert "foreach" not in made


def test_a_condition_with_a_filter_is_computed_by_the_hook() -> None:
    made = state(translate(kept("stale_worker_reaper"), HERE), "find_stale_workers")
    assert made["transitions"][0]["condition"] == "context.drumbeat.when_0"
    assert plan(made)["conditions"] == {"when_0": "context.stale_workers | length == 0"}


def test_a_worker_has_a_worker_id_and_a_heartbeat() -> None:
    made = translate(kept("job_worker"), HERE)["data"]
    assert made["context"]["worker_id"] == "input.worker_id"
    assert plan(made, "lifecycle_hooks")["heartbeat_interval"] == 30
    assert all(plan(each) is not None for each in made["states"].values())


def test_a_machine_that_is_run_by_another_is_no_worker() -> None:
    alone = translate(kept("job_worker"), Setting(folder=CONFIG))["data"]
    assert "heartbeat_interval" in plan(alone, "lifecycle_hooks")
    made = translate(kept("job_worker"), Setting(folder=CONFIG, is_child=True))["data"]
    assert "heartbeat_interval" not in plan(made, "lifecycle_hooks")


def test_other_hooks_come_before_ours_and_ours_is_not_added_twice() -> None:
    hooks = ["mine", {"name": "pool", "args": {"dsn": "sqlite:///a.db"}}]
    given = machine({"go": {"action": "claim_job", "hooks": hooks, "output_to_context": {"j": "{{ output.job }}"}}})
    made = state(translate(given, HERE), "go")["hooks"]
    assert made == ["mine", {"name": "pool", "args": {"dsn": "sqlite:///a.db", "plan": {"writes": {"j": "{{ output.job }}"}}}}]


def test_every_hook_of_a_machine_uses_the_store_that_one_of_them_names() -> None:
    states = {
        "a": {"action": "claim_job", "hooks": {"name": "pool", "args": {"dsn": "sqlite:///a.db"}}},
        "b": {"action": "complete_job"},
    }
    made = translate(machine(states, settings={"heartbeat_interval": 30}), HERE)
    assert state(made, "b")["hooks"][0]["args"]["dsn"] == "sqlite:///a.db"
    assert made["data"]["lifecycle_hooks"][0]["args"]["dsn"] == "sqlite:///a.db"


def test_settings_choose_the_stores() -> None:
    backends = {"work": "sqlite", "work_path": "w.db", "registration": "memory"}
    made = translate(machine({"a": {"action": "claim_job"}}, settings={"backends": backends, "worker_pool": "mine"}), HERE)
    args = state(made, "a")["hooks"][0]["args"]
    assert args == {"dsn": f"sqlite:///{CONFIG}/w.db", "registration_dsn": "memory:", "plan": {"pool": "mine"}}


def test_types_are_kept_only_for_machines_of_version_0() -> None:
    states = {"a": {"machine": "b", "input": {"x": "{{ context.x }}"}}}
    assert state(translate(machine(states), HERE), "a")["input"] == {"x": "context.x"}
    assert state(translate(machine(states, "4.2.1"), HERE), "a")["input"] == {"x": "{{ context.x }}"}


def test_machines_are_found_given_named_or_beside_and_put_inside(tmp_path: Path) -> None:
    for folder, name in ((tmp_path, "beside"), (tmp_path / "deep", "named"), (tmp_path / "deep", "below")):
        folder.mkdir(exist_ok=True)
        child = {"a": {"machine": "below"}} if name == "named" else {"a": {}}
        (folder / f"{name}.yml").write_text(yaml.dump(machine(child, agents={"x": "./x.yml"})), encoding="utf-8")
    (tmp_path / "deep" / "x.yml").write_text("{}", encoding="utf-8")
    states = {"a": {"machine": ["beside", "named", "given", "unknown"]}}
    given = {"given": str(tmp_path / "beside.yml")}

    made = translate(machine(states, machines={"named": "deep/named.yml"}), Setting(folder=tmp_path, machines=given))["data"]

    assert set(made["machines"]) == {"beside", "named", "given"}
    assert made["machines"]["named"]["data"]["machines"]["below"]["data"]["name"] == "made"
    assert made["machines"]["named"]["data"]["agents"]["x"] == str(tmp_path / "deep" / "x.yml")


def test_a_machine_that_runs_itself_is_not_put_inside_for_ever(tmp_path: Path) -> None:
    file = tmp_path / "again.yml"
    file.write_text(yaml.dump(machine({"a": {"machine": "again"}})), encoding="utf-8")
    made = translate(yaml.safe_load(file.read_text(encoding="utf-8")), Setting(folder=tmp_path))
    assert made["data"]["machines"]["again"]["data"]["machines"]["again"] == str(file)


@pytest.mark.parametrize("given", [{}, {"spec": "flatagent", "data": {}}, {"spec": "flatmachine"}])
def test_what_is_no_machine_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="spec: flatmachine"):
        translate(given, HERE)


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("{{ context.n }}", 3),
        ("{{ context.n | default(10) }}", 3),
        ("{{ context.none | default(10) }}", 10),
        ("{{ context.none }}", None),
        ("{{ [context.n - 1, 0] | max }}", 2),
        ("{{ context.list | length }}", 2),
        ("{{ context.list }}", [1, 2]),
        ("n is {{ context.n }}", "n is 3"),
        ("context.n", 3),
        ("plain", "plain"),
        (7, 7),
        ({"a": "{{ context.n }}"}, {"a": 3}),
    ],
)
def test_an_expression_keeps_its_type(template: Any, value: Any) -> None:
    assert evaluate(template, {"context": {"n": 3, "list": [1, 2]}}) == value


@pytest.mark.parametrize("expression", ["context.n +", "context.n / 0", "context.n + 'a'", "context.n | nofilter"])
def test_what_cannot_be_computed_is_refused(expression: str) -> None:
    with pytest.raises(InvalidInput, match="failed to evaluate the expression"):
        condition(expression, {"context": {"n": 3}})


@pytest.mark.parametrize(
    ("expression", "needs"),
    [
        ("context.x > 0", False),
        ("context.job == null", False),
        ("not context.a and context.b['c'] < 3", False),
        ("context.x | length == 0", True),
        ("length(context.x) == 0", True),
        ("context.x is none", True),
        ("context.x in [1, 2]", True),
    ],
)
def test_conditions_beyond_the_package_are_told_from_its_own(expression: str, needs: bool) -> None:
    assert needs_jinja(expression) is needs


@pytest.mark.parametrize(
    ("template", "path", "computed"),
    [
        ("{{ output }}", "output", False),
        ("{{ context.a.b }}", "context.a.b", False),
        ("{{ context.a | length }}", "{{ context.a | length }}", True),
        ("{{ a }} and {{ b }}", "{{ a }} and {{ b }}", False),
        ("text", "text", False),
    ],
)
def test_a_whole_expression_that_is_a_path_is_written_bare(template: str, path: str, computed: bool) -> None:
    assert bare(template) == path
    assert is_computed(template) is computed
