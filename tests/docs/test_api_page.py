"""The page on the API knows every route and every shape, and what it says of limits is so."""

from docs.api_page import MARK, operations, reference, schema
from docs.pages import page, quoted, rows, section
from drumbeat.bench.results.watch import MOST_LOGS
from drumbeat.web.api.once import KEPT_FOR, KEY, REPLAYED
from drumbeat.web.auth import POLICY_VIOLATION
from drumbeat.web.bodies import LARGEST, LARGEST_HOOK
from drumbeat.web.feeds import BROKEN, FIRST_LOGS, GONE, KEPT_LOGS, UNAVAILABLE
from drumbeat.web.feeds_pool import POOL_UPDATE
from drumbeat.web.feeds_run import RUN_UPDATE
from drumbeat.web.login_attempts import WINDOW, WRONG_AT_MOST
from drumbeat.web.sessions import COOKIE, LIFETIME
from drumbeat.web.settings import READ_TOKEN_VARIABLE, SHORTEST_TOKEN, TOKEN_VARIABLE
from drumbeat.web.simulations import MOST_BEATS, MOST_JOBS
from drumbeat.web.stream import GOING_AWAY, LOGGED_OUT, LONGEST_MESSAGE, NORMAL, NOT_TEXT, TOO_LONG, TRY_LATER


def test_the_routes_are_written_as_they_are() -> None:
    _, mark, written = page("api").partition(MARK)

    assert mark
    assert written.strip() == reference().strip(), "run: .venv/bin/python tests/docs/api_page.py"


def test_every_route_is_there() -> None:
    told = page("api")

    found = list(operations(schema()))

    assert len(found) > 60
    assert all(f"### `{method} {path}`" in told for method, path, _ in found)


def test_what_it_says_of_limits_is_so() -> None:
    told = " ".join(page("api").split())

    assert f"at most {LARGEST // 1024**2} MiB" in told
    assert f"{LARGEST_HOOK // 1024} KiB" in told
    assert f"for {KEPT_FOR.days} day" in told
    assert f"{MOST_JOBS:,} jobs" in told
    assert f"{MOST_BEATS:,} beats" in told
    assert {KEY, REPLAYED} <= quoted(section(page("api"), "## Idempotency keys"))


def test_the_page_on_security_says_what_is_so() -> None:
    told = " ".join(page("security").split())

    assert {TOKEN_VARIABLE, READ_TOKEN_VARIABLE, COOKIE} <= quoted(page("security"))
    assert f"{WRONG_AT_MOST} wrong tokens in {WINDOW.total_seconds():.0f} s" in told
    assert f"{LIFETIME.total_seconds() / 3600:.0f} hours" in told
    assert f"at least {SHORTEST_TOKEN} characters" in told


def test_what_it_says_of_streams_is_so() -> None:
    streams = section(page("api"), "## Streams")
    told = " ".join(streams.split())

    assert {RUN_UPDATE, POOL_UPDATE, UNAVAILABLE, GONE, BROKEN} == {word for word in quoted(streams) if word.isupper()} - {
        "END"
    }
    codes = {int(row[0]) for row in rows(streams) if row and row[0].isdecimal()}
    assert codes == {NORMAL, GOING_AWAY, NOT_TEXT, LOGGED_OUT, TOO_LONG}
    assert f"closes with {POLICY_VIOLATION} where" in told
    assert f"with {TRY_LATER} while the store" in told
    assert f"more than {LONGEST_MESSAGE} characters" in told
    assert (
        f"the last {KEPT_LOGS} that the server has read; one that was started meanwhile reads the last {MOST_LOGS}. "
        f"Without it the last {FIRST_LOGS}"
    ) in told
