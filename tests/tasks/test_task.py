"""A task is the plain function when called, and a job when pushed: from plain code, from a loop, on every store."""

import asyncio
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import drumbeat
from drumbeat.core.errors import InvalidInput, JobEnded, NotFound
from drumbeat.core.job import Backoff, JobStatus, RateLimit
from drumbeat.tasks.queue import StoreQueue, queues
from tasks import examples
from tasks.examples import (
    Order,
    add,
    limited,
    not_json,
    once_per_argument,
    once_per_month,
    once_per_number,
    send,
    send_last,
    ship,
    stamp_of,
    total,
)

MISFIT = "task tasks.examples.ship: the arguments of this job do not fit: "


def work(queue: StoreQueue, *tasks: drumbeat.Task[..., Any]) -> None:
    """Run a worker for these tasks, in their pools, until these are empty."""
    for task in tasks:
        queue.loop.run(queue.connection.work(task.pool, task))


def handlers(queue: StoreQueue, pool: str) -> dict[str, str]:
    return dict(queue.loop.run(queue.pool(pool).plan()).handlers)


def each_number() -> Iterator[int]:
    yield 1


async def each_number_in_loop() -> AsyncIterator[int]:
    yield 1


def untyped(value: Any) -> Any:
    """The value, of which a type checker knows nothing."""
    return value


def test_a_task_is_pushed_run_and_answered(every_store: StoreQueue) -> None:
    pushed = add.push(1, second=4)
    before = pushed.status()

    work(every_store, add)

    assert (before, pushed.status(), pushed.result(timeout=60)) == (JobStatus.PENDING, JobStatus.DONE, 5)
    job = pushed.job()
    assert (job.type, job.payload) == ("tasks.examples.add", {"args": [1], "kwargs": {"second": 4}})


async def test_a_task_is_pushed_and_answered_within_a_loop(every_store: StoreQueue) -> None:
    order = Order(7, datetime(2026, 11, 17, tzinfo=UTC))
    pushed = await ship.apush(order, Order(8), gift=Order(9))

    await every_store.loop.run_async(every_store.connection.work("orders", ship))

    assert await pushed.aresult(timeout=60) == [order, Order(8), Order(9)]
    assert await pushed.astatus() is JobStatus.DONE
    assert ((await pushed.ajob()).priority, (await pushed.ajob()).max_attempts) == (3, 2)


class Stamp:
    """Middleware that the test of settings names."""

    def before_push(self, push: drumbeat.PushCall) -> None:
        for job in push.jobs:
            job.headers["stamp"] = "pushed"


def test_a_task_is_pushed_with_the_middleware_of_the_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DRUMBEAT_STORE", f"sqlite:///{tmp_path}/jobs.db")
    monkeypatch.setenv("DRUMBEAT_MIDDLEWARE", f"{__name__}:Stamp")
    queue = queues.find_store(None)
    try:
        pushed = stamp_of.push("a")

        work(queue, stamp_of)

        assert pushed.result(timeout=60) == "a pushed"
        assert pushed.job().payload == {"args": ["a"], "kwargs": {}}
    finally:
        queues.close()


def test_many_calls_are_pushed_at_once_or_not_at_all(every_store: StoreQueue) -> None:
    pushed = add.push_many(add.bind(n) for n in range(3))
    with pytest.raises(InvalidInput, match="expected first to be JSON, got object"):
        add.push_many(add.bind(each) for each in (1, object()))  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"expected calls made with add\.bind"):
        add.push_many([total.bind([1])])  # type: ignore[list-item]

    work(every_store, add)

    assert [each.result() for each in pushed] == [2, 3, 4]
    assert every_store.loop.run(every_store.pool("default").status()).counts.done == 3
    assert add.push_many([]) == []


async def test_many_calls_are_pushed_within_a_loop(sqlite: StoreQueue) -> None:
    assert len(await add.apush_many([add.bind(1), add.bind(2)])) == 2
    assert await sqlite.loop.run_async(sqlite.pool("default").size()) == 2


async def test_a_push_can_wait_for_a_time_or_a_delay(every_store: StoreQueue) -> None:
    when = datetime(2999, 1, 1, tzinfo=UTC)
    late, later = (
        [add.push_at(when, 1), await add.apush_at(when, 1)],
        [add.push_in(3600, 1), await add.apush_in(timedelta(1), 1)],
    )

    assert [each.job().not_before for each in late] == [when, when]
    waits = [
        (job.not_before - job.created_at) for job in map(drumbeat.PushedJob.job, later) if job.not_before and job.created_at
    ]
    assert [round(wait.total_seconds(), -1) for wait in waits] == [3600, 86_400]
    with pytest.raises(InvalidInput, match="when: expected a datetime with a time zone"):
        add.push_at(datetime(2999, 1, 1), 1)  # noqa: DTZ001


