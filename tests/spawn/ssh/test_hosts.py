"""Several hosts: which one is chosen, and what happens when one is down."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from drumbeat.core.errors import NotFound, SpawnAmbiguous, SpawnCause, SpawnFailed, Unanswered
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.spawn.contract import alive
from drumbeat.spawn.contract.process_setup import new_mark
from drumbeat.spawn.contract.programs import WORKER, processes_named
from drumbeat.spawn.interface import InstanceState, Order
from drumbeat.spawn.ssh import SshHost, SshSpawner
from drumbeat.spawn.ssh.hosts import LostAnswer
from drumbeat.spawn.ssh.session import AgentRefused
from servers.openssh import OpenSshServer
from spawn.ssh.conftest import host_at, settings_at

P = PoolId("p")
A, B, C, D = (WorkerId(name) for name in "abcd")


@pytest.fixture
def mark() -> str:
    return new_mark()


@pytest.fixture(scope="module")
def far(sshd: OpenSshServer) -> Iterator[OpenSshServer]:
    """A second server, which tests stop and start again."""
    with OpenSshServer() as server:
        yield server


def order(worker_id: WorkerId, mark: str, *, is_first: bool = False) -> Order:
    command = ("sh", "-c", WORKER, mark)
    return Order(pool_id=P, worker_id=worker_id, slot=0, group_count=1, command=command, is_first=is_first)


def row(worker_id: WorkerId, host: str | None = None, status: WorkerStatus = WorkerStatus.ACTIVE, **meta: Any) -> Worker:
    """The row of a worker as the store has it, with the host where it was started."""
    place = {} if host is None else {"host": host}
    return Worker(pool_id=P, worker_id=worker_id, slot=0, provider="ssh", status=status, meta={**place, **meta})


class Rig:
    """Two hosts: ``near`` and ``far``, of two SSH servers, with folders of their own."""

    def __init__(self, near: OpenSshServer, far: OpenSshServer, folder: Path) -> None:
        self.near, self.far, self._folder = near, far, folder
        self.opened: list[SshSpawner] = []
        known = folder / "known"
        known.write_text(near.known_hosts.read_text() + far.known_hosts.read_text())
        self._known = known
        far.key_file.write_bytes(near.key_file.read_bytes())
        (far.folder / "authorized_keys").write_bytes((near.folder / "authorized_keys").read_bytes())

    def hosts(self, near_slots: int = 4, far_slots: int = 4, near_price: float = 0.0, far_price: float = 0.0) -> list[SshHost]:
        return [
            host_at(self.near, "near", slots=near_slots, price_per_hour=near_price, folder=str(self._folder / "near")),
            host_at(
                self.far,
                "far",
                slots=far_slots,
                price_per_hour=far_price,
                folder=str(self._folder / "far"),
                labels={"gpu": "yes"},
            ),
        ]

    def spawner(self, hosts: list[SshHost] | None = None, **changed: object) -> SshSpawner:
        settings = settings_at(self.near, self._folder, hosts=hosts or self.hosts(), known_hosts=self._known, **changed)
        return SshSpawner(settings, {}, "s")


@pytest.fixture
async def rig(sshd: OpenSshServer, far: OpenSshServer, tmp_path: Path) -> AsyncIterator[Rig]:
    rig = Rig(sshd, far, tmp_path)
    yield rig
    far.start()
    async with rig.spawner() as spawner:
        for worker_id in (A, B, C, D):
            await spawner.terminate(P, worker_id)


def places(instances: object) -> dict[str, str]:
    return {one.worker_id: str(one.meta["host"]) for one in instances}  # type: ignore[attr-defined]


class TestChoice:
    async def test_workers_go_where_most_slots_are_free(self, rig: Rig, mark: str) -> None:
        async with rig.spawner(rig.hosts(near_slots=2, far_slots=3)) as spawner:
            for worker_id in (A, B, C):
                await spawner.spawn(order(worker_id, mark))

            assert places(await spawner.list(P)) == {A: "far", B: "near", C: "far"}

    async def test_a_cheaper_host_comes_first_until_it_is_full(self, rig: Rig, mark: str) -> None:
        async with rig.spawner(rig.hosts(near_slots=4, far_slots=1, near_price=0.5, far_price=0.2)) as spawner:
            spawned = [await spawner.spawn(order(worker_id, mark)) for worker_id in (A, B)]

            assert [(one.meta["host"], one.price_per_hour) for one in spawned] == [("far", 0.2), ("near", 0.5)]
            assert spawner.traits.price_per_hour == 0.5

    async def test_only_hosts_with_the_labels_asked_for_are_chosen(self, rig: Rig, mark: str) -> None:
        async with rig.spawner(rig.hosts(far_slots=1), labels={"gpu": "yes"}) as spawner:
            assert (await spawner.spawn(order(A, mark))).meta["host"] == "far"
            with pytest.raises(SpawnFailed, match="all 1 slots are taken"):
                await spawner.spawn(order(B, mark))

    async def test_a_worker_is_found_again_on_the_host_where_it_runs(self, rig: Rig, mark: str) -> None:
        async with rig.spawner(rig.hosts(far_slots=8)) as spawner:
            first = await spawner.spawn(order(A, mark))
        async with rig.spawner(rig.hosts(near_slots=8)) as other:
            again = await other.spawn(order(A, mark))

            assert (again.ref, again.meta["host"]) == (first.ref, "far")
            assert len(processes_named(mark)) == 1

    async def test_two_controllers_that_choose_different_hosts_keep_one_instance(self, rig: Rig, mark: str) -> None:
        async with rig.spawner(rig.hosts(near_slots=8)) as one, rig.spawner(rig.hosts(far_slots=8)) as other:
            await asyncio.gather(*(each.list(P) for each in (one, other)))
            await asyncio.gather(*(each.spawn(order(A, mark)) for each in (one, other)))

            assert alive(await one.list(P)) == [A]
            assert len(processes_named(mark)) == 1

    async def test_a_worker_that_ended_on_one_host_and_runs_on_another_is_listed_once(self, rig: Rig, mark: str) -> None:
        ends = Order(pool_id=P, worker_id=A, slot=0, group_count=1, command=("sh", "-c", "exit 3"))
        async with rig.spawner(rig.hosts(far_slots=8)) as spawner:
            await spawner.spawn(ends)
            while alive(await spawner.list(P)):
                await asyncio.sleep(0.02)
        async with rig.spawner(rig.hosts(near_slots=8)) as spawner:
            running = await spawner.spawn(order(A, mark))

            assert [(one.ref, one.state) for one in await spawner.list(P)] == [(running.ref, InstanceState.RUNNING)]


class TestDown:
    async def test_a_list_without_a_host_that_may_hold_workers_is_refused(self, rig: Rig, mark: str) -> None:
        async with rig.spawner(rig.hosts(far_slots=8)) as spawner:
            await spawner.spawn(order(A, mark))
            rig.far.cut()

            for call in (spawner.list(P), spawner.drain(P, A), spawner.terminate(P, A), spawner.logs(P, A)):
                with pytest.raises(Unanswered, match="host far"):
                    await call
            for is_first in (False, True):
                with pytest.raises(SpawnAmbiguous, match="worker a of p might run on a host that does not answer: host far"):
                    await spawner.spawn(order(A, mark, is_first=is_first))

            rig.far.start()
            async with rig.spawner(rig.hosts(far_slots=8)) as later:
                assert alive(await later.list(P)) == [A]
            assert len(processes_named(mark)) == 1

    async def test_a_new_spawner_cannot_know_what_a_host_holds_that_never_answered(self, rig: Rig, mark: str) -> None:
        rig.far.stop()
        async with rig.spawner() as spawner:
            with pytest.raises(Unanswered, match="host far"):
                await spawner.list(P)
            with pytest.raises(SpawnAmbiguous, match="host far"):
                await spawner.spawn(order(A, mark))
        assert processes_named(mark) == []

    async def test_a_worker_that_was_never_asked_for_starts_on_a_host_that_answers(self, rig: Rig, mark: str) -> None:
        rig.far.stop()
        async with rig.spawner() as spawner:
            assert (await spawner.spawn(order(A, mark, is_first=True))).meta["host"] == "near"

    async def test_where_no_host_answers_a_first_start_certainly_failed(self, rig: Rig, mark: str) -> None:
        rig.far.stop()
        async with rig.spawner(rig.hosts()[1:]) as spawner:
            with pytest.raises(SpawnFailed, match="could not be started: host far") as down:
                await spawner.spawn(order(A, mark, is_first=True))
            with pytest.raises(SpawnAmbiguous, match="host far"):
                await spawner.spawn(order(A, mark))
        async with rig.spawner(rig.hosts()[:1], key_file=rig.near.wrong_key_file) as spawner:
            with pytest.raises(SpawnFailed, match=r"host near .*refuses user") as refused:
                await spawner.spawn(order(A, mark, is_first=True))

        assert (down.value.cause, refused.value.cause) == (SpawnCause.TRANSIENT, SpawnCause.AUTH)

    async def test_a_worker_on_a_host_that_answers_is_ended_although_another_is_silent(self, rig: Rig, mark: str) -> None:
        rig.far.stop()
        async with rig.spawner() as spawner:
            await spawner.spawn(order(A, mark, is_first=True))
        async with rig.spawner() as later:
            await later.drain(P, A)
            await later.terminate(P, A)
            assert processes_named(mark) == []

            with pytest.raises(Unanswered, match="host far"):
                await later.terminate(P, B)

    async def test_a_run_that_ended_on_another_host_does_not_hide_that_a_silent_host_may_run_the_worker(
        self, rig: Rig, mark: str
    ) -> None:
        ends = Order(pool_id=P, worker_id=A, slot=0, group_count=1, command=("sh", "-c", "exit 3"))
        async with rig.spawner(rig.hosts(near_slots=8)) as spawner:
            await spawner.spawn(ends)
            while alive(await spawner.list(P)):
                await asyncio.sleep(0.02)
        async with rig.spawner(labels={"gpu": "yes"}) as spawner:
            assert (await spawner.spawn(order(A, mark))).meta["host"] == "far"
        rig.far.cut()

        async with rig.spawner() as later:
            for call in (later.drain(P, A), later.terminate(P, A)):
                with pytest.raises(Unanswered, match="host far"):
                    await call

    async def test_hosts_that_answer_are_listed_and_the_others_named(self, rig: Rig, mark: str) -> None:
        rig.far.stop()
        async with rig.spawner() as spawner:
            await spawner.spawn(order(A, mark, is_first=True))
        async with rig.spawner() as later:
            found = await later.list_reachable(P)

            assert places(found.instances) == {A: "near"}
            assert [place.name for place in found.silent] == ["far"]
            assert found.is_answered
            assert "host far" in found.problem
            assert await later.pools() == {P}
            assert (await later.list_reachable(None)).instances == found.instances

    async def test_a_worker_that_may_run_on_a_silent_host_does_not_count_as_ended(self, rig: Rig) -> None:
        rig.far.stop()
        async with rig.spawner() as spawner:
            found = await spawner.list_reachable(P)
        rows = {
            "started there": row(A, "far"),
            "started nobody knows where": row(A),
            "never joined": row(A, "near", WorkerStatus.SPAWNING),
            "told to drain, and late": row(A, "far", WorkerStatus.TERMINATED, drain_timed_out=True),
        }
        others = {
            "started elsewhere": row(A, "near"),
            "of another engine": row(A, engine="local"),
            "left by itself": row(A, "far", WorkerStatus.TERMINATED),
            "silent as its host": row(A, "far", WorkerStatus.LOST),
            "refused, and to be asked for again": row(A, None, WorkerStatus.SPAWNING, refused={"reason": "full"}),
            "never started": row(A, None, WorkerStatus.TERMINATED, spawn_failed=True, drain_timed_out=True),
        }

        assert {what: found.hidden([each]) for what, each in rows.items()} == {what: [A] for what in rows}
        assert {what: found.hidden([each]) for what, each in others.items()} == {what: [] for what in others}

    async def test_a_lost_worker_on_a_host_that_only_refuses_us_may_run(self, rig: Rig) -> None:
        async with rig.spawner(key_file=rig.near.wrong_key_file) as spawner:
            found = await spawner.list_reachable(P)

        assert found.hidden([row(A, "far", WorkerStatus.LOST)]) == [A]
        assert not found.is_answered

    async def test_new_workers_start_elsewhere_when_a_host_goes_down(self, rig: Rig, mark: str) -> None:
        async with rig.spawner(rig.hosts(far_slots=8)) as spawner:
            assert await spawner.list(P) == []
            rig.far.cut()

            assert (await spawner.spawn(order(B, mark))).meta["host"] == "near"
            assert alive(await spawner.list(P)) == [B], "a host that held nothing at its last answer is not missed"
            await spawner.terminate(P, B)
            with pytest.raises(NotFound):
                await spawner.logs(P, B)

    @pytest.mark.parametrize("then", [Unanswered("not sent"), AgentRefused("full", "8 of 8 slots are taken")])
    async def test_a_start_without_an_answer_is_not_forgotten_when_the_next_one_is_not_sent_or_refused(
        self, rig: Rig, mark: str, monkeypatch: pytest.MonkeyPatch, then: Exception
    ) -> None:
        """The worker is not started on another host as long as the first start may still take effect."""
        async with rig.spawner(rig.hosts(far_slots=8)) as spawner:
            await spawner.list(P)
            [far] = [host for host in spawner._hosts if host.settings.name == "far"]
            ask, failures = far.ask, iter([LostAnswer("no answer"), then, then])

            async def failing(request: Mapping[str, Any], *, at_once: bool = False) -> Mapping[str, Any]:
                if request["do"] == "spawn":
                    raise next(failures)
                return await ask(request, at_once=at_once)

            monkeypatch.setattr(far, "ask", failing)
            for _ in range(3):
                with pytest.raises(SpawnAmbiguous):
                    await spawner.spawn(order(A, mark))
            assert processes_named(mark) == []

            monkeypatch.setattr(far, "ask", ask)
            assert (await spawner.spawn(order(A, mark))).meta["host"] == "far"

    async def test_full_hosts_and_a_host_that_is_down_are_both_named(self, rig: Rig, mark: str) -> None:
        async with rig.spawner(rig.hosts(near_slots=1)) as spawner:
            await spawner.list(P)
            rig.far.cut()
            await spawner.spawn(order(A, mark))

            with pytest.raises(SpawnFailed, match=r"all 1 slots are taken; host far \(127.0.0.1:\d+\): "):
                await spawner.spawn(order(B, mark))
