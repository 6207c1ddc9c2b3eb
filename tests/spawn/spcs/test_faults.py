"""Answers that are lost, late, old or refused: a worker is started once, and none that may run counts as ended."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import pytest

from drumbeat.core.errors import NotFound, SpawnAmbiguous, SpawnCause, SpawnError, SpawnFailed, Unanswered
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.contract import alive, programs
from drumbeat.spawn.interface import InstanceState
from drumbeat.spawn.spcs import SpcsSpawner
from spawn.spcs.account import SpcsAccount
from spawn.spcs.conftest import LeapingClock, P, W, order, spawner_at, until
from spawn.spcs.faults import Answers, Delays, Fault, Garbles, Loses, Omits

START, SHOW, DROP, DESCRIBE = "EXECUTE JOB SERVICE", "SHOW JOB SERVICES", "DROP SERVICE", "DESCRIBE SERVICE"


@pytest.fixture
def clock() -> LeapingClock:
    return LeapingClock()


@pytest.fixture
async def spawner(account: SpcsAccount, clock: LeapingClock) -> AsyncIterator[SpcsSpawner]:
    async with spawner_at(account, clock) as spawner:
        yield spawner
        account.faults.clear()
        account.node_is_down = False
        account.close()
        for one in await spawner.list(P):
            await spawner.terminate(P, one.worker_id)


@pytest.mark.parametrize("errno", [250001, 390104, 390110, 390111, 390112, 390113, 390114, 390115])
async def test_after_its_session_has_expired_it_signs_in_again(account: SpcsAccount, clock: LeapingClock, errno: int) -> None:
    """250001: the connector could not renew the session."""
    async with spawner_at(account, clock, sessions=1) as spawner:
        await spawner.list(P)
        before = len(account.sign_ins)
        account.faults.append(Answers(operation=SHOW, errno=errno, sqlstate="08001", message="Failed to refresh session"))

        assert await spawner.list(P) == []

    assert len(account.sign_ins) == before + 1


class TestStarts:
    @pytest.mark.parametrize(
        "fault",
        [
            Loses(operation=START),
            Loses(operation=START, done=False),
            Loses(operation=START, times=2),
            Loses(operation=START, times=3),
            Answers(operation=START, errno=300002, sqlstate="XX000", message="Processing aborted by error", done=True),
            Answers(operation=START, errno=300002, sqlstate="XX000", message="Processing aborted by error"),
            Answers(operation=START, errno=390114, message="Authentication token has expired."),
            Loses(operation=SHOW, times=2),
        ],
        ids=str,
    )
    async def test_a_start_without_an_answer_is_found_by_its_name(
        self, account: SpcsAccount, spawner: SpcsSpawner, fault: Fault
    ) -> None:
        account.faults.append(fault)

        instance = await spawner.spawn(order())

        assert (await until(spawner, InstanceState.RUNNING)).ref == instance.ref
        assert len(account.services) == 1

    async def test_a_start_that_never_gets_an_answer_may_have_started_it(
        self, account: SpcsAccount, spawner: SpcsSpawner
    ) -> None:
        account.faults.append(Loses(operation=START, done=False, times=3))

        with pytest.raises(SpawnAmbiguous, match="worker w of p may have been started"):
            await spawner.spawn(replace(order(), is_first=True))

        assert await spawner.list(P) == []

    async def test_a_start_that_is_refused_after_a_lost_answer_may_have_started_it(
        self, account: SpcsAccount, spawner: SpcsSpawner
    ) -> None:
        account.faults += [
            Loses(operation=START, done=False),
            Answers(operation=START, errno=3001, sqlstate="42501", message="Insufficient privileges"),
        ]

        with pytest.raises(SpawnAmbiguous):
            await spawner.spawn(replace(order(), is_first=True))

    async def test_a_cancelled_start_does_not_start_a_worker_later(self, account: SpcsAccount, spawner: SpcsSpawner) -> None:
        account.faults.append(Delays(operation=START, by=timedelta(seconds=0.4)))
        with suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await spawner.spawn(replace(order(), is_first=True))

        await spawner.terminate(P, W)

        while account.in_progress:
            await asyncio.sleep(0.01)
        assert account.services == {}

    @pytest.mark.parametrize("is_first", [False, True])
    async def test_a_worker_that_runs_already_is_adopted_though_no_more_are_allowed(
        self, account: SpcsAccount, spawner: SpcsSpawner, is_first: bool
    ) -> None:
        before = await spawner.spawn(order())
        account.most_services = 1

        assert (await spawner.spawn(replace(order(), is_first=is_first))).ref == before.ref
        with pytest.raises(SpawnFailed):
            await spawner.spawn(order("other"))

    @pytest.mark.parametrize("is_first", [False, True])
    async def test_a_worker_that_may_run_is_not_called_failed_if_it_cannot_be_looked_for(
        self, account: SpcsAccount, spawner: SpcsSpawner, is_first: bool
    ) -> None:
        refused = {"errno": 3001, "sqlstate": "42501", "message": "Insufficient privileges", "times": 9}
        account.faults += [Answers(operation=each, **refused) for each in (START, SHOW)]  # type: ignore[arg-type]

        with pytest.raises(SpawnFailed if is_first else SpawnAmbiguous, match="Insufficient privileges"):
            await spawner.spawn(replace(order(), is_first=is_first))

    @pytest.mark.parametrize("is_first", [False, True])
    async def test_a_worker_that_may_run_is_not_called_failed_if_nobody_can_sign_in(
        self, account: SpcsAccount, spawner: SpcsSpawner, is_first: bool
    ) -> None:
        account.faults.append(
            Answers(operation="sign in", errno=390144, sqlstate="28000", message="JWT token is invalid.", times=9)
        )

        with pytest.raises(SpawnFailed if is_first else SpawnAmbiguous, match="cannot sign in: JWT token is invalid"):
            await spawner.spawn(replace(order(), is_first=is_first))
        assert account.statements == []

    async def test_an_ended_worker_is_started_again_by_two_controllers_once(
        self, account: SpcsAccount, spawner: SpcsSpawner
    ) -> None:
        first = await spawner.spawn(order(program=programs.EXITS))
        await until(spawner, InstanceState.EXITED)
        async with spawner_at(account) as other:
            account.faults.append(Loses(operation=START, times=2))
            again = await other.spawn(order())
            same = await spawner.spawn(order())

        assert again.ref == same.ref != first.ref
        assert len(account.services) == 2, "the ended one is kept, with its log"
        assert account.asked(DROP) == []
        assert [one.ref for one in await spawner.list(P)] == [again.ref]

    async def test_a_worker_that_is_leaving_is_not_started_again_before_it_has_left(
        self, account: SpcsAccount, spawner: SpcsSpawner
    ) -> None:
        first = await spawner.spawn(order(program=programs.STUBBORN))
        await until(spawner, InstanceState.RUNNING)
        await spawner.drain(P, W)

        assert (await spawner.spawn(order())).ref == first.ref
        assert len(account.asked(START)) == 1

    @pytest.mark.parametrize(
        ("fault", "cause", "retry_after"),
        [
            (
                Answers(errno=3001, sqlstate="42501", message="Insufficient privileges to operate on schema"),
                SpawnCause.AUTH,
                None,
            ),
            (Answers(errno=395081, message="The maximum number of services was reached."), SpawnCause.NO_CAPACITY, 60),
            (Answers(errno=395022, message="Compute pool is at capacity"), SpawnCause.NO_CAPACITY, 60),
            (Answers(errno=625, message="Too many requests were sent"), SpawnCause.RATE_LIMITED, 30),
            (Answers(errno=90073, message="resource monitor has exceeded its quota"), SpawnCause.NO_MONEY, None),
            (Answers(errno=666, message="Your account is suspended due to lack of payment method"), SpawnCause.NO_MONEY, None),
            (Answers(errno=1003, sqlstate="42000", message="syntax error"), SpawnCause.BAD_REQUEST, None),
            (Answers(errno=2003, sqlstate="02000", message="Compute pool 'X' does not exist"), SpawnCause.BAD_REQUEST, None),
        ],
        ids=lambda value: str(getattr(value, "message", "")),
    )
    async def test_a_refusal_has_its_cause(
        self, account: SpcsAccount, spawner: SpcsSpawner, fault: Answers, cause: SpawnCause, retry_after: int | None
    ) -> None:
        account.faults.append(replace(fault, operation=START))

        with pytest.raises(SpawnFailed, match=fault.message[:20]) as failed:
            await spawner.spawn(replace(order(), is_first=True))

        assert failed.value.cause is cause
        assert failed.value.retry_after == (None if retry_after is None else timedelta(seconds=retry_after))
        assert "\n" not in str(failed.value)
        assert account.services == {}

    @pytest.mark.parametrize(
        ("changed", "said"),
        [
            ({"compute_pool": "no_pool"}, "Compute pool 'NO_POOL' does not exist or not authorized"),
            ({"schema": "nowhere"}, "Object does not exist, or operation cannot be performed"),
            ({"warehouse": "no_house"}, "Warehouse 'NO_HOUSE' does not exist"),
            ({"external_access": ("nothing",)}, "Integration 'NOTHING' does not exist"),
            ({"secrets": {"DRUMBEAT_STORE": "other.place.url"}}, "Secret 'OTHER.PLACE.URL' does not exist"),
            ({"image": "/work/jobs/images/none:1"}, "Failed to retrieve image /work/jobs/images/none:1"),
        ],
        ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
    )
    async def test_what_is_not_there_is_named(self, account: SpcsAccount, changed: dict[str, object], said: str) -> None:
        async with spawner_at(account, LeapingClock(), **changed) as spawner:
            with pytest.raises(SpawnFailed, match=said) as failed:
                await spawner.spawn(replace(order(), is_first=True))

        assert failed.value.cause is SpawnCause.BAD_REQUEST
        assert account.services == {}

    async def test_the_next_sign_in_is_tried_after_a_short_outage(self, account: SpcsAccount, spawner: SpcsSpawner) -> None:
        account.faults.append(Loses(operation="sign in", times=2))

        assert await spawner.list(P) == []


class TestLists:
    async def test_workers_that_an_old_list_lacks_are_looked_up_by_their_names(
        self, account: SpcsAccount, spawner: SpcsSpawner
    ) -> None:
        workers = [WorkerId(f"w{n:02}") for n in range(3)]
        for each in workers:
            await spawner.spawn(order(each))
        account.faults.append(Omits(operation=SHOW))

        assert alive(await spawner.list(P)) == workers
        assert len(account.asked(DESCRIBE)) == 3

    async def test_a_worker_whose_service_somebody_dropped_has_exited(self, account: SpcsAccount, spawner: SpcsSpawner) -> None:
        await spawner.spawn(order())
        running = await until(spawner, InstanceState.RUNNING)
        account.execute(f'DROP SERVICE "WORK"."Jobs".{next(iter(account.services))}')

        gone = await until(spawner, InstanceState.EXITED)

        assert (gone.ref, gone.exit_code) == (running.ref, None)
        with pytest.raises(NotFound, match="no service of worker w of p was found"):
            await spawner.logs(P, W)

    @pytest.mark.parametrize(
        ("fault", "said"),
        [
            (Loses(times=9), "no answer to SHOW JOB SERVICES: connection reset by peer"),
            (
                Answers(errno=2043, message="Object does not exist", times=9),
                "SHOW JOB SERVICES failed .*grants in docs/engines.md",
            ),
            (Answers(errno=300002, sqlstate="XX000", times=9), "SHOW JOB SERVICES failed"),
        ],
        ids=str,
    )
    async def test_what_cannot_be_listed_is_told(
        self, account: SpcsAccount, spawner: SpcsSpawner, fault: Fault, said: str
    ) -> None:
        await spawner.spawn(order())
        account.faults.append(fault)

        with pytest.raises(Unanswered, match=said):
            await spawner.list(P)

    async def test_a_list_of_rows_that_cannot_be_read_does_not_end_a_worker(
        self, account: SpcsAccount, spawner: SpcsSpawner
    ) -> None:
        await spawner.spawn(order())
        account.faults.append(Garbles(operation=SHOW))

        assert alive(await spawner.list(P)) == [W]

    async def test_a_worker_whose_comment_somebody_changed_runs_on(self, account: SpcsAccount, spawner: SpcsSpawner) -> None:
        started = await spawner.spawn(order())
        [service] = account.services.values()
        service.comment = "changed by hand"

        assert alive(await spawner.list(P)) == [W]
        assert (await spawner.spawn(order())).meta["service"] == started.meta["service"]
        async with spawner_at(account) as other:
            await other.terminate(P, W)
        assert account.services == {}

    async def test_services_of_others_are_not_listed(self, account: SpcsAccount, spawner: SpcsSpawner) -> None:
        await spawner.spawn(order())
        [service] = account.services.values()
        account.services["DRUMBEAT_OF_SOMEBODY_ELSE"] = replace(service, name="DRUMBEAT_OF_SOMEBODY_ELSE")
        account.services["DRUMBEAT_9"] = replace(service, name="DRUMBEAT_9", comment="written by hand")

        assert [one.meta["service"] for one in await spawner.list(P)] == [service.name]
        del account.services["DRUMBEAT_OF_SOMEBODY_ELSE"], account.services["DRUMBEAT_9"]

    async def test_no_answer_in_time(self, account: SpcsAccount, clock: LeapingClock) -> None:
        account.faults.append(Delays(by=timedelta(seconds=1.5), times=3))
        async with spawner_at(account, clock, timeout=timedelta(seconds=1)) as spawner:
            with pytest.raises(Unanswered, match="Snowflake account MYORG-TEST: no answer to SHOW JOB SERVICES within 1 s"):
                await spawner.list(P)

    async def test_containers_are_looked_at_only_when_something_changes(
        self, account: SpcsAccount, spawner: SpcsSpawner
    ) -> None:
        await spawner.spawn(order())
        await until(spawner, InstanceState.RUNNING)
        before = len(account.asked("SHOW SERVICE CONTAINERS"))
        for _ in range(5):
            await spawner.list(P)

        assert len(account.asked("SHOW SERVICE CONTAINERS")) == before

    async def test_a_worker_that_waits_for_room_says_so(
        self, account: SpcsAccount, spawner: SpcsSpawner, clock: LeapingClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        account.room = 0
        await spawner.spawn(order())
        for _ in range(2):
            await spawner.list(P)
        [waiting] = await spawner.list(P)

        assert waiting.state is InstanceState.PENDING
        assert waiting.meta["problem"] == "it cannot start yet: Unschedulable due to insufficient memory resources."
        assert caplog.text.count("worker w of p: it cannot start yet") == 1
        account.room = None
        account.execute('SHOW JOB SERVICES IN SCHEMA "WORK"."Jobs"')
        account._schedule()
        clock.leapt += timedelta(minutes=1)
        assert "problem" not in (await until(spawner, InstanceState.RUNNING)).meta

    async def test_ended_services_are_dropped_after_a_while(
        self, account: SpcsAccount, spawner: SpcsSpawner, clock: LeapingClock
    ) -> None:
        await spawner.spawn(order("ended", program=programs.EXITS))
        await spawner.spawn(order("alive"))
        await until(spawner, InstanceState.EXITED, WorkerId("ended"))
        clock.leapt += timedelta(minutes=59)
        assert len(await spawner.list(P)) == len(account.services) == 2

        clock.leapt += timedelta(minutes=2)
        assert [one.worker_id for one in await spawner.list(P)] == ["alive", "ended"]

        assert [one.worker_id for one in await spawner.list(P)] == ["alive"]
        assert len(account.services) == 1


class TestEnds:
    @pytest.mark.parametrize("operation", [DROP, SHOW])
    async def test_an_end_without_an_answer_is_repeated(
        self, account: SpcsAccount, spawner: SpcsSpawner, operation: str
    ) -> None:
        await spawner.spawn(order())
        account.faults.append(Loses(operation=operation))

        await spawner.terminate(P, W)

        assert account.services == {}

    async def test_a_worker_that_an_old_list_lacks_is_ended(self, account: SpcsAccount, spawner: SpcsSpawner) -> None:
        await spawner.spawn(order())
        account.faults.append(Omits(operation=SHOW))

        await spawner.terminate(P, W)

        assert account.services == {}

    async def test_a_service_that_does_not_end_is_told(
        self, account: SpcsAccount, spawner: SpcsSpawner, clock: LeapingClock
    ) -> None:
        await spawner.spawn(order())
        await until(spawner, InstanceState.RUNNING)
        account.node_is_down, clock.is_patient = True, False

        with pytest.raises(
            SpawnError, match=r"expected its service to be gone within 120 s, it is still DELETING; look at it: DESC"
        ):
            await spawner.terminate(P, W)

        assert alive(await spawner.list(P)) == [W], "it may still run"
        [service] = account.services.values()
        service.status, clock.is_patient = "RUNNING", True

    async def test_a_drain_is_sent_once(self, account: SpcsAccount, spawner: SpcsSpawner) -> None:
        await spawner.spawn(order(program=programs.STUBBORN))
        await until(spawner, InstanceState.RUNNING)

        await spawner.drain(P, W)
        await spawner.drain(P, W)

        assert len(account.asked(DROP)) == 1

    async def test_an_ended_worker_is_not_dropped_by_a_drain(self, account: SpcsAccount, spawner: SpcsSpawner) -> None:
        await spawner.spawn(order(program="echo bye; exit 4"))
        await until(spawner, InstanceState.EXITED)

        await spawner.drain(P, W)

        [ended] = await spawner.list(P)
        assert ended.exit_code == 4
        assert await spawner.logs(P, W) == "bye\n"
