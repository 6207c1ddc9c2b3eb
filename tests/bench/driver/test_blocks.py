"""Messages made ahead of time say what they should, in the mix's order."""

import struct

import numpy as np

from drumbeat.bench.driver import pgwire
from drumbeat.bench.driver.blocks import BlockMaker, MessageBlock
from drumbeat.bench.model import (
    KeyValue,
    Load,
    NewKey,
    Now,
    Operation,
    PoolValue,
    RandomText,
    RandomUuid,
    SameAs,
    Statement,
    Value,
    ValueType,
)
from drumbeat.bench.values.draw import VIRTUAL_SLOTS, Draw

NOW_US = 1_800_000_000_000_000


def maker(load: Load, slot: int = 0) -> BlockMaker:
    return BlockMaker(load, Draw(slot=slot, chance=np.random.default_rng(1), now_us=lambda: NOW_US))


def operation(kind: str, weight: int, *values: Value, statements: int = 1) -> Operation:
    sql = "SELECT " + ", ".join(f"${n + 1}" for n in range(len(values))) if values else "SELECT 1"
    return Operation(kind=kind, weight=weight, statements=(Statement(sql=sql, values=values),) * statements)


def messages(block: MessageBlock) -> list[bytes]:
    data = block.data.tobytes()
    return [data[begin:end] for begin, end in zip(block.offsets[:-1], block.offsets[1:], strict=True)]


def bound(message: bytes) -> tuple[str, list[bytes]]:
    """The statement a message binds, and its values."""
    bind = next(iter(pgwire.split(bytearray(message))))
    assert bind.type == b"B"
    _, name, rest = bind.body.split(b"\0", 2)
    _, _, count = struct.unpack_from("!hhh", rest)
    values, at = [], 6
    for _ in range(count):
        (length,) = struct.unpack_from("!i", rest, at)
        values.append(rest[at + 4 : at + 4 + length])
        at += 4 + length
    return name.decode(), values


def test_every_message_is_a_bind_an_execute_and_a_sync() -> None:
    load = Load(name="x", operations=(operation("A", 100, KeyValue(low=1, high=9)),))

    made = list(messages(maker(load).make(100)))
    assert len(made) == 100
    for message in made:
        assert [each.type for each in pgwire.split(bytearray(message))] == [b"B", b"E", b"S"]


def test_numbers_are_sent_in_network_order_and_their_own_width() -> None:
    values = (
        NewKey(first=1000, type=ValueType.BIGINT),
        KeyValue(low=7, high=7, type=ValueType.INT),
        Now(),
        SameAs(index=0, plus=5),
    )
    load = Load(name="x", operations=(operation("A", 100, *values),))

    first, second = (bound(each)[1] for each in messages(maker(load).make(2)))

    assert [struct.unpack("!q", first[0]), struct.unpack("!q", second[0])] == [(1000,), (1001,)]
    assert struct.unpack("!i", first[1]) == (7,)
    assert struct.unpack("!q", first[2]) == (NOW_US - 946_684_800_000_000,)
    assert struct.unpack("!q", second[3]) == (1006,)


def test_text_beside_numbers_comes_out_whole_and_numbers_stay_right() -> None:
    load = Load(name="x", operations=(operation("A", 100, NewKey(first=300), RandomText(length=12), Now()),))

    for n, message in enumerate(messages(maker(load).make(10))):
        _, (key, text, now) = bound(message)
        assert struct.unpack("!q", key) == (300 + n,)
        assert len(text) == 12
        assert text.isalnum()
        assert struct.unpack("!q", now) == (NOW_US - 946_684_800_000_000,)


def test_texts_of_any_length_stay_in_their_place_among_other_operations() -> None:
    words = ["", "é", "a longer one"]
    pool = PoolValue(values=words * VIRTUAL_SLOTS)
    free = Operation(
        kind="FREE",
        weight=50,
        statements=(
            Statement(sql="SELECT $1", values=(NewKey(first=0),)),
            Statement(sql="SELECT $1, $2", values=(pool, RandomUuid())),
        ),
    )
    load = Load(name="x", operations=(free, operation("B", 50, RandomText(length=3))))

    found = [bound(each) for each in messages(maker(load).make(12))]

    assert [name for name, _ in found] == ["s0_0", "s0_1", "s1_0"] * (len(found) // 3)
    assert [struct.unpack("!q", values[0])[0] for _, values in found[::3]] == list(range(len(found) // 3))
    expected = [words[n * VIRTUAL_SLOTS % 3].encode() for n in range(3)]
    assert [values[0] for _, values in found[1::3]][:3] == expected
    assert {len(values[1]) for _, values in found[1::3]} == {36}
    assert {len(values[0]) for _, values in found[2::3]} == {3}


def test_the_mix_is_exact_in_every_block() -> None:
    load = Load(name="x", operations=(operation("A", 70, KeyValue()), operation("B", 25), operation("C", 5, RandomText())))

    block = maker(load).make(1000)

    assert np.bincount(block.kinds).tolist() == [700, 250, 50]
    assert [bound(each)[0][1] for each in messages(block)] == [str(kind) for kind in block.kinds]


def test_the_statements_of_a_transaction_stay_together() -> None:
    load = Load(name="x", operations=(operation("TX", 50, KeyValue(), statements=3), operation("B", 50)))

    block = maker(load).make(100)

    together = list(zip(block.kinds.tolist(), block.more.tolist(), strict=True))
    assert together[:8] == [(0, 1), (0, 1), (0, 0), (1, 0)] * 2
    assert [bound(each)[0] for each in messages(block)[:4]] == ["s0_0", "s0_1", "s0_2", "s1_0"]


def test_blocks_go_on_where_the_last_one_ended_whatever_their_size() -> None:
    load = Load(name="x", operations=(operation("A", 100, NewKey(first=0)),))
    making = maker(load)

    keys = [struct.unpack("!q", bound(each)[1][0])[0] for size in (3, 10, 1) for each in messages(making.make(size))]

    assert keys == list(range(14))
