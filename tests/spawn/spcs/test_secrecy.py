"""No secret is in a statement, a comment, a log, an error or the settings' text; and all of them arrive."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from drumbeat.core.errors import SpawnCause, SpawnError, SpawnFailed
from drumbeat.core.pool_settings import PoolSettings
from drumbeat.core.retention import read_retention
from drumbeat.settings import Settings
from drumbeat.spawn.interface import InstanceState
from drumbeat.spawn.spcs import SpcsSpawner
from drumbeat.spawn.spcs.session import credentials
from spawn.spcs.account import SpcsAccount
from spawn.spcs.conftest import KEY, PASSWORD, SECRETS, LeapingClock, P, W, order, settings_of, spawner_at, until
from spawn.spcs.connector import connect_to
from spawn.spcs.faults import Answers, Loses

SECRET = "s3cret of the worker"
SHOWS = 'echo "store $DRUMBEAT_STORE" "token $API_TOKEN" "public $DRUMBEAT_RETENTION"; env | grep -c DRUMBEAT_TASK; echo ready'


async def test_no_secret_is_in_a_statement_a_log_or_an_error_and_all_arrive(
    account: SpcsAccount, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    errors: list[str] = []
    async with spawner_at(account) as spawner:
        await spawner.spawn(order(program=SHOWS, API_TOKEN=SECRET, DRUMBEAT_RETENTION="30 days"))
        await until(spawner, InstanceState.EXITED)
        said = await spawner.logs(P, W)
    for faults in (
        [Loses(operation="EXECUTE JOB SERVICE", times=3, done=False), Loses(operation="SHOW JOB SERVICES", times=9)],
        [Answers(operation="EXECUTE JOB SERVICE", errno=1003, message="syntax error")],
        [Answers(operation="sign in", errno=390100, message="Incorrect username or password was specified.")],
    ):
        account.faults[:] = faults
        async with spawner_at(account, LeapingClock()) as spawner:
            with pytest.raises(SpawnError) as failed:
                await spawner.spawn(replace(order("x", API_TOKEN=SECRET), is_first=True))
        errors += [str(failed.value), repr(failed.value.__cause__)]

    assert said.splitlines() == ["store postgresql://ann@db/app token s3cret of the worker public 30 days", "0", "ready"]
    told = "\n".join([*account.statements, caplog.text, *errors, repr(spawner._settings), repr(spawner)])
    assert account.asked("EXECUTE JOB SERVICE") != []
    for secret in (SECRET, KEY, PASSWORD, "of-the-controller", "postgresql://ann"):
        assert secret not in told


async def test_two_starts_are_encrypted_differently(account: SpcsAccount) -> None:
    async with spawner_at(account) as spawner:
        for each in ("a", "b"):
            await spawner.spawn(order(each, API_TOKEN=SECRET))
        tasks = {line for text in account.statements for line in text.splitlines() if 'DRUMBEAT_TASK"' in line}
        for one in await spawner.list(P):
            await spawner.terminate(P, one.worker_id)

    assert len(tasks) == 2


async def test_a_wrong_key_at_snowflake_ends_the_worker_with_that_reason(account: SpcsAccount) -> None:
    account.secrets['WORK."Jobs".WORKER_KEY'] = "another key than here"
    async with spawner_at(account) as spawner:
        await spawner.spawn(order(API_TOKEN=SECRET))
        ended = await until(spawner, InstanceState.EXITED)

        assert ended.exit_code == 1
        assert "expected the same key in key_secret as in key_variable" in await spawner.logs(P, W)


@pytest.mark.parametrize(("key", "got"), [("", "none"), ("short", "a shorter one")])
async def test_a_key_that_is_not_there_or_short_is_refused(
    account: SpcsAccount, monkeypatch: pytest.MonkeyPatch, key: str, got: str
) -> None:
    monkeypatch.setenv("DRUMBEAT_SPCS_KEY", key)
    async with spawner_at(account) as spawner:
        with pytest.raises(SpawnFailed, match=f"at least 16 characters .*DRUMBEAT_SPCS_KEY, got {got}") as failed:
            await spawner.spawn(order(API_TOKEN=SECRET))

    assert failed.value.cause is SpawnCause.AUTH
    assert account.statements == []


async def test_a_variable_that_may_be_a_secret_has_no_way_without_a_key(account: SpcsAccount) -> None:
    async with spawner_at(account, key_variable="", key_secret="", public=("MODE",)) as spawner:
        with pytest.raises(SpawnFailed, match=r"expected API_TOKEN, OTHER in secrets, .*or in public, .*or a key in") as failed:
            await spawner.spawn(order(API_TOKEN=SECRET, OTHER="x", MODE="fast"))
        assert account.statements == []
        await spawner.spawn(order(program="echo $MODE", MODE="fast"))
        await until(spawner, InstanceState.EXITED)

        assert await spawner.logs(P, W) == "fast\n"
    assert failed.value.cause is SpawnCause.BAD_REQUEST
    assert SECRET not in str(failed.value)


async def test_settings_without_secrets_need_no_key(account: SpcsAccount) -> None:
    pool = PoolSettings(middleware=("app:Audit",), large="s3://bucket/jobs", max_inline=2048, log_format="json")
    shared = Settings(store="postgresql://ann@db/app", retention=read_retention("jobs=30d"), pool=pool).for_children()
    async with SpcsSpawner(
        settings_of(key_variable="", key_secret=""), shared, "s", connect=connect_to(account, SECRETS)
    ) as spawner:
        await spawner.spawn(
            order(program="echo $DRUMBEAT_MIDDLEWARE $DRUMBEAT_LARGE $DRUMBEAT_MAX_INLINE $DRUMBEAT_LOG_FORMAT")
        )
        await until(spawner, InstanceState.EXITED)

        assert await spawner.logs(P, W) == "app:Audit s3://bucket/jobs 2048B json\n"


async def test_the_stores_url_is_not_sent_without_a_safe_way(account: SpcsAccount) -> None:
    settings = settings_of(secrets={}, key_variable="", key_secret="")
    store = {"DRUMBEAT_STORE": "postgresql://ann:password@db/app"}
    async with SpcsSpawner(settings, store, "s", connect=connect_to(account, SECRETS)) as spawner:
        with pytest.raises(SpawnFailed, match="expected DRUMBEAT_STORE in secrets"):
            await spawner.spawn(order())

    assert account.statements == []


class TestSignIn:
    def test_a_password_comes_from_its_variable(self) -> None:
        assert credentials(settings_of(), SECRETS) == {"password": PASSWORD}

    def test_a_key_pair_comes_from_its_file(self, tmp_path: Path) -> None:
        file = tmp_path / "key.p8"
        file.write_text("PEM")
        settings = settings_of(password_variable="", private_key_file=file, private_key_password_variable="KEY_PASSWORD")

        assert credentials(settings, {"KEY_PASSWORD": "x"}) == {
            "authenticator": "SNOWFLAKE_JWT",
            "private_key_file": str(file),
            "private_key_file_pwd": "x",
        }

    def test_a_token_comes_from_its_variable_or_file(self, tmp_path: Path) -> None:
        file = tmp_path / "token"
        file.write_text("t1\n")
        by_file = settings_of(password_variable="", user="", token_file=file)
        by_variable = settings_of(password_variable="", token_variable="TOKEN", authenticator="PROGRAMMATIC_ACCESS_TOKEN")

        assert credentials(by_file, {}) == {"authenticator": "oauth", "token": "t1"}
        file.write_text("t2")
        assert credentials(by_file, {})["token"] == "t2", "it is read again"
        assert credentials(by_variable, {"TOKEN": "t"}) == {"authenticator": "PROGRAMMATIC_ACCESS_TOKEN", "token": "t"}

    async def test_a_secret_that_is_not_there_is_named(self, account: SpcsAccount, tmp_path: Path) -> None:
        for changed, said in (
            ({}, "expected a secret in the environment variable SNOWFLAKE_PASSWORD, got none"),
            ({"password_variable": "", "token_file": tmp_path / "none"}, "cannot read the token in .*none: No such file"),
        ):
            spawner = SpcsSpawner(settings_of(**changed), {}, "s", connect=connect_to(account, {}))
            async with spawner:
                with pytest.raises(SpawnError, match=said) as failed:
                    await spawner.list(P)
            assert failed.value.cause is SpawnCause.AUTH
