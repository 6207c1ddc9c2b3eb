"""Values: each worker's apart from every other's, the same again for the same seed, and in the shape they are asked for."""

from collections.abc import Callable
from itertools import combinations
from uuid import UUID

import numpy as np
import pytest

from drumbeat.bench.model import (
    Distribution,
    Either,
    KeyValue,
    NewKey,
    NonUniform,
    Now,
    Pick,
    PoolValue,
    RandomNumber,
    RandomText,
    RandomUuid,
    SameAs,
    Value,
    ValueType,
)
from drumbeat.bench.values.draw import VIRTUAL_SLOTS, Draw, Drawn, ValueStream
from drumbeat.core.errors import InvalidInput

MILLION = 1_000_000
NOW = 1_700_000_000_000_000


def a_draw(slot: int = 0, seed: int = 1, slots: int = VIRTUAL_SLOTS) -> Draw:
    return Draw.seeded(slot, seed, lambda: NOW, slots)


def drawn(value: Value, count: int, draw: Draw | None = None, *earlier: Drawn) -> Drawn:
    return ValueStream(value, draw or a_draw()).next(count, earlier)


def keys(distribution: Distribution, high: int = 1_000, low: int = 1) -> KeyValue:
    return KeyValue(low=low, high=high, distribution=distribution)


def frequencies(values: Drawn, high: int) -> Drawn:
    return np.bincount(values.astype(np.int64), minlength=high + 1)[1:] / len(values)


def zipf(count: int, theta: float = 0.99) -> Drawn:
    shares: Drawn = 1 / np.arange(1, count + 1) ** theta
    return shares / float(shares.sum())


def within(got: Drawn, expected: Drawn, draws: int, sigmas: float = 5) -> bool:
    """Whether each share is as near to its expectation as chance lets so many draws be."""
    return bool(np.all(np.abs(got - expected) <= sigmas * np.sqrt(expected * (1 - expected) / draws) + 1e-9))


# Workers apart


@pytest.mark.parametrize("workers", [4, VIRTUAL_SLOTS])
@pytest.mark.parametrize("size", [64, 100, 5_000])
def test_no_two_workers_use_the_same_place_of_a_pool_however_late_they_join(workers: int, size: int) -> None:
    pool = PoolValue(values=range(size), type=ValueType.BIGINT)
    sources = [ValueStream(pool, a_draw(slot)) for slot in range(workers)]
    used: list[set[int]] = [set() for _ in sources]
    for moment in range(workers):
        for slot, source in enumerate(sources[: moment + 1]):
            used[slot] |= set(source.next(37 + slot, ()).tolist())

    assert all(used)
    assert all(not mine & others for mine, others in combinations(used, 2))


@pytest.mark.parametrize("size", [64, 100, 5_000])
def test_all_slots_together_use_a_whole_pool(size: int) -> None:
    pool = PoolValue(values=range(size), type=ValueType.BIGINT)

    used = [value for slot in range(VIRTUAL_SLOTS) for value in set(drawn(pool, size, a_draw(slot)).tolist())]

    assert sorted(used) == list(range(size))


def test_a_worker_goes_through_its_share_of_a_pool_in_turn_and_begins_again() -> None:
    source = ValueStream(PoolValue(values=range(10), type=ValueType.INT), a_draw(1, slots=4))

    assert [*source.next(2, ()), *source.next(3, ())] == [1, 5, 9, 1, 5]


@pytest.mark.parametrize("workers", [4, VIRTUAL_SLOTS])
def test_new_keys_never_collide_between_workers(workers: int) -> None:
    value = NewKey(first=1_001, span=10_000)
    sources = [ValueStream(value, a_draw(slot)) for slot in range(workers)]

    made = [key for source in sources for count in (1, 999, 9_000) for key in source.next(count, ()).tolist()]

    assert len(set(made)) == len(made) == workers * 10_000
    assert min(made) == 1_001


def test_two_operations_of_one_worker_never_make_the_same_new_key() -> None:
    value, draw = NewKey(first=1, span=1_000), a_draw(3)
    sources = [ValueStream(value, draw), ValueStream(value, draw)]

    made = [key for _ in range(5) for source in sources for key in source.next(50, ()).tolist()]

    assert len(set(made)) == 500


def test_a_worker_out_of_new_keys_says_so_instead_of_taking_anothers() -> None:
    source = ValueStream(NewKey(first=1, span=100), a_draw())
    source.next(100, ())

    with pytest.raises(InvalidInput, match="needs more than 100 new keys"):
        source.next(1, ())


