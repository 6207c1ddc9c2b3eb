"""Settings of a language model: what is accepted, what is refused, and where the key comes from."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from drumbeat.bench.explain.settings import KEY_VARIABLE, LanguageModelSettings, read_key
from drumbeat.composition.language_model import open_language_model
from drumbeat.core.errors import InvalidSettings
from drumbeat.settings import LANGUAGE_MODEL_VARIABLES, Settings, load_settings
from drumbeat.spawn.inherited import inherited

CORTEX = "https://account.snowflakecomputing.com/api/v2/cortex/v1"


def made(**more: Any) -> LanguageModelSettings:
    return LanguageModelSettings(**{"url": "https://host/v1", "model": "m", **more})


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        (CORTEX, f"{CORTEX}/chat/completions"),
        (f"{CORTEX}/", f"{CORTEX}/chat/completions"),
        (f"{CORTEX}/chat/completions", f"{CORTEX}/chat/completions"),
        ("http://127.0.0.1:11434/v1", "http://127.0.0.1:11434/v1/chat/completions"),
        ("http://[::1]:8000", "http://[::1]:8000/chat/completions"),
        ("http://localhost/v1", "http://localhost/v1/chat/completions"),
    ],
)
def test_an_endpoint_is_found(url: str, endpoint: str) -> None:
    assert made(url=url).endpoint == endpoint


@pytest.mark.parametrize(
    "url",
    [
        "",
        "host/v1",
        "ftp://host",
        "http://host/v1",
        "http://127.0.0.1.evil.example/v1",
        "https://",
        "https://a b",
        "https://h:0/",
        "https://[::1",
    ],
)
def test_a_url_that_would_give_the_key_away_or_lead_nowhere_is_refused(url: str) -> None:
    with pytest.raises(InvalidSettings, match="expected url to be https://HOST/PATH"):
        made(url=url)


@pytest.mark.parametrize("url", ["https://user:secret@host/v1", "https://host/v1?key=secret", "https://host/#secret"])
def test_a_url_with_a_secret_in_it_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(InvalidSettings, match="without user, password") as refused:
        made(url=url)

    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"model": ""}, "name of a model"),
        ({"model": "a\nb"}, "name of a model"),
        ({"timeout": timedelta()}, "expected timeout to be 1s to 10m"),
        ({"timeout": timedelta(hours=1)}, "expected timeout to be 1s to 10m"),
        ({"max_characters": 1}, "expected max_characters to be 100 to 10000, got 1"),
        ({"max_tokens": 0}, "expected max_tokens to be 50 to 100000, got 0"),
    ],
)
def test_a_wrong_setting_is_said(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSettings, match=said):
        made(**wrong)


def test_a_key_comes_from_its_variable_or_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("from-file\n")

    assert read_key(made(), {KEY_VARIABLE: "from-variable"}) == "from-variable"
    assert read_key(made(key_variable="SNOWFLAKE_PAT"), {"SNOWFLAKE_PAT": "pat", KEY_VARIABLE: "other"}) == "pat"
    assert read_key(made(key_file=file), {KEY_VARIABLE: "from-variable"}) == "from-file"
    assert read_key(made(), {}) is None


@pytest.mark.parametrize("secret", ["two words", "a\nb: c", "schlüssel", "x" * 20_000, "bell\x07"])
def test_a_key_that_cannot_be_one_is_refused_and_not_repeated(secret: str, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(secret)

    for settings, variables in ((made(), {KEY_VARIABLE: secret}), (made(key_file=file), {})):
        with pytest.raises(InvalidSettings) as refused:
            read_key(settings, variables)
        assert secret not in str(refused.value)


def test_a_missing_or_empty_key_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")

    with pytest.raises(InvalidSettings, match="cannot read the key of the language model"):
        read_key(made(key_file=tmp_path / "none"), {})
    with pytest.raises(InvalidSettings, match="got an empty file"):
        read_key(made(key_file=tmp_path / "empty"), {})


def test_it_is_off_unless_set() -> None:
    assert load_settings({}).language_model == {}
    assert open_language_model(Settings(), {}) is None
    assert not made().automatic


def test_the_environment_counts_more_than_the_file(tmp_path: Path) -> None:
    file = tmp_path / "drumbeat.toml"
    file.write_text('[language_model]\nurl = "https://file/v1"\nmodel = "of-file"\ntimeout = "2m"\n')

    settings = load_settings({LANGUAGE_MODEL_VARIABLES["model"]: "of-environment"}, file)
    model = open_language_model(settings, {KEY_VARIABLE: "k"})

    assert model is not None
    assert (model.settings.url, model.settings.model) == ("https://file/v1", "of-environment")
    assert model.settings.timeout == timedelta(minutes=2)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("language_model = 5", "expected a table \\[language_model\\]"),
        ("[language_model]\nmodel = 'm'", "language_model: expected url, got none"),
        ("[language_model]\nurl = 'https://h'\nmodel = 'm'\napi_key = 's3cret'", "secrets do not belong in this file"),
        ("[language_model]\nurl = 'http://h'\nmodel = 'm'", "language_model: expected url to be https"),
        (
            "[language_model]\nurl = 'https://h'\nmodel = 'm'\ntimeout = 'soon'",
            "language_model: expected timeout to be seconds",
        ),
    ],
)
def test_a_wrong_table_is_said(table: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "drumbeat.toml"
    file.write_text(table)

    with pytest.raises(InvalidSettings, match=said) as refused:
        open_language_model(load_settings({}, file), {})

    assert "s3cret" not in str(refused.value)


def test_workers_do_not_get_the_key() -> None:
    assert inherited({KEY_VARIABLE: "secret", "PATH": "/bin"}) == {"PATH": "/bin"}
