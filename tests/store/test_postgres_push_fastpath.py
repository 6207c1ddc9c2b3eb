"""Jobs pushed one by one go on a line of their own, which keeps every promise of the way they went before."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from drumbeat.core.errors import DrumbeatError, InvalidInput, NotFound, StoreUnavailable
from drumbeat.core.pool import PoolId, PoolKind, PoolRow, pool
from drumbeat.store import open_store
from drumbeat.store.contract.given_jobs import claiming, pushed
from drumbeat.store.interface import Store
from drumbeat.store.sql.database import Rows, Values
from drumbeat.store.sql.postgres_push_fastpath import OFTEN, PushFastpath, StatementConnection
from servers.postgres import PostgresServer


async def pushing(store: Store) -> PoolRow:
    """A pool to which so many jobs were pushed, one by one, that there is a line."""
    made = await store.pools.create(pool("p", PoolKind.JOBS))
    for n in range(OFTEN + 2):
        await pushed(store, made, n)
    return made


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[Store]:
    async with open_store(postgres_url, create=True) as opened:
        yield opened


async def test_jobs_pushed_on_a_line_are_there_in_their_order(store: Store) -> None:
    made = await pushing(store)

    ids = [(await pushed(store, made, {"ä": n}, type="t", priority=3))[0] for n in range(3)]

    assert sorted(ids) == ids
    claimed = await store.queue.claim(claiming(made, limit=100))
    assert [(job.payload, job.type) for job in claimed[:3]] == [({"ä": n}, "t") for n in range(3)]
    assert [job.payload for job in claimed[3:]] == [*range(OFTEN + 2)]


async def test_a_line_makes_one_connection_and_no_more(postgres: PostgresServer, postgres_url: str) -> None:
    count = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{postgres_url.rpartition('/')[2]}'"
    async with open_store(f"{postgres_url}?connections=1", create=True) as store:
        made = await store.pools.create(pool("p", PoolKind.JOBS))
        await pushed(store, made, 0)
        async with asyncio.timeout(60):
            while int(postgres.sql(count)) > 1:  # the one that looked for a pooler is still leaving
                await asyncio.sleep(0.01)

        for n in range(3 * OFTEN):
            await pushed(store, made, n)

        assert int(postgres.sql(count)) == 2


async def test_pushes_at_once_do_not_wait_for_the_line(store: Store) -> None:
    made = await pushing(store)

    pushes = await asyncio.gather(*(pushed(store, made, n) for n in range(40)))

    assert len({job_id for [job_id] in pushes}) == 40
    assert await store.jobs.size(made.pool_id) == OFTEN + 2 + 40


async def test_a_pool_that_went_is_said_on_a_line(store: Store) -> None:
    made = await pushing(store)
    await store.pools.delete(made.pool_id)

    with pytest.raises(NotFound, match="p"):
        await pushed(store, made, 1)


@pytest.mark.parametrize("kind", ["nul \0", "half a pair \ud800"])
async def test_a_value_that_cannot_be_kept_is_bad_input_and_the_line_goes_on(store: Store, kind: str) -> None:
    made = await pushing(store)

    with pytest.raises(InvalidInput):
        await pushed(store, made, 1, type=kind)

    assert len(await pushed(store, made, 2)) == 1
    assert await store.jobs.size(made.pool_id) == OFTEN + 3


async def test_whoever_is_cancelled_leaves_the_line_in_order(store: Store) -> None:
    made = await pushing(store)
    for _ in range(5):
        async with asyncio.TaskGroup() as group:
            given_up = group.create_task(pushed(store, made, "given up"))
            await asyncio.sleep(0)
            given_up.cancel()

    ids = [(await pushed(store, made, n))[0] for n in range(5)]

    assert [(await store.jobs.get(job_id)).payload for job_id in ids] == [*range(5)]


async def test_pushing_goes_on_after_the_server_came_back(private_postgres: PostgresServer) -> None:
    async with open_store(f"{private_postgres.new_database()}?command_timeout=2", create=True) as store:
        made = await pushing(store)
        private_postgres.stop()
        with pytest.raises(StoreUnavailable):
            await pushed(store, made, "lost")
        private_postgres.start()

        for n in range(OFTEN + 2):
            await pushed(store, made, n)

        assert await store.jobs.size(made.pool_id) == 2 * (OFTEN + 2)


async def test_a_server_that_does_not_answer_a_push_is_unavailable(private_postgres: PostgresServer) -> None:
    url = private_postgres.new_database()
    async with open_store(f"{url}?command_timeout=0.5&connect_timeout=0.5", create=True) as store:
        made = await pushing(store)
        with private_postgres.paused(), pytest.raises(StoreUnavailable):
            await pushed(store, made, 1)

        assert len(await pushed(store, made, 2)) == 1


class Transport(asyncio.Transport):
    """A transport that keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += bytes(data)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def is_closing(self) -> bool:
        return self.aborted