async def test_a_pushed_job_can_be_cancelled(sqlite: StoreQueue) -> None:
    first, second = add.push(1), await add.apush(2)

    first.cancel()
    await second.acancel()

    assert (first.status(), second.status()) == (JobStatus.CANCELLED, JobStatus.CANCELLED)
    with pytest.raises(JobEnded):
        await first.aresult()


async def test_called_directly_it_is_the_plain_function() -> None:
    assert (add(1), add(1, second=1), add.__name__, add.__doc__) == (3, 2, "add", "Add two numbers.")
    assert await ship(Order(1)) == [Order(1)]
    assert pickle.loads(pickle.dumps(add)) is add


def test_the_context_is_given_by_annotation_wherever_it_stands(sqlite: StoreQueue) -> None:
    pushed = [send.push("a@x"), send.push("b@x", subject="hi"), send_last.push("c@x"), send_last.push("d@x", "hey")]

    sqlite.loop.run(sqlite.connection.work("mail", {send.task_name: send, send_last.task_name: send_last}))

    assert [each.result() for each in pushed] == [
        "a@x: hello, attempt 1",
        "b@x: hi, attempt 1",
        "c@x: hello, attempt 1",
        "d@x: hey, attempt 1",
    ]


@pytest.mark.parametrize(
    ("push", "says"),
    [
        (lambda: untyped(add).push(), "missing a required argument: 'first'"),
        (lambda: untyped(add).push(1, 2, 3), r"too many positional arguments; expected \(first: int, second: int = 2\)"),
        (lambda: untyped(add).push(1, third=3), "got an unexpected argument 'third'"),
        (lambda: untyped(send).push(subjet="a"), r"got an unexpected argument 'subjet', did you mean 'subject'\?"),
        (lambda: untyped(add).push(1, second={1, 2}), "expected second to be JSON, got set"),
        (lambda: send.push("\ud800"), "expected to to be text that UTF-8 can encode"),
        (lambda: ship.push(Order(1), gift=Order(untyped(object()))), r"expected extra\.gift\.number to be JSON, got object"),
        (lambda: total.push([0] * 600_000), "expected numbers to be at most 1048576 bytes"),
        (lambda: untyped(total).push({True: 1}), "expected the keys of numbers to be text or numbers, got True"),
        (
            lambda: untyped(total).push([{"a": {None: 1}}]),
            r"expected the keys of numbers\[0\]\.a to be text or numbers, got None",
        ),
        (lambda: untyped(total).push({1: 2, "1": 3}), "expected the keys of numbers to differ as text, got 1 and '1'"),
        (lambda: untyped(total).push({0.5: 2, "0.5": 3}), "expected the keys of numbers to differ as text, got 0.5 and '0.5'"),
        (lambda: untyped(send).push("a", context=None), "unexpected argument 'context'"),
    ],
)
def test_what_cannot_be_sent_is_refused_with_the_parameters_name(sqlite: StoreQueue, push: Any, says: str) -> None:
    with pytest.raises(InvalidInput, match=f"^task tasks.examples.\\w+: .*{says}") as refused:
        push()

    assert "\n" not in str(refused.value)


def test_options_become_those_of_the_job(sqlite: StoreQueue) -> None:
    job = limited.with_options(priority=9, timeout=timedelta(minutes=1)).push().job()

    assert (job.group, job.group_limit, job.group_rate) == (limited.task_name, 2, RateLimit(count=10, per=timedelta(minutes=1)))
    assert (job.priority, job.timeout, job.backoff, job.capability) == (9, timedelta(minutes=1), Backoff(factor=3), "gpu")
    assert limited.push().job().timeout == timedelta(seconds=30)


def test_a_unique_task_has_one_unfinished_job(every_store: StoreQueue) -> None:
    first, same, named, other = (
        once_per_argument.push(1),
        once_per_argument.push(1, note=""),
        once_per_argument.push(number=1),
        once_per_argument.push(1, note="x"),
    )
    assert first.job_id == same.job_id == named.job_id != other.job_id

    one, two, three = (each.job_id for each in once_per_number.push_many([once_per_number.bind(n, str(n)) for n in (1, 1, 2)]))
    assert one == two != three


