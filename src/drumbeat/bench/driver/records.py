"""The record of one operation, as a numpy dtype of fixed size. Every engine writes such records."""

import numpy as np
from numpy.typing import NDArray

RECORD = np.dtype(
    [
        ("due", "i8"),  # when it should have started, in monotonic nanoseconds
        ("start", "i8"),  # when it was sent
        ("duration", "i8"),  # from start to the last byte of the answer
        ("connection", "i4"),
        ("rows", "i4"),
        ("kind", "i2"),
        ("outcome", "u1"),
        ("epoch", "u1"),  # the number of the phase in which it started
        ("sqlstate", "S8"),
    ],
    align=True,
)

Records = NDArray[np.void]

OK, FAILED, TIMED_OUT, LOST = range(4)


def empty(count: int) -> Records:
    return np.zeros(count, dtype=RECORD)
