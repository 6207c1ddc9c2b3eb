import pytest

from drumbeat.bench.results.compare.configuration import (
    HIDDEN,
    ConfigDifference,
    differences,
    flattened,
    redacted,
    without_secrets,
)


def test_differences_are_listed_by_path() -> None:
    before = {"scaling": {"mode": "AUTO", "max": 3}, "mix": [{"weight": 1}, {"weight": 2}], "gone": 1}
    after = {"scaling": {"mode": "FIXED", "max": 3}, "mix": [{"weight": 1}, {"weight": 5}], "new": {}}

    assert differences(before, after) == (
        ConfigDifference(path="gone", before="1", after=None),
        ConfigDifference(path="mix[1].weight", before="2", after="5"),
        ConfigDifference(path="new", before=None, after="{}"),
        ConfigDifference(path="scaling.mode", before="AUTO", after="FIXED"),
    )


def test_what_was_worked_out_from_the_settings_is_no_difference_of_its_own() -> None:
    before = {"duration": 10, "plan": {"duration": "PT10S"}, "config_hash": "a"}
    after = {"duration": 20, "plan": {"duration": "PT20S"}, "config_hash": "b"}

    assert [each.path for each in differences(before, after)] == ["duration"]
    assert [each.path for each in differences({"plan": {"a": 1}}, {"plan": {"a": 2}})] == ["plan.a"]


@pytest.mark.parametrize(
    "name", ["password", "PGPASSWORD", "api_key", "apikey", "access_token", "client_secret", "private_key"]
)
def test_a_secret_is_never_shown(name: str) -> None:
    config = {"target": {name: "hunter2", "deep": [{name: "hunter2"}]}}

    assert set(flattened(config).values()) == {HIDDEN}
    assert "hunter2" not in repr(redacted(config))
    assert "hunter2" not in repr(differences(config, {}))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://u:hunter2@h:5/d?x=1", f"postgresql://u:{HIDDEN}@h:5/d?x=1"),
        ("postgresql://u:p@ss@h/d", f"postgresql://u:{HIDDEN}@h/d"),
        ("postgresql://u@h/d", "postgresql://u@h/d"),
        ("mysql://h/d?password=hunter2&a=1", f"mysql://h/d?password={HIDDEN}&a=1"),
        ("no URL: at all", "no URL: at all"),
    ],
)
def test_a_url_loses_its_password(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


def test_redacting_keeps_the_rest() -> None:
    config = {"a": [1, None, True], "b": {"password": None, "url": "x://u:p@h"}}

    assert redacted(config) == {"a": [1, None, True], "b": {"password": None, "url": f"x://u:{HIDDEN}@h"}}
