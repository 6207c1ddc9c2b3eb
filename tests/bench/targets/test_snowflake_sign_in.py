"""Signing in at Snowflake: by password, key pair, OAuth and access token, also from a stored connection. No secret is shown."""

import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from drumbeat.bench.driver.interface import EngineSettings
from drumbeat.bench.targets.connections import ConnectionService
from drumbeat.bench.targets.contract import LOOKUPS, draw
from drumbeat.bench.targets.open import open_target
from drumbeat.bench.targets.snowflake import SnowflakeTarget
from drumbeat.bench.targets.snowflake_address import address_of, private_key
from drumbeat.bench.targets.vault import Key, Vault
from drumbeat.core.errors import InvalidSettings
from drumbeat.store.memory import MemoryStore
from servers.snowflake import PASSWORD, USER, SnowflakeServer

WHERE = "snowflake://ANNA@acme-eu1/SALES/BENCH?warehouse=LOAD_WH"
TOKEN = "tok-4711-secret"
PHRASE = "open sesame 4711"


@pytest.fixture(scope="module")
def key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def pem(key: rsa.RSAPrivateKey, encryption: KeySerializationEncryption | None = None) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption or NoEncryption()).decode()


def public(key: rsa.RSAPrivateKey) -> str:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


@pytest.fixture
def stored(snowflake: SnowflakeServer, store: MemoryStore) -> Callable[..., Any]:
    """A function that opens a target through a stored connection with this secret and these options."""
    service = ConnectionService(store, Vault([Key(b"k" * 32)]))

    async def opened(name: str, secret: str | None, options: str = "") -> Any:
        url = snowflake.url("SIGN_IN", password=None) + options
        await service.add(name, url, secret)
        async with service.open({"connection": name}) as target:
            return (await target.fetch("SELECT CURRENT_USER()"))[0][0]

    return opened


class TestStoredConnection:
    async def test_by_password(self, snowflake: SnowflakeServer, stored: Callable[..., Any]) -> None:
        snowflake.add_user(USER, password=PASSWORD)

        assert await stored("plain", PASSWORD) == USER
        assert snowflake.state()["sign_ins"][-1]["authenticator"] == "SNOWFLAKE"

    async def test_by_key_pair_with_the_key_as_the_secret(
        self, snowflake: SnowflakeServer, stored: Callable[..., Any], key: rsa.RSAPrivateKey
    ) -> None:
        snowflake.add_user(USER, public_key=public(key))

        assert await stored("keyed", pem(key)) == USER
        assert snowflake.state()["sign_ins"][-1]["authenticator"] == "SNOWFLAKE_JWT"

    @pytest.mark.parametrize("line_break", [" ", "\\n"])
    def test_a_key_may_be_given_in_one_line(self, key: rsa.RSAPrivateKey, line_break: str) -> None:
        assert private_key(pem(key).replace("\n", line_break), "here") == private_key(pem(key), "here")

    async def test_by_key_pair_with_a_file_and_its_pass_phrase(
        self, snowflake: SnowflakeServer, stored: Callable[..., Any], key: rsa.RSAPrivateKey, tmp_path: Path
    ) -> None:
        snowflake.add_user(USER, public_key=public(key))
        file = tmp_path / "key.p8"
        file.write_text(pem(key, BestAvailableEncryption(PHRASE.encode())))
        file.chmod(0o600)

        assert await stored("filed", PHRASE, f"&private_key_file={file}") == USER

    async def test_by_oauth(self, snowflake: SnowflakeServer, stored: Callable[..., Any]) -> None:
        snowflake.add_user(USER, oauth_token=TOKEN)

        assert await stored("token", TOKEN, "&authenticator=oauth") == USER
        assert snowflake.state()["sign_ins"][-1]["authenticator"] == "OAUTH"

    async def test_by_a_programmatic_access_token(self, snowflake: SnowflakeServer, stored: Callable[..., Any]) -> None:
        snowflake.add_user(USER, oauth_token=TOKEN)

        assert await stored("pat", TOKEN, "&authenticator=token") == USER


