"""Stored connections: passwords are sealed for one name and one URL, and what they mean is found at run time."""

import base64
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from drumbeat.bench.control.create import with_connection
from drumbeat.bench.targets.connections import ConnectionService
from drumbeat.bench.targets.vault import KEY_VARIABLE, Key, Vault, open_vault
from drumbeat.bench.templates import parse
from drumbeat.core.connection import LONGEST_PASSWORD, LONGEST_URL, EncryptedSecret
from drumbeat.core.errors import AlreadyExists, InvalidInput, InvalidSettings, NotFound
from drumbeat.store import Store, open_store
from servers.postgres import PostgresServer

URL = "postgresql://bench@db.example/load"
PASSWORD = "correct horse: battery/staple@?#"
KEYS = [Key(bytes([n]) * 32) for n in (1, 2)]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with open_store(f"sqlite:///{tmp_path}/drumbeat.db", create=True) as store:
        yield store


@pytest.fixture
def service(store: Store) -> ConnectionService:
    return ConnectionService(store, Vault(KEYS[:1]))


class TestVault:
    def test_what_was_sealed_opens_with_its_key_and_for_what_it_was_sealed(self) -> None:
        vault = Vault(KEYS[:1])
        sealed = vault.seal(PASSWORD, "a")

        assert vault.open(sealed, "a") == PASSWORD
        assert PASSWORD not in repr(sealed) + sealed.text
        with pytest.raises(InvalidInput, match="moved"):
            vault.open(sealed, "b")

    def test_a_seal_is_never_the_same_twice(self) -> None:
        vault = Vault(KEYS[:1])

        assert vault.seal(PASSWORD, "a").text != vault.seal(PASSWORD, "a").text

    def test_the_first_key_seals_and_every_key_opens(self) -> None:
        old = Vault(KEYS[:1]).seal(PASSWORD, "a")
        both = Vault([KEYS[1], KEYS[0]])

        assert both.open(old, "a") == PASSWORD
        assert both.seal(PASSWORD, "a").key_id == KEYS[1].key_id
        assert both.is_current(both.seal(PASSWORD, "a"))
        assert not both.is_current(old)

    def test_without_the_key_nothing_opens_and_nothing_is_sealed(self) -> None:
        sealed = Vault(KEYS[:1]).seal(PASSWORD, "a")

        with pytest.raises(InvalidSettings, match=f"{KEYS[0].key_id}.*got {KEYS[1].key_id}"):
            Vault(KEYS[1:]).open(sealed, "a")
        with pytest.raises(InvalidSettings, match="openssl"):
            Vault().seal(PASSWORD, "a")

    @pytest.mark.parametrize("text", ["", "AAAA", "not base64!", base64.b64encode(bytes(40)).decode()])
    def test_a_spoiled_seal_is_refused(self, text: str) -> None:
        with pytest.raises(InvalidInput, match="changed"):
            Vault(KEYS[:1]).open(EncryptedSecret(key_id=KEYS[0].key_id, text=text), "a")

    def test_keys_come_from_the_environment(self) -> None:
        texts = [base64.b64encode(key.secret).decode() for key in KEYS]
        vault = open_vault({KEY_VARIABLE: f" {texts[1]}, {texts[0]}"})

        assert vault.seal("x", "a").key_id == KEYS[1].key_id
        assert not open_vault({}).is_open
        assert not open_vault({KEY_VARIABLE: " , "}).is_open

    @pytest.mark.parametrize("text", ["short", "x" * 44, base64.b64encode(bytes(16)).decode(), "ü" * 44])
    def test_what_is_no_key_is_refused_and_not_shown(self, text: str) -> None:
        with pytest.raises(InvalidSettings, match="key 1 of DRUMBEAT_KEY") as caught:
            open_vault({KEY_VARIABLE: text})

        assert text not in str(caught.value)

    def test_a_key_does_not_show_itself(self) -> None:
        assert "1" * 3 not in repr(KEYS[0])
        assert KEYS[0].secret.hex()[:12] != KEYS[0].key_id

    def test_a_fingerprint_is_the_keys_own(self) -> None:
        one, other = Vault(KEYS[:1]), Vault(KEYS[1:])

        assert one.fingerprint(b"x") == one.fingerprint(b"x") != one.fingerprint(b"y")
        assert len({vault.fingerprint(b"x") for vault in (one, other, Vault())}) == 3


