"""Who holds how many connections."""

import pytest
from hypothesis import given, strategies as st

from drumbeat.bench.control.modes.allocate import allocate, workers_for
from drumbeat.bench.model import Allocation, Scaling, ScalingMode

SPREAD, PACK = Allocation.SPREAD, Allocation.PACK


@pytest.mark.parametrize(
    ("total", "slots", "scaling", "expected"),
    [
        pytest.param(11, [0, 1, 2], Scaling(), {0: 4, 1: 4, 2: 3}, id="the remainder goes to the lowest slots"),
        pytest.param(11, [7, 2, 5], Scaling(), {2: 4, 5: 4, 7: 3}, id="slots may have gaps and any order"),
        pytest.param(12, [0, 1, 2], Scaling(min_connections=5), {0: 6, 1: 6, 2: 0}, id="a floor leaves workers out"),
        pytest.param(3, [0, 1], Scaling(min_connections=5), {0: 3, 1: 0}, id="less than one floor is held by one"),
        pytest.param(50, [0, 1], Scaling(cap=10), {0: 10, 1: 10}, id="never above the cap"),
        pytest.param(0, [0, 1], Scaling(), {0: 0, 1: 0}, id="nothing"),
        pytest.param(5, [], Scaling(), {}, id="nobody"),
        pytest.param(25, [0, 1, 2, 3], Scaling(cap=10, allocation=PACK), {0: 10, 1: 10, 2: 5, 3: 0}, id="packed to the cap"),
        pytest.param(
            12, [0, 1, 2], Scaling(cap=10, min_connections=5, allocation=PACK), {0: 7, 1: 5, 2: 0}, id="packed above the floor"
        ),
        pytest.param(20, [0, 1], Scaling(cap=10, min_connections=8, allocation=PACK), {0: 10, 1: 10}, id="packed to the brim"),
        pytest.param(
            12, [0, 1], Scaling(cap=10, min_connections=10), {0: 10, 1: 0}, id="what floors and caps cannot hold is left"
        ),
        pytest.param(
            1000,
            range(5),
            Scaling(mode=ScalingMode.FIXED, min_workers=5, min_connections=200, cap=150),
            dict.fromkeys(range(5), 200),
            id="FIXED is exactly as specified",
        ),
    ],
)
def test_targets_by_slot(total: int, slots: list[int], scaling: Scaling, expected: dict[int, int]) -> None:
    assert allocate(total, slots, scaling) == expected


@pytest.mark.parametrize("how", [SPREAD, PACK])
def test_what_a_slot_with_a_lower_ceiling_cannot_hold_goes_to_the_others(how: Allocation) -> None:
    targets = allocate(300, [0, 1, 2], Scaling(cap=150, allocation=how), {1: 80})

    assert targets[1] <= 80
    assert sum(targets.values()) == 300


scalings = st.builds(
    Scaling,
    min_connections=st.integers(1, 20),
    cap=st.integers(20, 60),
    allocation=st.sampled_from(Allocation),
)
some_slots = st.lists(st.integers(0, 50), unique=True, min_size=1, max_size=12)


@given(total=st.integers(0, 800), slots=some_slots, scaling=scalings)
def test_targets_keep_caps_and_floors_and_add_up(total: int, slots: list[int], scaling: Scaling) -> None:
    targets = allocate(total, slots, scaling)
    used = [target for target in targets.values() if target]
    able = min(len(slots), max(1, total // scaling.min_connections))

    assert set(targets) == set(slots)
    assert sum(used) == min(total, able * scaling.cap)
    assert all(target <= scaling.cap for target in used)
    assert total < scaling.min_connections or all(target >= scaling.min_connections for target in used)


@given(total=st.integers(0, 800), slots=some_slots, cap=st.integers(1, 60), how=st.sampled_from(Allocation))
def test_without_a_floor_all_that_fits_is_held(total: int, slots: list[int], cap: int, how: Allocation) -> None:
    assert sum(allocate(total, slots, Scaling(cap=cap, allocation=how)).values()) == min(total, len(slots) * cap)


@given(total=st.integers(0, 800), slots=some_slots, scaling=scalings, data=st.data())
def test_lower_ceilings_are_kept_and_lose_nothing_that_others_can_hold(
    total: int, slots: list[int], scaling: Scaling, data: st.DataObject
) -> None:
    ceilings = {slot: data.draw(st.integers(scaling.min_connections, scaling.cap)) for slot in slots[::2]}
    targets = allocate(total, slots, scaling, ceilings)
    able = sorted(slots)[: max(1, total // scaling.min_connections)]

    assert all(targets[slot] <= ceiling for slot, ceiling in ceilings.items())
    assert sum(targets.values()) == min(total, sum(ceilings.get(slot, scaling.cap) for slot in able))


@given(total=st.integers(0, 800), slots=some_slots, scaling=scalings, data=st.data())
def test_the_order_in_which_slots_are_named_does_not_matter(
    total: int, slots: list[int], scaling: Scaling, data: st.DataObject
) -> None:
    assert allocate(total, data.draw(st.permutations(slots)), scaling) == allocate(total, slots, scaling)


@given(total=st.integers(1, 800), slots=some_slots, scaling=scalings)
def test_spread_differs_by_one_at_most_and_pack_uses_the_fewest(total: int, slots: list[int], scaling: Scaling) -> None:
    used = [target for target in allocate(total, slots, scaling).values() if target]

    if scaling.allocation is SPREAD:
        assert max(used) - min(used) <= 1
    else:
        assert len(used) == -(-sum(used) // scaling.cap)


@pytest.mark.parametrize(
    ("total", "scaling", "expected"),
    [
        pytest.param(1000, Scaling(cap=200), 5, id="ceil(total / cap)"),
        pytest.param(1001, Scaling(cap=200), 6, id="rounded up"),
        pytest.param(0, Scaling(), 1, id="at least one"),
        pytest.param(10, Scaling(min_workers=3), 3, id="at least the fewest"),
        pytest.param(5000, Scaling(cap=200, max_workers=10), 10, id="at most the most"),
        pytest.param(9, Scaling(mode=ScalingMode.FIXED, min_workers=5, min_connections=1), 5, id="FIXED: exactly"),
    ],
)
def test_workers_for_a_total(total: int, scaling: Scaling, expected: int) -> None:
    assert workers_for(total, scaling) == expected
