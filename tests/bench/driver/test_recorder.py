"""Records are written by one thread and read by another, each record once and whole."""

import threading

import numpy as np
import pytest

from drumbeat.bench.driver.recorder import Recorder, RecorderSet
from drumbeat.bench.driver.records import RECORD, Records

MANY = 50_000


def read(recorder: Recorder) -> Records:
    return np.frombuffer(recorder.take(), dtype=RECORD)


def test_a_record_is_laid_out_as_numpy_expects_it() -> None:
    recorder = Recorder()

    recorder.add(1, 2, 3, 4, 5, 6, 7, 8, b"23505678")

    assert read(recorder).tolist() == [(1, 2, 3, 4, 5, 6, 7, 8, b"23505678")]


@pytest.mark.parametrize("count", [0, 1, 1023, 1024, 1025, 2048, 5000])
def test_each_is_read_once_whatever_their_number(count: int) -> None:
    recorder = Recorder()

    for number in range(count):
        recorder.add(number, 0, 0, 0, 0, 0, 0, 0, b"")

    assert read(recorder)["due"].tolist() == list(range(count))
    assert len(read(recorder)) == 0
    recorder.add(count, 0, 0, 0, 0, 0, 0, 0, b"")
    assert read(recorder)["due"].tolist() == [count]


def test_reader_and_writer_do_not_get_in_each_other_s_way() -> None:
    recorder = Recorder()

    def write() -> None:
        for n in range(MANY):
            recorder.add(n, n, n, n, n, 0, 0, 0, b"x")

    writer = threading.Thread(target=write)
    writer.start()
    taken = []
    while writer.is_alive():
        taken.append(read(recorder))
    taken.append(read(recorder))

    records = np.concatenate(taken)
    assert records["due"].tolist() == list(range(MANY))
    assert (records["rows"] == records["due"]).all()
    assert set(records["sqlstate"].tolist()) == {b"x"}


def test_a_ledger_keeps_what_a_writer_left_behind() -> None:
    ledger = RecorderSet()
    first, second = ledger.add(), ledger.add()
    for place, recorder in enumerate([ledger.own, first, second]):
        recorder.add(place, 0, 0, 0, 0, 0, 0, 0, b"")

    ledger.retire(first)

    assert sorted(ledger.take()["due"].tolist()) == [0, 1, 2]
    assert len(ledger.take()) == 0