def test_a_unique_key_can_format_a_value_of_the_parameters_type(sqlite: StoreQueue) -> None:
    day = date(2026, 1, 2)

    pushed = [once_per_month.push(day), once_per_month.push(day, 7), once_per_month.push("2026-01-31", 7)]  # type: ignore[arg-type]

    assert [each.job().unique_key for each in pushed] == ["2026-01 00", "2026-01 07", "2026-01 07"]
    assert [each.job_id for each in pushed[1:]] == [pushed[1].job_id] * 2
    assert once_per_month.push(date(2026, 2, 2)).job().unique_key == "2026-02 00"


ODD_DEFAULTS = """
import datetime, decimal, drumbeat
missing = object()
@drumbeat.task(unique=True, name="all")
def every(n=1, on=missing, tags={"a", "b", "c", "d"}, kinds=frozenset({("x", 1), ("y", 2)}), call=print): ...
@drumbeat.task(unique="{on} {tags}", name="some")
def some(on=missing, tags={"a", "b", "c", "d"}): ...
@drumbeat.task(unique=True, name="stable")
def stable(day=datetime.date(2026, 1, 1), price=decimal.Decimal("1.5"), one={"a"}, many={10, 2, 33}): ...
for task in (every, some, stable):
    print(task.bind().new_job().unique_key)
"""


def test_a_unique_key_is_the_same_in_every_process_whatever_the_defaults() -> None:
    keys = {
        subprocess.run(
            [sys.executable, "-c", ODD_DEFAULTS], env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True
        ).stdout.decode()
        for seed in ("1", "2", "3")
    }

    [same] = keys
    assert same.splitlines()[1:] == ["<object object> {'a', 'b', 'c', 'd'}", "stable:911f2a3880edd01fdec0e4270965cd45"]


@pytest.mark.parametrize("day", ["tomorrow", None])
def test_a_value_that_its_unique_key_cannot_format_is_refused_with_the_tasks_name(sqlite: StoreQueue, day: Any) -> None:
    says = (
        r"^task tasks.examples.once_per_month: the unique key '\{day:%Y-%m\} .*' cannot be made of .*\['tomorrow', 0\]: day is"
    )

    with pytest.raises(InvalidInput, match=says.replace("'tomorrow'", repr(day))):
        once_per_month.push(day)


def test_a_long_unique_key_is_refused_with_the_tasks_name(sqlite: StoreQueue) -> None:
    with pytest.raises(
        InvalidInput, match=r"^task .*: expected unique_key to be text of at most 1024 bytes .*; or set unique to"
    ):
        once_per_number.push("x" * 1025)  # type: ignore[arg-type]


def test_an_empty_unique_key_is_refused_with_the_tasks_name() -> None:
    @drumbeat.task(unique="{name}")
    def once_per_name(name: str) -> str:
        return name

    with pytest.raises(InvalidInput, match=r"^task .*: expected unique_key to be text that is not empty .*; or set unique to"):
        once_per_name.bind("").new_job()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"prio": 1}, "unknown option 'prio'; expected one of backoff, "),
        ({"max_attempts": 0}, "expected max_attempts to be a whole number, 1 or more, got 0"),
        ({"rate": "often"}, "expected rate to be a RateLimit or text such as 10/s"),
        ({"unique": "{nobody}"}, "got the field 'nobody', but the parameters are number"),
        ({"unique": ""}, "expected unique to be True or a key .*; got '', which all jobs would share"),
        ({"group": ""}, "expected group to be text that is not empty"),
        ({"unique": "{"}, "expected unique to be True or a key with parameters"),
        ({"unique": "{number:{number}}"}, "got a field within the format of the field 'number'"),
        ({"unique": "{number!x}"}, "got the conversion !x of the field 'number', but there are only !r, !s and !a"),
        ({"pool": 3}, "expected pool to be text, got 3"),
        ({"pool": ""}, "expected pool to be text, got ''"),
        ({"timeout": -1}, "expected timeout to be"),
        ({"rate": 10}, "task .*count: expected rate to be a RateLimit or text such as 10/s, 100/m or 5/h, got 10"),
        ({"rate": RateLimit(count=0, per=timedelta(1))}, "task .*count: expected rate to be a RateLimit"),
    ],
)
def test_a_wrong_option_is_refused_where_the_task_is_defined(options: Any, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):

        @drumbeat.task(**options)
        def count(number: int) -> int:
            return number


