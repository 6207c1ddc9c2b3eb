"""Pools: thresholds that make sense together, and the usual ones of each kind."""

from dataclasses import replace
from datetime import timedelta

import pytest

from drumbeat.core.errors import InvalidInput
from drumbeat.core.pool import PRESETS, PoolId, PoolKind, PoolRow, pool

BENCH = PRESETS[PoolKind.BENCH]


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


@pytest.mark.parametrize(
    ("what", "changed", "says"),
    [
        ("stale before the next heartbeat", {"stale_after": seconds(1)}, "heartbeat_every < stale_after"),
        ("lost as soon as stale", {"lost_after": seconds(30)}, "stale_after < lost_after"),
        ("a heartbeat too rare", {"heartbeat_every": seconds(31)}, "got 31.0 s, 30.0 s, 60.0 s"),
        ("giving up as others give it up", {"give_up_after": seconds(60)}, "give_up_after < lost_after"),
        ("giving up later than others do", {"give_up_after": seconds(61)}, "got 61.0 s and 60.0 s"),
    ],
)
def test_thresholds_that_make_no_sense_are_refused(what: str, changed: dict[str, timedelta], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        replace(BENCH, **changed)


@pytest.mark.parametrize(
    "changed",
    [
        {"heartbeat_every": seconds(29.999)},
        {"stale_after": seconds(59.999)},
        {"give_up_after": seconds(59.999)},
        {"start_within": seconds(1), "drain_within": seconds(0), "controller_gone_after": seconds(1)},
    ],
)
def test_thresholds_that_just_make_sense_are_taken(changed: dict[str, timedelta]) -> None:
    thresholds = replace(BENCH, **changed)

    assert {name: getattr(thresholds, name) for name in changed} == changed


@pytest.mark.parametrize(
    ("kind", "beat", "stale", "lost", "give_up", "start", "drain"),
    [
        (PoolKind.BENCH, 1, 30, 60, 45, 120, 120),
        (PoolKind.JOBS, 30, 60, 120, 110, 120, 600),
        (PoolKind.FLEET, 20, 60, 300, 240, 600, 600),
    ],
)
def test_each_kind_has_its_usual_thresholds(
    kind: PoolKind, beat: float, stale: float, lost: float, give_up: float, start: float, drain: float
) -> None:
    usual = PRESETS[kind]

    assert [usual.heartbeat_every, usual.stale_after, usual.lost_after] == [seconds(beat), seconds(stale), seconds(lost)]
    assert [usual.give_up_after, usual.start_within, usual.drain_within] == [seconds(give_up), seconds(start), seconds(drain)]


@pytest.mark.parametrize(
    ("kind", "gone"),
    [(PoolKind.BENCH, seconds(120)), (PoolKind.FLEET, seconds(120)), (PoolKind.JOBS, seconds(1_000_000_000))],
)
def test_workers_leave_when_their_controller_is_gone_but_those_of_jobs_do_without_one(kind: PoolKind, gone: timedelta) -> None:
    assert PRESETS[kind].controller_gone_after == gone


def test_every_kind_has_usual_thresholds() -> None:
    assert set(PRESETS) == set(PoolKind)


def test_a_pool_has_its_kinds_usual_thresholds_and_its_policy() -> None:
    wanted = PoolRow(pool_id=PoolId("p"), kind=PoolKind.FLEET, thresholds=PRESETS[PoolKind.FLEET], policy={"max_workers": 3})

    assert pool("p", PoolKind.FLEET, max_workers=3) == wanted


def test_a_pool_may_have_thresholds_of_its_own() -> None:
    own = replace(BENCH, lost_after=seconds(90))

    assert pool("p", PoolKind.BENCH, own).thresholds == own


@pytest.mark.parametrize("name", ["a", "a b", "ünïcode-🥁", "{x}:%7D#?&", "x" * 200, "ü" * 100, "...", "a.b"])
def test_a_name_that_an_address_can_hold_is_a_pools_name(name: str) -> None:
    assert pool(name, PoolKind.JOBS).pool_id == name


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "a\\b", "a\nb", "\u200b", " a", "a ", "x" * 201, "ü" * 100 + "x", "\ud800"]
)
def test_a_name_that_no_address_can_hold_is_refused_and_the_signs_are_named(name: str) -> None:
    with pytest.raises(InvalidInput, match=r"no / or \\"):
        pool(name, PoolKind.JOBS)
