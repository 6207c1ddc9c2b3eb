"""Settings that cannot work are refused with what was expected; names are read as in SQL."""

import sys
from importlib import import_module
from typing import Any

import pytest

from drumbeat.composition.engine_settings import read_settings
from drumbeat.core.errors import InvalidSettings, MissingExtra
from drumbeat.spawn.spcs import SpcsSettings
from drumbeat.spawn.spcs.statements import Identifier, identifiers, literal
from spawn.spcs.conftest import settings_of


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"account": " "}, "an account, got none"),
        ({"user": ""}, "a user, got none"),
        ({"password_variable": ""}, "one way to sign in"),
        ({"token_variable": "T"}, "one way to sign in"),
        ({"image": ""}, "an image such as /db/schema"),
        ({"protocol": "http"}, "https, because http would send the secret unencrypted"),
        ({"protocol": "http", "host": "snow.example"}, "https, because http would send the secret unencrypted"),
        ({"port": 0}, "a port from 1 to 65535, got 0"),
        ({"command": ()}, "a command, got none"),
        ({"cpu": "lots"}, "cpu such as 500m or 2, got 'lots'"),
        ({"cpu_limit": "x"}, "cpu_limit such as 500m or 2, got 'x'"),
        ({"memory": "512"}, "memory such as 512Mi or 2Gi, got '512'"),
        ({"gpus": -1}, "gpus of 0 or more, got -1"),
        ({"external_access": tuple(f"a{n}" for n in range(11))}, "at most 10 external_access integrations, got 11"),
        ({"environment": {"A-B": "1"}}, "variables of letters, digits and _, got 'A-B'"),
        ({"key_secret": ""}, "both key_variable and key_secret"),
        ({"sessions": 0}, "sessions from 1 to 64, got 0"),
        ({"database": "a.b"}, 'expected database to be one name, got "A"."B"'),
        ({"compute_pool": "my pool"}, "a name as in SQL, such as my_pool"),
        ({"schema": 'x"; DROP SCHEMA y'}, "a name as in SQL"),
        ({"external_access": ("a.b",)}, "external_access 'a.b' to be one name"),
        ({"secrets": {"A": "a.b.c.d"}}, "a name as in SQL"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_settings_that_cannot_work_are_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSettings, match=said):
        settings_of(**changed)


def test_a_password_in_the_file_is_refused_with_the_setting_to_use() -> None:
    with pytest.raises(InvalidSettings, match=r"secrets do not belong in this file; .*password_variable"):
        read_settings(SpcsSettings, {"password": "x"}, "engine s")


@pytest.mark.parametrize(
    ("written", "names"),
    [
        ("my_pool", ["MY_POOL"]),
        ('"My pool"', ["My pool"]),
        ('db."Sche""ma".x$1', ["DB", 'Sche"ma', "X$1"]),
    ],
)
def test_names_are_read_as_in_sql(written: str, names: list[str]) -> None:
    assert [each.name for each in identifiers(written)] == names


@pytest.mark.parametrize("written", ["", ".", "a..b", "1a", 'a"b', '"a', "a b", "a.b.c.d", '""', "a;b"])
def test_what_is_no_name_is_refused(written: str) -> None:
    with pytest.raises(InvalidSettings, match="expected a name as in SQL"):
        identifiers(written)


def test_names_and_texts_are_quoted() -> None:
    assert str(Identifier('a"b; DROP')) == '"a""b; DROP"'
    assert (Identifier("PLAIN").plain, Identifier("Mixed").plain) == ("PLAIN", '"Mixed"')
    assert literal("it's a \\ and ''") == "'it''s a \\\\ and '''''"


def test_a_secret_without_a_place_is_in_the_services_schema() -> None:
    settings = settings_of()
    names = {given: [part.name for part in settings.secret_name(given)] for given in ("url", "other.url", "a.b.url")}

    assert names == {"url": ["WORK", "Jobs", "URL"], "other.url": ["WORK", "OTHER", "URL"], "a.b.url": ["A", "B", "URL"]}


def test_without_the_connector_the_command_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "snowflake.connector", None)
    monkeypatch.delitem(sys.modules, "drumbeat.spawn.spcs.session")

    with pytest.raises(MissingExtra, match=r"run: pip install 'drumbeat\[snowflake\]'"):
        import_module("drumbeat.spawn.spcs.session")
