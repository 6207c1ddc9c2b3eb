"""Snowflake's own promises: how it signs in, what it locks, that secrets stay secret, and that stores are copied there."""

import asyncio
import json
import logging
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from drumbeat.core.errors import AlreadyExists, InvalidSettings, MissingExtra, NotFound, Refused, StoreUnavailable
from drumbeat.core.event import NewEvent
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.core.run import RunId, RunStatus
from drumbeat.core.store_url import PASSWORD_VARIABLE
from drumbeat.core.worker import WorkerId
from drumbeat.store import Store, open_store
from drumbeat.store.contract.given import MINUTE, W1, W2, heartbeat, joined, new_pool, new_run, sample
from drumbeat.store.contract.given_jobs import claimed, claiming, holder, pushed, verdict
from drumbeat.store.contract.templates import template
from drumbeat.store.copy import copy_store, export_runs
from drumbeat.store.interface import CopyOptions, RunChange
from drumbeat.store.sql import snowflake as snowflake_store, snowflake_sessions
from servers.snowflake import USER, SnowflakeServer
from store.copied import Silent, as_copied, dump, furnished

RACE = Path(__file__).parents[2] / "benchmarks" / "claim_race.py"
SECRET = "correct horse/battery@staple"


@pytest.fixture
async def store(snowflake: SnowflakeServer) -> AsyncIterator[Store]:
    async with open_store(snowflake.new_database(), create=True) as store:
        yield store


def sent(server: SnowflakeServer) -> list[str]:
    return [" ".join(each.sql.split()) for each in server.statements()]


# Transactions


async def test_every_change_but_a_heartbeat_begins_with_the_writers_lock(snowflake: SnowflakeServer, store: Store) -> None:
    home = await store.pools.create(new_pool())
    worker = await joined(store, home)
    snowflake.forget()

    await store.events.append(home.pool_id, [NewEvent(type="X")])
    await store.membership.beat(heartbeat(worker, sample=sample(1, 10)))

    statements = sent(snowflake)
    assert statements[0].startswith("BEGIN NAME drumbeat_")
    assert statements[1] == "UPDATE locks SET n = n + 1 WHERE name = 'writer'"
    assert sum("locks" in each for each in statements) == 1
    assert statements.count("COMMIT") == 2


async def test_a_migration_takes_the_writers_lock_again_after_each_statement_that_ends_its_transaction(
    snowflake: SnowflakeServer,
) -> None:
    """Otherwise another process writes, or migrates too, while the rest of the migration runs."""
    url = snowflake.new_database()
    snowflake.forget()

    async with open_store(url, create=True):
        statements = sent(snowflake)

    lock = "UPDATE locks SET n = n + 1 WHERE name = 'writer'"
    made = next(n for n, each in enumerate(statements) if "TABLE IF NOT EXISTS locks" in each)
    pairs = zip(statements[made:], statements[made + 1 :], strict=False)
    after = {second for first, second in pairs if _ends_transaction(first) and not _ends_transaction(second)}
    assert after <= {lock, "COMMIT"}
    assert lock in after


def _ends_transaction(statement: str) -> bool:
    return statement.startswith(("CREATE", "DROP", "ALTER"))


async def test_two_stores_number_events_without_gaps(snowflake: SnowflakeServer) -> None:
    url = snowflake.new_database()
    async with open_store(url, create=True) as one, open_store(url) as other:
        home = await one.pools.create(new_pool())

        await asyncio.gather(*(store.events.append(home.pool_id, [NewEvent(type="X")] * 2) for store in [one, other] * 3))

        assert [event.sequence_id for event in await one.events.read(home.pool_id, 0)] == [*range(1, 13)]


@pytest.mark.parametrize("next_holder", [W1, W2])
async def test_a_late_result_is_refused(snowflake: SnowflakeServer, next_holder: WorkerId) -> None:
    """Also if the same worker holds the job again: it is the claim that counts."""
    url = snowflake.new_database()
    async with open_store(url, create=True) as slow, open_store(url) as quick:
        home = await slow.pools.create(new_pool())
        await pushed(slow, home, "x")
        late = await claimed(slow, home, W1)
        await quick.queue.release(holder(home, W1), "lost")
        again = await claimed(quick, home, next_holder)

        refused = await slow.queue.settle(holder(home, W1), [verdict(late, result="late")])
        accepted = await quick.queue.settle(holder(home, next_holder), [verdict(again, result="in time")])

        assert [*refused.stale] == [late.token]
        assert not accepted.stale
        assert (await slow.jobs.get(late.job_id)).result == "in time"


