"""PostgreSQL over TLS: load is encrypted, and a server that cannot prove who it is gets none."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from drumbeat.bench.driver.interface import EngineSettings
from drumbeat.bench.driver.records import OK
from drumbeat.bench.model import KeyValue, Statement
from drumbeat.bench.targets.contract import Running, draw, load, operation, seconds
from drumbeat.bench.targets.postgres import PostgresTarget
from drumbeat.core.errors import InvalidSettings
from servers.certificates import can_make_certificates, make_certificate
from servers.places import memory_folder
from servers.postgres import PostgresServer, system_installation

WORK = load(
    operation("ONE", 50, Statement(sql="SELECT $1", values=(KeyValue(low=1, high=9),))),
    operation("WIDE", 50, Statement(sql="SELECT repeat('x', 100000)")),
)
ENCRYPTED = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE ssl AND application_name = 'drumbeat'"


@contextmanager
def tls_server() -> Iterator[PostgresServer]:
    program = system_installation()
    if program is None or not can_make_certificates():
        pytest.skip("there is no PostgreSQL of the system's own packages here, or no openssl to make a certificate with")
    with PostgresServer(settings={"fsync": "off"}, folder=memory_folder(), program=program, tls=True) as server:
        yield server


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with tls_server() as server:
        yield server


@pytest.fixture
def stranger(tmp_path: Path) -> Path:
    """A certificate that has nothing to do with the server's."""
    return make_certificate(tmp_path)


@pytest.mark.parametrize(
    "options", ["sslmode=require", "sslmode=verify-ca&sslrootcert={root}", "sslmode=verify-full&sslrootcert={root}"]
)
async def test_load_is_encrypted(server: PostgresServer, options: str) -> None:
    url = f"{server.url()}?{options.format(root=server.certificate)}"
    async with PostgresTarget(url) as target:
        await target.check(WORK)
        engine = target.engine(WORK, draw(), EngineSettings())
        running = Running(engine, seconds(30))
        await engine.open()
        try:
            engine.set_target(4)
            engine.accept(True)
            await running.until(lambda: engine.open_connections == 4)
            await running.recorded(200)
            encrypted = await target.fetch(ENCRYPTED)
            records = await running.drained()
        finally:
            await engine.close()

    assert encrypted == [(4,)]
    assert set(records["outcome"].tolist()) == {OK}
    assert set(records["rows"].tolist()) == {1}


@pytest.mark.parametrize("mode", ["require", "verify-ca", "verify-full"])
async def test_a_server_that_another_root_does_not_vouch_for_is_refused_before_load(
    server: PostgresServer, stranger: Path, mode: str
) -> None:
    target = PostgresTarget(f"{server.url()}?sslmode={mode}&sslrootcert={stranger}")
    engine = target.engine(WORK, draw(), EngineSettings())

    for attempt in (target.__aenter__(), target.check(WORK), engine.open()):
        with pytest.raises(InvalidSettings, match=r"do not verify.*sslrootcert"):
            await attempt
    await engine.close()


async def test_a_certificate_for_another_name_is_refused_by_verify_full_alone() -> None:
    with tls_server() as server:
        make_certificate(server.folder, names="DNS:elsewhere")
        server.restart()
        url = f"{server.url()}?sslrootcert={server.certificate}&sslmode="

        async with PostgresTarget(f"{url}verify-ca") as target:
            await target.check(WORK)
        with pytest.raises(InvalidSettings, match=r"127\.0\.0\.1"):
            await PostgresTarget(f"{url}verify-full").check(WORK)


async def test_a_root_that_is_not_there_is_said(server: PostgresServer, tmp_path: Path) -> None:
    target = PostgresTarget(f"{server.url()}?sslmode=verify-full&sslrootcert={tmp_path / 'none.pem'}")

    with pytest.raises(InvalidSettings, match="sslrootcert"):
        await target.__aenter__()
    with pytest.raises(InvalidSettings, match="sslrootcert"):
        await target.engine(WORK, draw(), EngineSettings()).open()


async def test_a_server_without_tls_is_refused_where_it_was_required(postgres_url: str) -> None:
    target = PostgresTarget(f"{postgres_url}?sslmode=require")

    for attempt in (target.__aenter__(), target.engine(WORK, draw(), EngineSettings()).open()):
        with pytest.raises(InvalidSettings, match=r"TLS|SSL"):
            await attempt