class Connection:
    """The driver's connection, as far as a line is concerned; its statement too."""

    def __init__(self) -> None:
        self._transport = Transport()

    def terminate(self) -> None:
        self._transport.aborted = True

    def get_name(self) -> str:
        return "stmt"

    def get_parameters(self) -> list[str]:
        return ["text", "int4"]


class Refused(Exception):
    """What the server said."""


def new_line(within: float = 5.0) -> tuple[StatementConnection, Transport]:
    connection = Connection()
    line = StatementConnection(connection, connection, lambda said: Refused(said["M"]), within)
    return line, connection._transport


def message(kind: bytes, body: bytes) -> bytes:
    return kind + (len(body) + 4).to_bytes(4, "big") + body


def row(text: bytes) -> bytes:
    return message(b"D", b"\0\2" + len(text).to_bytes(4, "big") + text + b"\xff\xff\xff\xff")


BOUND, DONE, READY = message(b"2", b""), message(b"C", b"INSERT 0 1\0"), message(b"Z", b"I")
STATUS = message(b"S", b"a\0b\0")
ERROR = message(b"E", b"SERROR\0C22021\0Mno such thing\0\0")
ANSWERS: dict[str, tuple[bytes, int | str | None]] = {
    "a row": (BOUND + row(b"1234") + DONE + READY, 1234),
    "no row": (BOUND + DONE + READY, None),
    "an error": (ERROR + READY, "no such thing"),
    "an error after the row": (BOUND + row(b"7") + ERROR + READY, "no such thing"),
    "something else between": (BOUND + row(b"8") + STATUS + DONE + READY, 8),
}


@pytest.mark.parametrize("size", [1, 2, 3, 7, 20, 1000])
@pytest.mark.parametrize("name", ANSWERS)
async def test_an_answer_is_read_whole_in_whatever_pieces_it_comes(name: str, size: int) -> None:
    answer, expected = ANSWERS[name]
    line, _ = new_line()
    for _ in range(2):
        waiting = line.ask(["x", 1])
        free = [line.is_free]

        for at in range(0, len(answer), size):
            line.data_received(answer[at : at + size])

        assert [*free, line.is_free] == [False, True]
        if isinstance(expected, str):
            with pytest.raises(Refused, match=expected):
                await waiting
        else:
            assert await waiting == expected


async def test_a_statement_goes_out_with_its_values_as_text() -> None:
    line, transport = new_line()

    line.ask(["ü", None])

    bind = b"\0stmt\0\0\0\0\2" + b"\0\0\0\2\xc3\xbc" + b"\xff\xff\xff\xff" + b"\0\0"
    assert transport.sent == message(b"B", bind) + message(b"E", b"\0\0\0\0\0") + message(b"S", b"")


async def test_an_answer_that_does_not_come_in_time_closes_the_line() -> None:
    line, transport = new_line(0.01)
    in_time = line.ask(["x", 1])
    line.data_received(ANSWERS["a row"][0])

    late = line.ask(["x", 1])
    async with asyncio.timeout(60):
        assert await in_time == 1234
        with pytest.raises(TimeoutError):
            await late

    assert transport.aborted
    assert line.is_lost
    assert not line.is_free


async def test_a_connection_that_is_lost_is_said_with_the_servers_last_word() -> None:
    silent, _ = new_line()
    gone = silent.ask(["x", 1])
    silent.connection_lost(None)
    speaking, _ = new_line()
    told = speaking.ask(["x", 1])
    speaking.data_received(ERROR)
    speaking.connection_lost(None)

    with pytest.raises(ConnectionError):
        await gone
    with pytest.raises(Refused, match="no such thing"):
        await told


class NoLines:
    """A database that has no line to give."""

    def __init__(self) -> None:
        self.written = 0
        self.asked = 0

    async def write(self, query: str, values: Values) -> Rows:
        self.written += 1
        return [[self.written]]

    async def statement_connection(self, query: str) -> Any:
        self.asked += 1
        raise StoreUnavailable("too many connections")

    def translated(self, exc: Exception) -> DrumbeatError:
        return StoreUnavailable(str(exc))


async def test_without_a_line_a_query_goes_with_the_others() -> None:
    lines = NoLines()
    fastpath = PushFastpath(lines, "push_one", lambda: (OSError,))

    numbers = [await fastpath.number({}) for _ in range(2 * OFTEN)]
    fastpath.close()

    assert numbers == [*range(1, 2 * OFTEN + 1)]
    assert lines.asked == 1


async def test_a_job_pushed_behind_a_pooler_needs_no_line(pgbouncer: Any, new_database: Any) -> None:
    async with open_store(pgbouncer.url(new_database()), create=True) as store:
        made = await pushing(store)

        assert await store.jobs.size(PoolId(made.pool_id)) == OFTEN + 2