def test_sequential_keys_cover_each_workers_share_once_a_round_and_together_all() -> None:
    value = keys(Distribution.SEQUENTIAL, high=1_000)

    shares = [drawn(value, -(-(1_000 - slot) // 64), a_draw(slot)).tolist() for slot in range(VIRTUAL_SLOTS)]

    assert sorted(key for share in shares for key in share) == list(range(1, 1_001))


@pytest.mark.parametrize("slot", [-1, VIRTUAL_SLOTS, 1_000])
@pytest.mark.parametrize("make", [a_draw, lambda slot: Draw(slot, np.random.default_rng(0), lambda: NOW)])
def test_a_slot_out_of_range_is_refused(make: Callable[[int], Draw], slot: int) -> None:
    with pytest.raises(InvalidInput, match=f"expected a worker slot from 0 to 63, got {slot}"):
        make(slot)


def test_a_pool_too_small_for_a_slot_is_refused() -> None:
    with pytest.raises(InvalidInput, match="at least 64 values, one for each worker slot, got 3"):
        drawn(PoolValue(values=[1, 2, 3]), 1, a_draw(3))


def test_new_keys_beyond_their_type_are_refused_before_the_first() -> None:
    with pytest.raises(InvalidInput, match=r"span to be at most 33554431, got .* would reach .*, and int ends at 2147483647"):
        ValueStream(NewKey(first=1, type=ValueType.INT), a_draw())


def test_the_largest_span_named_is_the_largest_accepted() -> None:
    most = 2**31 // 64
    ValueStream(NewKey(first=0, type=ValueType.INT, span=most), a_draw())

    with pytest.raises(InvalidInput, match=f"span to be at most {most}, got {most + 1}"):
        ValueStream(NewKey(first=0, type=ValueType.INT, span=most + 1), a_draw())


# The same again


@pytest.mark.parametrize(
    "value",
    [
        *(keys(distribution) for distribution in Distribution),
        NewKey(first=9),
        PoolValue(values=range(200)),
        RandomNumber(),
        NonUniform(a=255, low=0, high=999),
        RandomText(),
        RandomUuid(),
        Either(usual=RandomNumber(), other=RandomNumber(), share=0.5),
    ],
)
def test_a_seed_and_a_slot_give_the_same_values_again(value: Value) -> None:
    assert drawn(value, 1_000, a_draw(5, seed=7)).tolist() == drawn(value, 1_000, a_draw(5, seed=7)).tolist()


@pytest.mark.parametrize("other", [{"seed": 8}, {"slot": 6}])
def test_another_seed_or_slot_gives_other_values(other: dict[str, int]) -> None:
    usual = {"slot": 5, "seed": 7}

    assert drawn(RandomNumber(), 100, a_draw(**usual)).tolist() != drawn(RandomNumber(), 100, a_draw(**usual | other)).tolist()


# Shapes


@pytest.mark.parametrize(("low", "high"), [(1, 10), (1, 1_000), (501, 1_500), (1, 200_000)])
@pytest.mark.parametrize("distribution", Distribution)
def test_keys_stay_between_their_bounds(distribution: Distribution, low: int, high: int) -> None:
    made = drawn(keys(distribution, high, low), 100_000, a_draw(slots=8))

    assert low <= made.min() <= made.max() <= high


def test_uniform_keys_come_equally_often() -> None:
    got = frequencies(drawn(keys(Distribution.UNIFORM, 100), MILLION), 100)

    assert within(got, np.full(100, 0.01), MILLION)


@pytest.mark.parametrize("count", [1, 2, 3, 10, 1_000])
def test_zipfian_keys_come_as_often_as_the_law_says(count: int) -> None:
    got = frequencies(drawn(keys(Distribution.ZIPFIAN, count), MILLION), count)

    assert within(np.sort(got)[::-1][:10], zipf(count)[:10], MILLION)
    assert np.allclose(np.cumsum(np.sort(got)[::-1]), np.cumsum(zipf(count)), atol=0.003)


@pytest.mark.parametrize("theta", [0.3, 0.7, 0.99])
def test_latest_keys_come_as_often_as_the_law_says_newest_first(theta: float) -> None:
    value = KeyValue(low=1, high=500, distribution=Distribution.LATEST, theta=theta)

    got = frequencies(drawn(value, MILLION), 500)[::-1]

    assert within(got, zipf(500, theta), MILLION)


def test_the_law_holds_beyond_the_ranks_that_are_looked_up() -> None:
    count = 3 * MILLION
    got = count - drawn(keys(Distribution.LATEST, count), MILLION)
    edges = [0, 10, 1_000, 65_536, 65_537, 100_000, 1_000_000, count]

    shares = np.histogram(got, edges)[0] / MILLION

    expected = np.diff(np.concatenate(([0.0], np.cumsum(zipf(count))))[edges])
    assert within(shares, expected, MILLION)


def test_popular_zipfian_keys_are_not_neighbours_and_no_two_ranks_share_one() -> None:
    got = frequencies(drawn(keys(Distribution.ZIPFIAN, 10_000), MILLION), 10_000)
    popular = np.sort(np.argsort(got)[-10:])

    assert np.diff(popular).min() > 100
    assert np.count_nonzero(got) > 9_900


@pytest.mark.parametrize(("share", "load"), [(0.2, 0.8), (0.1, 0.5), (1.0, 0.8)])
def test_a_share_of_the_keys_takes_a_share_of_the_load(share: float, load: float) -> None:
    value = KeyValue(high=1_000, distribution=Distribution.HOTSPOT, hot_share=share, hot_load=load)
    hot = int(1_000 * share)

    got = frequencies(drawn(value, MILLION), 1_000)

    assert within(got[:hot], np.full(hot, (load if hot < 1_000 else 1) / hot), MILLION)
    assert within(got[hot:], np.full(1_000 - hot, (1 - load) / max(1, 1_000 - hot)), MILLION)


def test_the_latest_keys_are_those_this_worker_inserted_a_while_ago() -> None:
    new, draw = NewKey(first=1_001, span=100), a_draw(2)
    inserts = ValueStream(new, draw)
    reads = ValueStream(KeyValue(high=1_000, distribution=Distribution.LATEST, inserted=new), draw)
    first = 1_001 + 2 * 100

    seen = []
    for _ in range(3):
        inserts.next(10, ())
        seen.append(set(reads.next(20_000, ()).tolist()))

    assert max(seen[0]) == 1_000
    assert {key for key in seen[1] if key > 1_000} == set(range(first, first + 10))
    assert {key for key in seen[2] if key > 1_000} == set(range(first, first + 20))
    assert 1_000 in seen[2]


def test_among_the_latest_the_last_inserted_come_first() -> None:
    new, draw = NewKey(first=1_001), a_draw()
    for _ in range(2):
        ValueStream(new, draw).next(5, ())

    made = drawn(KeyValue(high=1_000, distribution=Distribution.LATEST, inserted=new), MILLION, draw)

    got = [float(np.mean(made == key)) for key in (1_005, 1_004, 1_003, 1_002, 1_001, 1_000, 999)]
    assert within(np.asarray(got), zipf(1_000)[:7], MILLION)


def test_nurand_prefers_some_numbers_as_the_standard_says() -> None:
    high, a, c = 99, 31, 7
    got = frequencies(drawn(NonUniform(a=a, low=1, high=high, c=c), MILLION), high)

    expected = np.zeros(high)
    for x in range(a + 1):
        for y in range(1, high + 1):
            expected[((x | y) + c) % high] += 1 / ((a + 1) * high)
    assert within(got, expected, MILLION)


# Kinds of values


def test_a_number_may_have_digits_behind_the_point() -> None:
    made = drawn(RandomNumber(low=100, high=500, scale=2, type=ValueType.FLOAT), 100_000)

    assert sorted(set(made.tolist())) == [cents / 100 for cents in range(100, 501)]


def test_numbers_include_both_bounds() -> None:
    assert set(drawn(RandomNumber(low=-1, high=1), 1_000).tolist()) == {-1, 0, 1}


def test_texts_are_letters_and_digits_of_their_length() -> None:
    made = [text.decode() for text in drawn(RandomText(length=12), 1_000)]

    assert all(len(text) == 12 and text.isalnum() and text.isascii() for text in made)
    assert len(set(made)) == 1_000
    assert len(set("".join(made))) == 62


def test_uuids_are_of_version_4_and_all_different() -> None:
    made = [UUID(text) for text in drawn(RandomUuid(), 500)]

    assert {each.version for each in made} == {4}
    assert len(set(made)) == 500


def test_now_is_when_values_are_drawn() -> None:
    assert drawn(Now(), 3).tolist() == [NOW] * 3


@pytest.mark.parametrize(("plus", "expected"), [(0, [5, 6, 7]), (100, [105, 106, 107])])
def test_the_same_as_an_earlier_value_and_something_more(plus: int, expected: list[int]) -> None:
    other, earlier = np.asarray([1, 2, 3]), np.asarray([5, 6, 7])

    assert drawn(SameAs(index=1, plus=plus), 3, None, other, earlier).tolist() == expected


def test_something_is_added_to_a_value_from_a_pool_too() -> None:
    earlier = drawn(PoolValue(values=[10, 20], type=ValueType.BIGINT), 2, a_draw(slots=1))

    assert drawn(SameAs(index=0, plus=100), 2, None, earlier).tolist() == [110, 120]


def test_either_takes_the_usual_value_in_its_share_of_operations() -> None:
    usual = np.zeros(MILLION, dtype=np.int64)
    value = Either(usual=SameAs(index=0), other=RandomNumber(low=1, high=1), share=0.85)

    made = drawn(value, MILLION, None, usual)

    assert within(np.asarray([np.mean(made == 0)]), np.asarray([0.85]), MILLION)
    assert set(made.tolist()) == {0, 1}


def test_a_pick_is_what_lies_at_the_place_another_value_says() -> None:
    earlier = np.asarray([2, 0, 1, 2])

    assert drawn(Pick(values=["a", "b", "c"], by=SameAs(index=0)), 4, None, earlier).tolist() == ["c", "a", "b", "c"]
