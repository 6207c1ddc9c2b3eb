"""The PgBouncer that tests run on pools transactions, and says so when it cannot be had."""

import shutil
from pathlib import Path

import asyncpg
import pytest

from servers import debian, pgbouncer as pgbouncer_module
from servers.pgbouncer import PgBouncer, Unavailable


async def test_two_clients_share_one_backend(pgbouncer: PgBouncer, postgres_url: str) -> None:
    url = pgbouncer.url(postgres_url)
    ann = await asyncpg.connect(url, statement_cache_size=0)
    bob = await asyncpg.connect(url, statement_cache_size=0)

    assert await ann.fetchval("SELECT current_database()") == postgres_url.rpartition("/")[2]
    assert await ann.fetchval("SELECT pg_backend_pid()") == await bob.fetchval("SELECT pg_backend_pid()")

    await ann.close()
    await bob.close()


async def test_a_client_in_a_transaction_keeps_its_backend(pgbouncer: PgBouncer, postgres_url: str) -> None:
    ann = await asyncpg.connect(pgbouncer.url(postgres_url), statement_cache_size=0)
    bob = await asyncpg.connect(pgbouncer.url(postgres_url), statement_cache_size=0)

    async with ann.transaction():
        assert await ann.fetchval("SELECT pg_backend_pid()") != await bob.fetchval("SELECT pg_backend_pid()")

    await ann.close()
    await bob.close()


def test_where_there_is_no_pgbouncer_and_no_apt_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(debian, "CACHE", tmp_path)
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)

    with pytest.raises(Unavailable, match="no apt-get"):
        pgbouncer_module.installation.__wrapped__()


def test_a_download_that_fails_says_so_and_leaves_no_half(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(debian, "CACHE", tmp_path)
    monkeypatch.setattr(shutil, "which", lambda program, **_: None if program == "pgbouncer" else f"/usr/bin/{program}")
    monkeypatch.setattr(debian, "apt", lambda *_: False)

    with pytest.raises(Unavailable, match="apt-get download pgbouncer failed"):
        pgbouncer_module.installation.__wrapped__()
    assert list(tmp_path.iterdir()) == []
