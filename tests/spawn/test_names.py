"""Provider names are short, plain, always the same for the same worker, and never the same for two."""

import re

import pytest
from hypothesis import example, given, strategies as st

from drumbeat.core.errors import InvalidInput
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.names import digest, instance_name, pool_name, scope_name, slug

#: texts out of few characters, so that nearly equal ones are frequent
ODD = st.text(alphabet="aA-_/. éé工\u0301\n\0", max_size=12) | st.text(max_size=250) | st.just("..") | st.just("x" * 200)
NAMES = st.tuples(ODD, ODD, ODD)
LABEL = re.compile(r"[a-z](-?[a-z0-9])*")


def named(names: tuple[str, str, str], longest: int = 63) -> str:
    scope, pool, worker = names
    return instance_name(scope, PoolId(pool), WorkerId(worker), longest=longest)


@given(NAMES, st.integers(32, 80))
@example(("s", "-lead", "trail-"), 63)
@example(("s", "x" * 200, "y" * 200), 63)
@example(("s", "\ud800", ".."), 63)
def test_a_name_is_a_label_of_the_length_asked_for(names: tuple[str, str, str], longest: int) -> None:
    name = named(names, longest)

    assert LABEL.fullmatch(name)
    assert len(name) <= longest
    assert named(names, longest) == name


@given(NAMES, NAMES)
@example(("s", "ab", "c"), ("s", "a", "bc"))
@example(("s", "P", "w"), ("s", "p", "w"))
@example(("s", "p", "x" * 200 + "1"), ("s", "p", "x" * 200 + "2"))
@example(("s", "p", "é"), ("s", "p", "e\u0301"))
@example(("s", "a/b", "c"), ("s", "a", "b/c"))
@example(("s", "a-b", "c"), ("s", "a", "b-c"))
@example(("s", "", ""), ("", "s", ""))
def test_two_workers_have_two_names_whatever_they_are_called(first: tuple[str, str, str], second: tuple[str, str, str]) -> None:
    assert (named(first) == named(second)) == (first == second)
    assert (named(first, 32) == named(second, 32)) == (first == second)


@given(NAMES, NAMES)
def test_two_pools_have_two_names(first: tuple[str, str, str], second: tuple[str, str, str]) -> None:
    names = [pool_name(scope, PoolId(pool)) for scope, pool, _ in (first, second)]

    assert (names[0] == names[1]) == (first[:2] == second[:2])
    assert all(LABEL.fullmatch(name) and len(name) <= 63 for name in names)


@given(ODD, ODD)
def test_scopes_are_told_apart(first: str, second: str) -> None:
    assert (scope_name(first) == scope_name(second)) == (first == second)
    assert re.fullmatch(r"[a-z][a-z0-9]{16}", scope_name(first))


@given(ODD, st.integers(-1, 30))
def test_a_slug_is_readable_and_short(text: str, longest: int) -> None:
    assert re.fullmatch(r"([a-z0-9]+(-[a-z0-9]+)*)?", slug(text, longest))
    assert len(slug(text, longest)) <= max(longest, 0)


def test_a_name_shows_pool_and_worker() -> None:
    assert named(("s", "Crawl Pages", "worker-7")).startswith("drumbeat-crawl-pages-worker-7-")
    assert slug("Ünï/../x", 63) == "uni-x"


def test_names_stay_what_they_are_in_later_versions() -> None:
    """Else a controller that was upgraded would start every worker a second time."""
    assert digest("a", "b") == "hsovsecfxsehn6oq"
    assert named(("sqlite:///x", "p", "w")) == "drumbeat-p-w-2igx6ghxdo4rdjor"


@pytest.mark.parametrize(("prefix", "longest"), [("drumbeat", 31), ("d" * 40, 50)])
def test_no_room_for_the_hash_is_refused(prefix: str, longest: int) -> None:
    with pytest.raises(InvalidInput, match=f"got {longest}"):
        instance_name("s", PoolId("p"), WorkerId("w"), prefix=prefix, longest=longest)
