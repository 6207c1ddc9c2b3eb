"""The SPCS spawner keeps the contract, by Snowflake's own connector, against a simulated account that runs real processes."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from drumbeat.spawn.contract import ANN, POOL, Controllers, PoolListContract, SurvivorContract, programs
from drumbeat.spawn.interface import Order, Spawner
from drumbeat.spawn.spcs import SpcsSpawner
from spawn.spcs.account import SpcsAccount
from spawn.spcs.conftest import PASSWORD, P, order as order_w, settings_of
from spawn.spcs.faults import Loses
from spawn.spcs.server import AccountServer, served


@pytest.mark.soak
class TestSpcsSpawner(SurvivorContract, PoolListContract):
    @pytest.fixture
    def server(self, account: SpcsAccount, monkeypatch: pytest.MonkeyPatch) -> Iterator[AccountServer]:
        monkeypatch.setenv("SNOWFLAKE_PASSWORD", PASSWORD)
        with served(account) as server:
            yield server
        assert server.tags == {"drumbeat spcs"}

    @pytest.fixture
    def controllers(self, server: AccountServer) -> Controllers:
        settings = settings_of(host="127.0.0.1", port=server.server_address[1], protocol="http")
        return lambda: SpcsSpawner(settings, {"DRUMBEAT_STORE": "postgresql://ann:of-the-controller@db/app"}, "s")

    @pytest.fixture
    def written(self, tmp_path: Path) -> Sequence[Path]:
        return [tmp_path]

    def unstartable(self, order: Order) -> Order:
        """Snowflake accepts any command, but no variable with a dash in its name."""
        return replace(order, environment={"not-a-variable": "1"})

    async def test_a_drained_worker_finishes_its_work_though_its_log_is_gone(
        self, spawner: Spawner, account: SpcsAccount
    ) -> None:
        assert not spawner.traits.keeps_drained
        await self.running(spawner, self.order_of(programs.FINISHES))
        [service] = account.services.values()

        await spawner.drain(POOL, ANN)
        await self.until_ended(spawner)

        assert account.log_of(service).read_text().splitlines() == ["ready", "finishing", "finished"]

    @pytest.mark.parametrize("done", [False, True])
    async def test_an_answer_lost_on_a_real_socket_starts_one_worker(
        self, spawner: Spawner, account: SpcsAccount, done: bool
    ) -> None:
        account.faults.append(Loses(operation="connection", done=done))

        instance = await spawner.spawn(replace(order_w(), is_first=True))

        assert [one.ref for one in await spawner.list(P)] == [instance.ref]
        assert len(account.asked("EXECUTE JOB SERVICE")) == 1
        await spawner.terminate(P, instance.worker_id)