class TestDesk:
    async def test_a_password_is_in_no_byte_of_the_store(
        self, service: ConnectionService, store: Store, tmp_path: Path
    ) -> None:
        await service.add("orders", URL, PASSWORD)

        written = b"".join(path.read_bytes() for path in tmp_path.iterdir())
        assert b"orders" in written
        assert PASSWORD.encode() not in written
        assert b"battery" not in written

    @pytest.mark.parametrize(
        ("name", "url", "password", "says"),
        [
            ("", URL, None, "^name: "),
            ("a b", URL, None, "^name: "),
            ("-a", URL, None, "^name: "),
            ("a" * 101, URL, None, "^name: "),
            ("a", "postgresql://u:secret@h/d", None, "^url: holds a password"),
            ("a", "postgresql://u@h/d?password=secret", None, "^url: holds a password"),
            ("a", "ftp://h/d", None, "database under test, got 'ftp:'"),
            ("a", "postgresql://[/d", None, "^url: holds a password"),
            ("a", "postgresql://u@h/ü", None, "^url: expected printable ASCII"),
            ("a", f"sqlite:///{'x' * LONGEST_URL}", None, "^url: expected at most"),
            ("a", "sqlite:///x.db", "secret", "^password: expected no password"),
            ("a", "postgresql://h/d", "secret", "^password: expected no password"),
            ("a", URL, "s" * (LONGEST_PASSWORD + 1), "^password: expected at most"),
        ],
    )
    async def test_what_cannot_be_a_connection_is_refused(
        self, service: ConnectionService, store: Store, name: str, url: str, password: str | None, says: str
    ) -> None:
        with pytest.raises(InvalidInput, match=says) as caught:
            await service.add(name, url, password)

        assert "secret" not in str(caught.value)
        assert await store.connections.list() == []

    async def test_a_name_is_taken_once(self, service: ConnectionService) -> None:
        await service.add("orders", URL)

        with pytest.raises(AlreadyExists, match="orders"):
            await service.add("orders", URL)

    async def test_a_password_stays_with_its_url_only(self, service: ConnectionService) -> None:
        made = await service.add("orders", URL, PASSWORD, "the orders")

        assert (await service.change("orders", description="new words")).secret == made.secret
        with pytest.raises(InvalidInput, match=r"^password: expected the password again"):
            await service.change("orders", url="postgresql://bench@evil.example/load")
        moved = await service.change("orders", url="postgresql://bench@other.example/load", password="another")
        assert moved.secret is not None
        assert (moved.url, moved.description) == ("postgresql://bench@other.example/load", "new words")
        assert (await service.change("orders", password="", description="")).secret is None

    async def test_a_row_whose_url_was_changed_in_the_store_does_not_give_its_password_away(
        self, service: ConnectionService, store: Store
    ) -> None:
        made = await service.add("orders", URL, PASSWORD)
        await store.connections.save(replace(made, url="postgresql://bench@evil.example/load"))

        told = await service.test("orders")

        assert not told.ok
        assert "moved to another URL" in (told.detail or "")

    async def test_resealing_leaves_nothing_under_the_old_key(self, service: ConnectionService, store: Store) -> None:
        await service.add("orders", URL, PASSWORD)
        await service.add("open", URL)
        both = ConnectionService(store, Vault([KEYS[1], KEYS[0]]))

        assert await both.reseal() == ["orders"]
        assert await both.reseal() == []
        kept = (await store.connections.get("orders")).secret
        assert kept is not None
        assert kept.key_id == KEYS[1].key_id

    async def test_a_file_that_is_there_answers_and_tells_its_tables(self, service: ConnectionService, tmp_path: Path) -> None:
        await service.add("file", f"sqlite:///{tmp_path}/drumbeat.db")

        assert (await service.test("file")).ok
        assert "connections" in [each.name for each in await service.tables("file")]
        assert [each.name for each in (await service.table("file", "connections")).columns][:2] == ["name", "url"]
        with pytest.raises(InvalidInput, match="nowhere"):
            await service.table("file", "nowhere")

    async def test_one_that_is_not_there_says_so(self, service: ConnectionService, tmp_path: Path) -> None:
        await service.add("gone", f"sqlite:///{tmp_path}/gone.db")

        told = await service.test("gone")

        assert not told.ok
        assert "gone.db" in (told.detail or "")
        with pytest.raises(NotFound):
            await service.test("unknown")


class TestMeaning:
    async def test_a_template_gets_the_url_its_connection_has(self, service: ConnectionService) -> None:
        await service.add("orders", URL, PASSWORD)
        document = parse({"target": {"connection": "orders"}})

        settled = await with_connection(document, service)

        assert (settled.target.url, settled.target.connection) == (URL, "orders")
        assert settled.to_json()["target"]["url"] == URL

    async def test_a_template_with_a_url_stays_as_it_is(self, service: ConnectionService) -> None:
        document = parse({"target": {"url": URL}})

        assert await with_connection(document, service) == document

    async def test_both_a_url_and_a_connection_are_one_too_many(self, service: ConnectionService) -> None:
        with pytest.raises(InvalidInput, match=r"^target: expected either url or connection"):
            await with_connection(parse({"target": {"connection": "orders", "url": URL}}), service)

    async def test_an_unknown_connection_is_told(self, service: ConnectionService) -> None:
        with pytest.raises(NotFound, match="orders"):
            await with_connection(parse({"target": {"connection": "orders"}}), service)

    async def test_a_run_does_not_go_on_where_its_connection_leads_elsewhere(self, service: ConnectionService) -> None:
        await service.add("orders", URL)

        with pytest.raises(InvalidInput, match=r"the URL of connection .* changed"):
            async with service.open({"connection": "orders", "url": "postgresql://bench@old.example/load"}):
                pass


async def test_a_database_that_asks_for_a_password_lets_the_connection_in(
    store: Store, postgres: PostgresServer, postgres_url: str
) -> None:
    database = postgres_url.rpartition("/")[2]
    postgres.add_password_user(f"sealed_{database}", PASSWORD)
    service, url = ConnectionService(store, Vault(KEYS[:1])), postgres.url(database, f"sealed_{database}")
    await service.add("right", url, PASSWORD)
    await service.add("wrong", url, "nonsense-nonsense")

    right, wrong = await service.test("right"), await service.test("wrong")

    assert right.ok, right.detail
    assert await service.tables("right") == []
    assert not wrong.ok
    assert PASSWORD not in str(right)
    assert "nonsense" not in str(wrong)
    postgres.sql(f"DROP ROLE sealed_{database}")