class TestRefused:
    @pytest.mark.parametrize("options", ["", "&authenticator=oauth", "&authenticator=token"])
    async def test_a_wrong_secret_is_refused_and_never_shown(
        self, snowflake: SnowflakeServer, options: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        snowflake.add_user(USER, password=PASSWORD, oauth_token="right")
        url = snowflake.url("SIGN_IN", password="hunter2-4711") + options
        caplog.set_level(logging.DEBUG)

        with pytest.raises(InvalidSettings, match=f"refused user '{USER}'") as caught:
            await SnowflakeTarget(url).__aenter__()
        with pytest.raises(InvalidSettings, match="refused user"):
            await SnowflakeTarget(url).engine(LOOKUPS, draw(), EngineSettings()).open()

        assert "hunter2-4711" not in "".join(traceback.format_exception(caught.value)) + caplog.text

    async def test_a_wrong_key_is_refused_and_never_shown(self, snowflake: SnowflakeServer, key: rsa.RSAPrivateKey) -> None:
        other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        snowflake.add_user(USER, public_key=public(key))

        with pytest.raises(InvalidSettings, match="refused user") as caught:
            await SnowflakeTarget(snowflake.url("SIGN_IN", password=pem(other))).__aenter__()

        said = "".join(traceback.format_exception(caught.value))
        assert not any(line in said for line in pem(other).splitlines()[1:-1])

    async def test_a_secret_that_is_no_key_is_refused_and_never_shown(self, snowflake: SnowflakeServer) -> None:
        url = snowflake.url("SIGN_IN", password="hunter2-4711") + "&authenticator=key_pair"

        with pytest.raises(InvalidSettings, match="expected an unencrypted private key") as caught:
            await SnowflakeTarget(url).__aenter__()

        assert "hunter2-4711" not in "".join(traceback.format_exception(caught.value))

    async def test_a_server_that_is_not_there_is_refused(self) -> None:
        url = "snowflake://ANNA:x@acme/SALES?host=127.0.0.1&port=1&protocol=http"

        with pytest.raises(InvalidSettings, match="can Snowflake be reached"):
            await SnowflakeTarget(url).__aenter__()


class TestAddress:
    def test_a_url_names_everything(self) -> None:
        found = address_of(WHERE + "&role=LOADER&monitor_warehouse=TINY&tables=hybrid", {})

        assert (found.account, found.user, found.database, found.schema) == ("acme-eu1", "ANNA", "SALES", "BENCH")
        assert (found.warehouse, found.monitor_warehouse, found.role) == ("LOAD_WH", "TINY", "LOADER")
        assert (found.tables, found.authenticator) == ("hybrid", "password")

    @pytest.mark.parametrize(
        ("name", "sent"), [("LOAD_WH", "LOAD_WH"), ("load_wh", "load_wh"), ("load-wh", '"load-wh"'), ('"load_wh"', '"load_wh"')]
    )
    def test_a_warehouse_or_role_whose_name_needs_quotes_is_sent_with_them(self, name: str, sent: str) -> None:
        options = address_of(f"snowflake://ANNA@acme/SALES?warehouse={name}&role={name}", {}).connect_options()

        assert (options["warehouse"], options["role"]) == (sent, sent)

    def test_the_environment_of_the_connector_fills_what_is_missing(self) -> None:
        environment = {
            "SNOWFLAKE_ACCOUNT": "acme-eu1",
            "SNOWFLAKE_USER": "ANNA",
            "SNOWFLAKE_PASSWORD": "secret-4711",
            "SNOWFLAKE_WAREHOUSE": "LOAD_WH",
            "SNOWFLAKE_DATABASE": "UNISTORE_BENCHMARK",
            "SNOWFLAKE_SCHEMA": "TEST_RESULTS",
            "SNOWFLAKE_ROLE": "LOADER",
        }

        found = address_of("snowflake:", environment)

        assert found.location == "snowflake://acme-eu1/UNISTORE_BENCHMARK/TEST_RESULTS"
        assert (found.user, found.warehouse, found.role, found.secret) == ("ANNA", "LOAD_WH", "LOADER", "secret-4711")

    def test_a_key_in_the_environment_means_key_pair(self) -> None:
        found = address_of(WHERE, {"SNOWFLAKE_PRIVATE_KEY_PATH": "/keys/rsa.p8", "SNOWFLAKE_PRIVATE_KEY_PASSPHRASE": PHRASE})

        assert (found.authenticator, str(found.private_key_file), found.secret) == ("key_pair", "/keys/rsa.p8", PHRASE)

    @pytest.mark.parametrize(
        ("password", "options", "environment", "signs_in"),
        [
            ("own", "", {}, {"password": "own"}),
            ("own", "&authenticator=oauth", {}, {"token": "own"}),
            ("own", "&private_key_file=/keys/own.p8", {}, {"private_key_file": "/keys/own.p8", "private_key_password": "own"}),
            ("", "", {"DRUMBEAT_TARGET_PASSWORD": "own"}, {"password": "own"}),
            (
                "",
                "&private_key_file=/keys/own.p8",
                {"DRUMBEAT_TARGET_PASSWORD": "own"},
                {"private_key_file": "/keys/own.p8", "private_key_password": "own"},
            ),
            ("", "", {}, {"private_key_file": "/keys/rsa.p8", "private_key_password": PHRASE}),
            ("", "&private_key_file=/keys/own.p8", {}, {"private_key_file": "/keys/own.p8", "private_key_password": PHRASE}),
            ("", "&authenticator=password", {}, {"password": "other"}),
        ],
    )
    def test_a_key_in_the_environment_does_not_replace_the_connections_own_secret(
        self, password: str, options: str, environment: dict[str, str], signs_in: dict[str, str]
    ) -> None:
        """``password``: of the URL, which is where a stored connection's secret is put."""
        of_others = {
            "SNOWFLAKE_PRIVATE_KEY_PATH": "/keys/rsa.p8",
            "SNOWFLAKE_PRIVATE_KEY_PASSPHRASE": PHRASE,
            "SNOWFLAKE_PASSWORD": "other",
        }
        url = WHERE.replace("ANNA", f"ANNA:{password}" if password else "ANNA") + options

        given = address_of(url, of_others | environment).connect_options()

        secrets = ("password", "token", "private_key", "private_key_file", "private_key_password")
        assert {name: given[name] for name in secrets if name in given} == signs_in

    def test_a_connections_own_key_is_used_also_if_the_environment_has_another(self, key: rsa.RSAPrivateKey) -> None:
        url = WHERE.replace("ANNA", f"ANNA:{quote(pem(key), safe='')}") + "&authenticator=key_pair"

        given = address_of(url, {"SNOWFLAKE_PRIVATE_KEY_PATH": "/keys/rsa.p8"}).connect_options()

        assert given["private_key"] == private_key(pem(key), "here")
        assert "private_key_file" not in given

    def test_a_secret_is_in_no_text_of_an_address(self) -> None:
        found = address_of(WHERE.replace("ANNA@", "ANNA:secret-4711@"), {})

        assert "secret-4711" not in repr(found) + found.location
        assert found.connect_options()["password"] == "secret-4711"

    @pytest.mark.parametrize(
        ("url", "reason"),
        [
            ("snowflake://acme/SALES", "got no USER"),
            ("snowflake://ANNA@/SALES", "got no ACCOUNT"),
            ("snowflake://ANNA@acme", "got no DATABASE"),
            ("snowflake://ANNA@acme/a/b/c", "more than a database and a schema"),
            (WHERE + "&wharehouse=x", "unknown option 'wharehouse'"),
            (WHERE + "&authenticator=guess", "expected the option authenticator"),
            (WHERE + "&tables=paper", "expected the option tables"),
            (WHERE + "&host=example.com&protocol=http", "without encryption"),
            (WHERE + "&port=99999", "expected a port"),
            ("snowflake://ANNA:4711#x@acme/SALES", "no valid account"),
            (WHERE + "&private_key_file=~nobody.here/k.p8", "got ~nobody.here/k.p8: there is no user"),
        ],
    )
    def test_a_url_that_cannot_be_used_is_refused_with_the_reason(
        self, url: str, reason: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("ACCOUNT", "USER", "DATABASE"):
            monkeypatch.delenv(f"SNOWFLAKE_{name}", raising=False)

        with pytest.raises(InvalidSettings, match=reason) as caught:
            open_target(url)

        assert "4711" not in str(caught.value)
