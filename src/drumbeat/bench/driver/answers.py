"""What PostgreSQL's answers say of rows, read at a glance where they are the usual ones."""

_READY_IDLE = b"Z\x00\x00\x00\x05I"


def rows_of_whole_answer(data: bytes) -> int:
    """The usual answer: it came whole, ended well, and the server is idle. −1 for anything else.

    An error would stand where the CommandComplete does: right before the ReadyForQuery, and nothing follows that.
    """
    if not data.endswith(_READY_IDLE):
        return -1
    end = len(data) - len(_READY_IDLE)
    begin = data.rfind(b"C\x00\x00\x00", 0, end)
    if begin < 0 or begin + 1 + data[begin + 4] != end or data.count(b"Z\x00\x00\x00\x05", 0, end):
        return -1
    return rows_of(data[begin + 5 : end])


def rows_of(tag: bytes) -> int:
    """The last word of a command's tag, if it is a number: "SELECT 5", "INSERT 0 5"."""
    word = tag.rstrip(b"\0").rsplit(b" ", 1)[-1]
    return int(word) if word.isdigit() else 0