@pytest.mark.slow
def test_eight_processes_claim_their_jobs_none_twice_none_lost(snowflake: SnowflakeServer) -> None:
    url = f"{snowflake.new_database()}&connections=1"
    command = [
        sys.executable,
        str(RACE),
        "--stores",
        "snowflake",
        "--url",
        url,
        "--processes",
        "8",
        "--jobs",
        "1600",
        "--limit",
        "20",
    ]

    ended = subprocess.run(command, capture_output=True, text=True, timeout=1500)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    result = json.loads(ended.stdout)["figures"]["snowflake"]
    assert (result["twice"], result["lost"], result["strange"], result["done"]) == (0, 0, 0, 1600)


async def test_standard_tables_keep_names_unique_too(snowflake: SnowflakeServer) -> None:
    url = snowflake.new_database()
    async with open_store(f"{url}&tables=standard", create=True) as store:
        kinds = {kind for table, kind in snowflake.state()["table_kinds"].items() if table.startswith(url.split("/")[3])}
        assert kinds == {"standard"}
        home = await store.pools.create(new_pool())
        one = await store.templates.create(template())

        with pytest.raises(AlreadyExists):
            await store.pools.create(home)
        with pytest.raises(AlreadyExists):
            await store.templates.create(template(name=one.name))
        await pushed(store, home, 1, 2, 3)
        claims = await asyncio.gather(*(store.queue.claim(claiming(home, limit=2)) for _ in range(3)))

        assert sorted(job.payload for jobs in claims for job in jobs) == [1, 2, 3]
        assert any("enforce no primary key" in limit for limit in store.traits.limits)


async def test_an_account_without_hybrid_tables_is_told_what_to_do(snowflake: SnowflakeServer) -> None:
    snowflake.fail("CREATE HYBRID TABLE", number=391420, sqlstate="0A000", message="Unsupported feature 'HYBRID TABLE'")

    with pytest.raises(InvalidSettings, match="add tables=standard to the store's URL"):
        async with open_store(snowflake.new_database(), create=True):
            pass


async def test_a_failed_statement_undoes_the_whole_script(snowflake: SnowflakeServer, store: Store) -> None:
    home = await store.pools.create(new_pool())
    snowflake.fail("INSERT INTO events", number=300002)

    with pytest.raises(StoreUnavailable):
        await joined(store, home)

    assert not await store.workers.list(home.pool_id)
    assert (await joined(store, home)).worker_id == W1


# Sessions


async def test_after_sessions_have_expired_the_store_signs_in_again(snowflake: SnowflakeServer, store: Store) -> None:
    """Also where several sessions were idle, and for reading and writing."""
    home = await store.pools.create(new_pool())
    await asyncio.gather(*(store.pools.get(home.pool_id) for _ in range(4)))
    snowflake.command("end_sessions")

    await asyncio.gather(*(store.events.append(home.pool_id, [NewEvent(type="X")]) for _ in range(3)))

    assert [event.sequence_id for event in await store.events.read(home.pool_id, 0)] == [1, 2, 3]
    assert (await store.pools.get(home.pool_id)).pool_id == home.pool_id


@pytest.mark.parametrize("number", [390104, 390111])
async def test_a_write_is_repeated_if_its_session_expired_before_it_began(
    snowflake: SnowflakeServer, store: Store, number: int
) -> None:
    home = await store.pools.create(new_pool())
    snowflake.fail("^BEGIN", number=number, sqlstate="08001", message="expired")

    await store.events.append(home.pool_id, [NewEvent(type="X")])

    assert len(await store.events.read(home.pool_id, 0)) == 1