def test_only_functions_can_be_tasks() -> None:
    with pytest.raises(InvalidInput, match="expected a function as a task, got 3"):
        drumbeat.task(3)  # type: ignore[call-overload]


@pytest.mark.parametrize("of", [each_number, each_number_in_loop])
def test_a_generator_cannot_be_a_task(of: Any) -> None:
    with pytest.raises(InvalidInput, match=f"as a task, got the generator {of.__name__}; return a list"):
        drumbeat.task(of)


def test_the_name_of_a_task_cannot_be_changed_with_its_options() -> None:
    with pytest.raises(InvalidInput, match=r"^task tasks\.examples\.add: .* got name, .*: task\(name=…\)\(add\)$"):
        untyped(add).with_options(name="other")


def test_numbers_can_be_keys_of_an_argument(sqlite: StoreQueue) -> None:
    job = untyped(total).push({1: 2, 1.5: 3, "x": 4}).job()

    assert job.payload["args"] == [{"1": 2, "1.5": 3, "x": 4}]


def test_the_pool_is_created_with_the_handler_that_any_worker_can_import(every_store: StoreQueue) -> None:
    add.push(1)
    total.push([1])

    assert handlers(every_store, "default") == {
        "tasks.examples.add": "tasks.examples:add",
        "tasks.examples.total": "tasks.examples:total",
    }


@pytest.mark.parametrize("push", [lambda: add.push(2), lambda: add.job(2).then(add).push()])
def test_a_deleted_pool_is_created_again_with_the_handlers_of_all_tasks_pushed_before(
    every_store: StoreQueue, push: Callable[[], object]
) -> None:
    add.push(1)
    total.push([1])
    before = handlers(every_store, "default")
    every_store.loop.run(every_store.pool("default").delete(unfinished=True))

    push()

    assert handlers(every_store, "default") == before


def test_a_push_that_waits_for_an_unknown_job_records_no_handlers_again(sqlite: StoreQueue) -> None:
    add.push(1)
    sqlite.loop.run(sqlite.pool("default").update(handlers={add.task_name: "mine:add"}))

    with pytest.raises(NotFound, match="there is no job 'nobody' to wait for"):
        add.job(2).after("nobody").push()

    assert handlers(sqlite, "default") == {add.task_name: "mine:add"}


def test_a_task_of_another_name_than_its_function_is_what_workers_import(sqlite: StoreQueue) -> None:
    pushed = examples.renamed.push(1)

    handlers = sqlite.loop.run(sqlite.connection.pool("default").plan()).handlers
    assert handlers["tasks.examples.plain"] == "tasks.examples:renamed"
    assert pickle.loads(pickle.dumps(examples.renamed)) is examples.renamed

    sqlite.loop.run(sqlite.connection.work("default", handlers["tasks.examples.plain"]))
    assert pushed.result(timeout=10) == 2


def test_a_pools_own_handlers_stay_when_a_task_is_pushed_to_it(sqlite: StoreQueue) -> None:
    pool = sqlite.pool("default")
    sqlite.loop.run(pool.create(drumbeat.client.WorkPlan(handlers={"": "command:cat"}, concurrency=3)))
    before = sqlite.loop.run(pool.get()).policy

    add.push(1)

    assert handlers(sqlite, "default") == {"": "command:cat", "tasks.examples.add": "tasks.examples:add"}
    assert sqlite.loop.run(pool.get()).policy["concurrency"] == before["concurrency"] == 3


async def test_processes_that_record_handlers_at_the_same_time_lose_none(every_store: StoreQueue) -> None:
    async def record() -> None:
        async with asyncio.TaskGroup() as group:
            for n in range(4):
                group.create_task(every_store.connection.record_handlers("busy", {f"t{n}": f"m:f{n}"}))

    await every_store.loop.run_async(record())

    plan = await every_store.loop.run_async(every_store.pool("busy").plan())
    assert plan.handlers == {f"t{n}": f"m:f{n}" for n in range(4)}


def test_a_task_inside_a_function_is_pushed_but_no_other_process_is_told_of_it(sqlite: StoreQueue) -> None:
    @drumbeat.task
    def local(number: int) -> int:
        return number

    pushed = local.push(3)
    assert handlers(sqlite, "default") == {}

    work(sqlite, local)

    assert pushed.result() == 3


