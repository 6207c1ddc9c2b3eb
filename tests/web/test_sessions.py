"""A session goes on until somebody logs out or it is too old, whatever was opened in it."""

from datetime import UTC, datetime, timedelta

import pytest

from drumbeat.web.roles import AuthMethod, Caller, Role
from drumbeat.web.sessions import LIFETIME, Sessions
from web.given import LOCKED

NOW = datetime(2026, 5, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("after", "logged_out", "goes_on"),
    [
        (timedelta(), False, True),
        (LIFETIME - timedelta(seconds=1), False, True),
        (LIFETIME, False, False),
        (timedelta(), True, False),
    ],
)
def test_what_was_read_of_a_cookie_holds_as_long_as_the_cookie_would(after: timedelta, logged_out: bool, goes_on: bool) -> None:
    sessions = Sessions(LOCKED)
    cookie = sessions.open(Role.OPERATOR, NOW)
    session = sessions.read(cookie, NOW)
    assert session is not None
    assert session.role is Role.OPERATOR
    if logged_out:
        sessions.end(cookie)

    assert sessions.is_valid(session, NOW + after) is goes_on
    assert (sessions.read(cookie, NOW + after) is not None) is goes_on


def test_an_operator_whose_session_is_over_may_change_nothing() -> None:
    here = [True]
    caller = Caller(role=Role.OPERATOR, means=AuthMethod.SESSION, is_valid=lambda: here[0])
    before = caller.may_change
    here[0] = False

    assert (before, caller.may_change) == (True, False)