async def test_a_write_is_not_repeated_if_its_session_expired_after_it_began(snowflake: SnowflakeServer, store: Store) -> None:
    home = await store.pools.create(new_pool())
    snowflake.fail("INSERT INTO events", number=390111, sqlstate="08001", message="expired")

    with pytest.raises(StoreUnavailable, match="390111"):
        await store.events.append(home.pool_id, [NewEvent(type="X")])

    await store.events.append(home.pool_id, [NewEvent(type="Y")])
    assert [event.type for event in await store.events.read(home.pool_id, 0)] == ["Y"]


async def test_a_session_that_expires_again_at_once_is_an_error(snowflake: SnowflakeServer, store: Store) -> None:
    snowflake.fail("^BEGIN", number=390111, sqlstate="08001", message="expired", times=2)

    with pytest.raises(StoreUnavailable, match="390111"):
        await store.pools.create(new_pool())


@pytest.mark.parametrize(("tables", "of_hybrid_tables"), [("hybrid", True), ("standard", False)])
async def test_sessions_set_parameters_of_hybrid_tables_only_if_there_are_such_tables(
    snowflake: SnowflakeServer, tables: str, of_hybrid_tables: bool
) -> None:
    """Accounts without hybrid tables may not know them."""
    before = {each["id"] for each in snowflake.state()["sessions"]}

    async with open_store(f"{snowflake.new_database()}&tables={tables}", create=True):
        [*opened] = [each for each in snowflake.state()["sessions"] if each["id"] not in before]

    assert opened
    for each in opened:
        assert ("HYBRID_TABLE_LOCK_TIMEOUT" in each["parameters"]) is of_hybrid_tables
        assert ("READ_LATEST_WRITES" in each["parameters"]) is of_hybrid_tables
        assert "LOCK_TIMEOUT" in each["parameters"]