def test_a_changed_signature_fails_the_job_in_one_line_and_keeps_it(every_store: StoreQueue) -> None:
    @drumbeat.task(name="resize")
    def old(path: str) -> str:
        return path

    @drumbeat.task(name="resize")
    def new(path: str, width: int) -> str:
        return f"{path} {width}"

    pushed = old.push("a.png")

    work(every_store, new)

    job = pushed.job()
    assert (job.status, job.failures, job.payload["args"]) == (JobStatus.POISONED, 1, ["a.png"])
    assert job.last_error == (
        "task resize: the arguments of this job do not fit: missing a required argument: 'width'; "
        "expected (path: str, width: int)"
    )


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        ({"args": [{"nummer": 1}]}, f"{MISFIT}order is not a valid Order: Object missing required field `number`"),
        ({"args": [{"number": 1}], "kwargs": {"gift": {"number": "x"}}}, f"{MISFIT}extra is not a valid Order: Expected `int`"),
        ({"args": [{"number": 1}, 5]}, f"{MISFIT}others is not a valid Order: Expected `object`, got `int`; expected (order: "),
        ({"order": {}}, 'expected the payload {"args": […], "kwargs": {…}}, got'),
        ([1], 'expected the payload {"args": […], "kwargs": {…}}, got [1]'),
        ({"args": 1}, 'expected the payload {"args": […], "kwargs": {…}}, got'),
    ],
)
def test_arguments_that_do_not_fit_poison_the_job_with_the_parameters_name(sqlite: StoreQueue, payload: Any, says: str) -> None:
    job_id = sqlite.loop.run(sqlite.pool("orders").push(payload, type=ship.task_name))

    work(sqlite, ship)

    job = sqlite.job("orders", job_id)
    assert (job.status, job.attempts) == (JobStatus.POISONED, 1)
    assert says in str(job.last_error)
    assert "\n" not in str(job.last_error)


def test_a_result_that_cannot_be_stored_is_a_failure_that_names_its_type(sqlite: StoreQueue) -> None:
    pushed = not_json.push()

    work(sqlite, not_json)

    with pytest.raises(JobEnded, match="is poisoned: expected result to be JSON, got object"):
        pushed.result()


def test_a_given_store_is_used_instead_of_the_settings(sqlite: StoreQueue, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/other.db"

    pushed = add.with_options(store=url).push(1)

    assert pushed.status() is JobStatus.PENDING
    assert queues.find_store(url) is not sqlite
    assert not (tmp_path / "jobs.db").exists()


def test_one_thread_and_one_connection_serve_all_threads_of_a_process(sqlite: StoreQueue) -> None:
    add.push(0)
    threads = [threading.Thread(target=lambda: [add.push(n) for n in range(5)]) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sqlite.loop.run(sqlite.pool("default").size()) == 31
    assert [thread.name for thread in threading.enumerate()].count("drumbeat") == 1


def test_a_forked_process_pushes_through_a_connection_of_its_own(sqlite: StoreQueue) -> None:
    add.push(1)
    program = """
import os, sys
from tasks.examples import add
print(add.push(2).job_id, flush=True)
child = os.fork()
if child == 0:
    print(add.push(3).job_id, flush=True)
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
print(add.push(4).job_id, flush=True)
"""
    paths = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert [sqlite.job("default", job_id).payload["args"] for job_id in done.stdout.split()] == [[2], [3], [4]]


def test_tasks_of_a_program_have_the_name_by_which_a_worker_imports_them(sqlite: StoreQueue, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "import drumbeat\n@drumbeat.task\ndef pack(n: int) -> int: return n\n"
        "if __name__ == '__main__': print(pack.push(1).job_id)"
    )
    done = subprocess.run([sys.executable, "shop.py"], cwd=tmp_path, capture_output=True, text=True, check=True)

    assert sqlite.job("default", done.stdout.strip()).type == "shop.pack"
    assert handlers(sqlite, "default") == {"shop.pack": "shop:pack"}


def test_annotations_that_are_not_defined_are_left_out() -> None:
    @drumbeat.task
    def read(paper: "Paper", order: "examples.Order", context: "drumbeat.JobContext") -> None:  # type: ignore[name-defined]  # noqa: F821
        ...

    assert list(read.parameters.signature.parameters) == ["paper", "order"]
    assert read.parameters.context_name == "context"
    assert [convert is not None for convert in read.parameters.by_index] == [False, True]
