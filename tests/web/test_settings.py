"""Where a server may listen, and with which tokens."""

import pytest

from drumbeat.core.errors import InvalidSettings
from drumbeat.web.settings import READ_TOKEN_VARIABLE, TOKEN_VARIABLE, load_web_settings

TOKEN, OTHER = "0123456789abcdef", "fedcba9876543210"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "drums.example", ""])
def test_beyond_this_machine_nobody_listens_without_a_token(host: str) -> None:
    with pytest.raises(InvalidSettings, match="TLS"):
        load_web_settings({}, host=host)
    with pytest.raises(InvalidSettings, match=TOKEN_VARIABLE):
        load_web_settings({READ_TOKEN_VARIABLE: TOKEN}, host=host)

    assert not load_web_settings({TOKEN_VARIABLE: TOKEN}, host=host).is_open


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.1.2.3"])
def test_on_this_machine_none_is_needed(host: str) -> None:
    assert load_web_settings({}, host=host).is_open


@pytest.mark.parametrize("token", ["short", "with space 0123456789", "ümlaut-0123456789"])
def test_a_token_that_can_be_guessed_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(InvalidSettings, match="openssl") as caught:
        load_web_settings({TOKEN_VARIABLE: token})

    assert token not in str(caught.value)


def test_names_are_the_same_in_capitals() -> None:
    assert load_web_settings({}, names=("Drums.Example.org",)).names == ("drums.example.org",)


def test_the_two_tokens_differ() -> None:
    with pytest.raises(InvalidSettings, match="differ"):
        load_web_settings({TOKEN_VARIABLE: TOKEN, READ_TOKEN_VARIABLE: TOKEN})


def test_settings_do_not_show_their_tokens() -> None:
    settings = load_web_settings({TOKEN_VARIABLE: TOKEN, READ_TOKEN_VARIABLE: OTHER})
    shown = repr(settings)
    assert (settings.token, settings.read_token) == (TOKEN, OTHER)

    assert TOKEN not in shown
    assert OTHER not in shown