async def test_a_lock_that_is_refused_at_once_is_asked_for_again_after_a_pause(
    snowflake: SnowflakeServer, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Snowflake refuses the 21st session that waits for a lock without letting it wait."""
    pauses: list[str] = []
    monkeypatch.setattr(snowflake_store, "_pause", lambda: pauses.append("pause"))
    snowflake.fail("UPDATE locks", number=625, sqlstate="57014", message="exceeds the 20 statements limit", times=3)

    await store.pools.create(new_pool())

    assert pauses == ["pause"] * 3


# Signing in


async def test_the_connectors_absence_names_the_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "snowflake.connector", None)
    snowflake_sessions.driver.cache_clear()
    try:
        with pytest.raises(MissingExtra, match=r"pip install 'drumbeat\[snowflake\]'"):
            open_store("snowflake://me:pw@account/db/s?warehouse=w")
    finally:
        monkeypatch.undo()
        snowflake_sessions.driver.cache_clear()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("snowflake://me@account/db/s", "expected the password .* in the environment variable DRUMBEAT_STORE_PASSWORD"),
        ("snowflake://me@account/db/s?authenticator=oauth", "expected the token of the Snowflake store"),
        ("snowflake://me@account/db/s?authenticator=key_pair", "expected private_key_file=FILE"),
        ("snowflake://me:pw@account/db/s?authenticator=browser", "one of password, key_pair, oauth, token, got 'browser'"),
        ("snowflake://account/db/s", "expected snowflake://USER@ACCOUNT/DATABASE/SCHEMA"),
        ("snowflake://me:pw@account", "expected snowflake://USER@ACCOUNT/DATABASE/SCHEMA"),
        ("snowflake://me:pw@account/db;drop/s", "expected snowflake://USER@ACCOUNT/DATABASE/SCHEMA"),
        ("snowflake://me:pw@account/db/s?tables=fast", "expected tables=hybrid or tables=standard"),
        ("snowflake://me:pw@account/db/s?token=abc", "unknown option 'token'"),
        ("snowflake://me:pw@account/db/s?host=example.com&protocol=http", "only with host=127.0.0.1"),
    ],
)
def test_a_url_that_cannot_work_is_refused(url: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PASSWORD_VARIABLE, raising=False)

    with pytest.raises(InvalidSettings, match=said) as refused:
        open_store(url)

    assert "pw" not in str(refused.value)


async def test_password_key_pair_and_token_let_in_and_none_of_them_is_ever_shown(
    private_snowflake: SnowflakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server, file = private_snowflake, tmp_path / "key.p8"
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    encrypted = serialization.BestAvailableEncryption(SECRET.encode())
    file.write_bytes(private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encrypted))
    spki = private.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    server.add_user(USER, password=SECRET, public_key=spki.decode(), oauth_token=SECRET)
    bare = server.url("SIGNING", password=None)

    async def signed_in(url: str, secret: str | None) -> str:
        if secret is None:
            monkeypatch.delenv(PASSWORD_VARIABLE, raising=False)
        else:
            monkeypatch.setenv(PASSWORD_VARIABLE, secret)
        async with open_store(url, check_version=False) as store:
            return (await store.upkeep.check()).location

    shown = [
        await signed_in(bare, SECRET),
        await signed_in(bare.replace(f"{USER}@", f"{USER}:{quote(SECRET, safe='')}@"), None),
        await signed_in(f"{bare}&authenticator=oauth", SECRET),
        await signed_in(f"{bare}&private_key_file={file}", SECRET),
    ]
    monkeypatch.setenv("HOME", str(tmp_path))
    shown.append(await signed_in(f"{bare}&private_key_file=~/{file.name}", SECRET))
    with pytest.raises(InvalidSettings, match=f"refused the sign-in of {USER}") as refused:
        await signed_in(bare, f"not {SECRET}")

    assert {each["authenticator"] for each in server.state()["sign_ins"]} >= {"SNOWFLAKE", "OAUTH", "SNOWFLAKE_JWT"}
    everything = "\n".join([*shown, str(refused.value), caplog.text, *map(str, server.statements())])
    assert SECRET not in everything
    assert quote(SECRET, safe="") not in everything


def test_a_location_has_neither_user_nor_secret() -> None:
    store = open_store("snowflake://me:pw@account/db/s?warehouse=w")

    assert store.database.location == "snowflake://account/db/s"  # type: ignore[attr-defined]


# Copying and exporting


async def test_a_store_is_copied_to_snowflake_and_back(snowflake: SnowflakeServer, tmp_path: Path) -> None:
    source, there, back = (
        await furnished(f"sqlite:///{tmp_path}/full.db"),
        snowflake.new_database(),
        f"sqlite:///{tmp_path}/back.db",
    )

    to = await copy_store(source, there, CopyOptions(live=True), Silent())
    again = await copy_store(source, there, CopyOptions(live=True, verify_only=True), Silent())
    fro = await copy_store(there, back, CopyOptions(live=True), Silent())

    assert (list(to.different), list(again.different), list(fro.different)) == ([], [], [])
    assert await dump(back) == as_copied(await dump(source))


async def test_a_full_chunk_of_a_copy_is_not_uploaded_to_a_stage(snowflake: SnowflakeServer, tmp_path: Path) -> None:
    """The role has no privilege to create a stage; to create one would also end the transaction."""
    file = tmp_path / "wide.db"
    async with open_store(f"sqlite:///{file}", create=True) as store:
        await store.pools.create(pool("p", PoolKind.JOBS))
    with sqlite3.connect(file) as jobs:
        rows = [(n, "p", "t", "{}", 1) for n in range(1, 1401)]
        jobs.executemany("INSERT INTO jobs (seq, pool_id, type, payload, created_at) VALUES (?, ?, ?, ?, ?)", rows)
    jobs.close()
    there = snowflake.new_database()
    snowflake.forget()

    copied = await copy_store(f"sqlite:///{file}", there, CopyOptions(), Silent())

    assert list(copied.different) == []
    assert [each.target_rows for each in copied.tables if each.table == "jobs"] == [1400]
    assert [each for each in sent(snowflake) if "STAGE" in each.upper() or "SYSTEM$BIND" in each.upper()] == []


async def test_a_copy_goes_on_with_fewer_rows_after_a_transaction_that_took_too_long(
    snowflake: SnowflakeServer, tmp_path: Path
) -> None:
    file = f"sqlite:///{tmp_path}/jobs.db"
    async with open_store(file, create=True) as store:
        await pushed(store, await store.pools.create(pool("p", PoolKind.JOBS)), *range(9))
    snowflake.fail("INSERT INTO jobs", number=630, sqlstate="57014", message="reached its statement timeout", times=2)
    said = Silent()

    copied = await copy_store(file, snowflake.new_database(), CopyOptions(), said)

    assert list(copied.different) == []
    assert [line for line in said.lines if "too long" in line] == [
        "writing 9 rows of table jobs took too long: writing 4 at a time",
        "writing 4 rows of table jobs took too long: writing 2 at a time",
    ]


async def test_a_copy_of_one_row_that_takes_too_long_is_an_error(snowflake: SnowflakeServer, tmp_path: Path) -> None:
    file = f"sqlite:///{tmp_path}/jobs.db"
    async with open_store(file, create=True) as store:
        await pushed(store, await store.pools.create(pool("p", PoolKind.JOBS)), *range(2))
    snowflake.fail("INSERT INTO jobs", number=630, sqlstate="57014", message="reached its statement timeout", times=-1)

    with pytest.raises(StoreUnavailable, match="reached its statement timeout"):
        await copy_store(file, snowflake.new_database(), CopyOptions(), Silent())


async def test_an_export_goes_on_with_fewer_rows_after_a_transaction_that_took_too_long(
    snowflake: SnowflakeServer, tmp_path: Path
) -> None:
    file, there = f"sqlite:///{tmp_path}/runs.db", snowflake.new_database()
    async with open_store(file, create=True) as store:
        run_id = await ended_run(store)
        await store.events.append(PoolId(run_id), [NewEvent(type="X")] * 4)
        events = [*await store.events.read(PoolId(run_id), 0)]
        snowflake.fail("INSERT INTO events", number=630, sqlstate="57014", message="reached its statement timeout")

        await export_runs(file, there, [run_id], Silent())

    async with open_store(there) as exported:
        assert [*await exported.events.read(PoolId(run_id), 0)] == events


async def test_a_copied_store_gives_no_job_number_twice(snowflake: SnowflakeServer, tmp_path: Path) -> None:
    source, there = await furnished(f"sqlite:///{tmp_path}/full.db"), snowflake.new_database()
    await copy_store(source, there, CopyOptions(live=True), Silent())

    async with open_store(there) as store:
        home = await store.pools.create(new_pool())
        [job] = await pushed(store, home, "new")

        assert (await store.jobs.get(job)).payload == "new"


async def ended_run(store: Store) -> RunId:
    run = await new_run(store)
    home = await store.pools.get(PoolId(run.run_id))
    worker = await joined(store, home)
    await store.membership.beat(heartbeat(worker, sample=sample(1, 10, 20)))
    return (await store.runs.update(run, RunChange(status=RunStatus.CANCELLED, started=True, ended=True))).run_id


async def test_ended_runs_are_exported_while_the_control_plane_stays_on_postgresql(
    snowflake: SnowflakeServer, postgres_url: str
) -> None:
    there = snowflake.new_database()
    async with open_store(postgres_url, create=True) as store:
        run_id, under_way = await ended_run(store), (await new_run(store)).run_id
        run, samples = await store.runs.get(run_id), await store.samples.list(PoolId(run_id))

        first = await export_runs(postgres_url, there, [], Silent())
        second = await export_runs(postgres_url, there, [run_id], Silent())
        with pytest.raises(Refused, match="only a run that has ended can be exported"):
            await export_runs(postgres_url, there, [under_way], Silent())
        with pytest.raises(NotFound, match="there is no run"):
            await export_runs(postgres_url, there, [RunId("none")], Silent())

    async with open_store(there) as exported:
        assert await exported.runs.get(run_id) == run
        assert [*await exported.samples.list(PoolId(run_id))] == [*samples]
        assert [each.run_id for each in await exported.runs.list()] == [run_id]
    assert [(each.run_id, each.rows > 0) for each in first] == [(run_id, True)]
    assert [(each.run_id, each.rows) for each in second] == [(run_id, 0)]


async def test_a_pool_is_kept_when_a_store_is_opened_again(snowflake: SnowflakeServer) -> None:
    url = snowflake.new_database()
    async with open_store(url, create=True) as store:
        made = await store.pools.create(pool("p", PoolKind.JOBS))
    async with open_store(url) as store:
        assert await store.pools.get(PoolId("p")) == made
        assert store.traits.shortest_beat * 12 == MINUTE
