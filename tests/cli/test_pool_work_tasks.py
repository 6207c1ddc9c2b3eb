"""drumbeat pool work MODULE: the tasks of a module are found and their pools are worked on, in one process."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import drumbeat
from cli.given import PATIENCE, Said, drumbeat as run, eventually, ran, started
from drumbeat.cli.reload import source_files
from drumbeat.core.errors import NotFound
from drumbeat.core.job import JobStatus

SHOP = """
import pathlib, drumbeat

@drumbeat.task
def pack(n: int) -> int:
    ship.push(n, by="rail")
    return n

@drumbeat.task(pool="shipping")
async def ship(n: int, *, by: str) -> str:
    return f"{n} by {by}"
"""


class Shop:
    """A folder with modules, and a store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder}/jobs.db"

    def write(self, name: str, text: str = SHOP) -> None:
        (self.folder / f"{name}.py").write_text(text)

    def run(self, *arguments: str) -> Said:
        return ran("pool", *arguments, cwd=self.folder, DRUMBEAT_STORE=self.url)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    before = set(sys.modules)
    yield Shop(tmp_path)
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def connection(shop: Shop) -> Iterator[drumbeat.client.BlockingConnection]:
    with drumbeat.connect_blocking(shop.url) as opened:
        yield opened


def pushed(shop: Shop, connection: drumbeat.client.BlockingConnection, module: str, n: int) -> str:
    """Push a job of the task ``pack`` as another process would: by its name."""
    connection.record_handlers("default", {f"{module}.pack": f"{module}:pack"})
    job_id: str = connection.pool("default").push({"args": [n]}, type=f"{module}.pack")
    return job_id


def test_all_pools_of_a_modules_tasks_are_drained(shop: Shop, connection: drumbeat.client.BlockingConnection) -> None:
    shop.write("shop_a")
    job_id = pushed(shop, connection, "shop_a", 7)

    said = run("pool", "work", "shop_a", "--drain", cwd=shop.folder, DRUMBEAT_STORE=shop.url)

    assert said.code == 0, said.errors
    assert said.errors.splitlines() == [
        "working on pool default: shop_a.pack",
        "working on pool shipping: shop_a.ship",
        "2 attempts ended: 2 jobs are done, 0 failed",
    ]
    assert connection.pool("default").result(job_id) == 7
    assert [job.result for job in connection.pool("shipping").list()] == ["7 by rail"]


def test_a_worker_may_start_before_the_first_push_and_its_pools_know_their_handlers(shop: Shop) -> None:
    shop.write("shop_b")

    said = shop.run("work", "shop_b", "--once", "--json")

    assert (said.code, [json.loads(line)["ended"] for line in said.output.splitlines()]) == (6, [0, 0]), said.errors
    with drumbeat.connect_blocking(shop.url) as connection:
        assert connection.pool("shipping").plan().handlers == {"shop_b.ship": "shop_b:ship"}


def test_once_runs_one_job_of_one_pool(shop: Shop, connection: drumbeat.client.BlockingConnection) -> None:
    shop.write("shop_c", SHOP.replace('ship.push(n, by="rail")', "pass"))
    first, second = (pushed(shop, connection, "shop_c", n) for n in (1, 2))

    said = shop.run("work", "shop_c", "--once", "--json")

    assert (said.code, json.loads(said.output)["finished"]) == (0, 1), said.errors
    assert [connection.pool("default").job(each).status for each in (first, second)] == [JobStatus.DONE, JobStatus.PENDING]


def test_a_pools_name_still_works_and_what_is_ambiguous_is_said(
    shop: Shop, connection: drumbeat.client.BlockingConnection
) -> None:
    shop.write("shop_d")
    shop.write("other_d", "raise RuntimeError('a file with the name of a pool is not imported')")
    job_ids = [connection.pool(name).push(3, type="x") for name in ("shop_d", "other_d")]

    ambiguous = shop.run("work", "shop_d", "--drain")
    plain = shop.run("work", "other_d", "--drain", "--handler", "command:cat")
    as_pool = shop.run("work", "shop_d", "--drain", "--no-tasks", "--handler", "command:cat")
    as_tasks = shop.run("work", "shop_d", "--drain", "--tasks")

    assert ambiguous.code == 1
    assert (
        "'shop_d' is a module with tasks of pool default, shipping, and a pool of this store; add --tasks" in ambiguous.errors
    )
    assert (plain.code, as_pool.code, as_tasks.code) == (0, 0, 0), plain.errors + as_pool.errors + as_tasks.errors
    assert [connection.pool(name).result(each) for name, each in zip(("shop_d", "other_d"), job_ids, strict=True)] == [3, 3]


TWO_STORES = """
import drumbeat

@drumbeat.task
def here(n: int) -> int:
    return n

@drumbeat.task(pool="far", store={url!r})
def there(n: int) -> int:
    return n

here_too = here.with_options(store={url!r})
"""


def test_a_task_of_another_store_leaves_nothing_in_the_store_of_its_worker(
    shop: Shop, connection: drumbeat.client.BlockingConnection
) -> None:
    elsewhere = f"sqlite:///{shop.folder}/elsewhere.db"
    shop.write("shop_s", TWO_STORES.format(url=elsewhere))

    mine = shop.run("work", "shop_s", "--drain")
    theirs = shop.run("work", "shop_s", "--drain", "--store", elsewhere)

    assert (mine.code, theirs.code) == (0, 0), mine.errors + theirs.errors
    assert "working on pool default: shop_s.here\n" in mine.errors
    assert "task shop_s.there has another store, so it is not run here; start a worker there too" in mine.errors
    assert connection.pool("default").plan().handlers == {"shop_s.here": "shop_s:here"}
    with pytest.raises(NotFound):
        connection.pool("far").get()
    with drumbeat.connect_blocking(elsewhere) as other:
        assert other.pool("far").plan().handlers == {"shop_s.there": "shop_s:there"}
        assert other.pool("default").plan().handlers == {"shop_s.here": "shop_s:here"}, "its handlers push to this store"


def test_a_module_whose_tasks_all_have_another_store_is_refused(
    shop: Shop, connection: drumbeat.client.BlockingConnection
) -> None:
    shop.write("shop_t", f"import drumbeat\n@drumbeat.task(store='sqlite:///{shop.folder}/elsewhere.db')\ndef f(): ...\n")

    done = shop.run("work", "shop_t", "--drain")

    assert done.code == 1
    assert "every task of module 'shop_t' names another store: shop_t.f; start the worker with --store URL" in done.errors
    with pytest.raises(NotFound):
        connection.pool("default").get()


def test_a_pool_with_recorded_handlers_is_worked_on_beside_a_file_of_its_name(
    shop: Shop, connection: drumbeat.client.BlockingConnection
) -> None:
    shop.write("papers_d", "def read(payload): return payload")
    connection.pool("papers_d").create(drumbeat.client.WorkPlan(handlers={"": "command:cat"}))
    job_id = connection.pool("papers_d").push(5)

    assert shop.run("work", "papers_d", "--drain").code == 0
    assert connection.pool("papers_d").result(job_id) == 5


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("nothing_e", None, "no pool 'nothing_e', and no module of that name"),
        ("empty_e", "x = 1", "expected a module with tasks, got 'empty_e', which has none"),
        ("broken_e", "import drumbeat\n@drumbeat.task\ndef f(): ...\nimport nothing_at_all", "cannot import module 'broken_e'"),
    ],
)
def test_a_name_that_cannot_be_used_is_one_line(
    shop: Shop, connection: drumbeat.client.BlockingConnection, name: str, text: str | None, says: str
) -> None:
    connection.pool("any").create()
    if text is not None:
        shop.write(name, text)

    said = shop.run("work", name, "--drain")

    assert (said.code, len(said.errors.splitlines())) == (1, 1), said.errors
    assert says in said.errors


def test_a_task_that_a_spawned_worker_cannot_import_leaves_its_job_and_says_why(
    shop: Shop, connection: drumbeat.client.BlockingConnection, caplog: pytest.LogCaptureFixture
) -> None:
    job_id = pushed(shop, connection, "gone_f", 1)
    named = ("--run-id", "default", "--worker-id", "w", "--worker-group-id", "0", "--worker-group-count", "1")

    said = ran("worker", *named, cwd=shop.folder, DRUMBEAT_STORE=shop.url)

    assert said.code == 1
    assert "this worker ends: handler 'gone_f:pack': cannot import 'gone_f': ModuleNotFoundError" in caplog.text
    assert "Traceback" not in caplog.text
    assert connection.pool("default").job(job_id).status is JobStatus.PENDING


def test_a_spawned_worker_finds_the_task_of_a_job(shop: Shop, connection: drumbeat.client.BlockingConnection) -> None:
    shop.write("shop_g", SHOP.replace('ship.push(n, by="rail")', "pass"))
    job_id = pushed(shop, connection, "shop_g", 4)
    named = ("--run-id", "default", "--worker-id", "w", "--worker-group-id", "0", "--worker-group-count", "1")

    said = ran("worker", *named, cwd=shop.folder, DRUMBEAT_STORE=shop.url)

    assert (said.code, connection.pool("default").result(job_id)) == (0, 4), said.errors


def test_a_change_of_a_file_restarts_the_workers(shop: Shop, connection: drumbeat.client.BlockingConnection) -> None:
    shop.write("shop_h", SHOP.replace('ship.push(n, by="rail")', "pass"))
    connection.pool("default").create()

    def result_of(n: int) -> Callable[[], bool]:
        job = pushed(shop, connection, "shop_h", n)
        return lambda: connection.pool("default").job(job).status is JobStatus.DONE

    words = ("pool", "work", "shop_h", "--reload")
    with started(*words, cwd=shop.folder, DRUMBEAT_STORE=shop.url) as process:
        eventually(result_of(1), "the first job is done")
        shop.write("shop_h", "def f(:")
        os.utime(shop.folder / "shop_h.py", (1, 1))
        assert process.stderr is not None
        heard = []
        while "waiting for a file change" not in (line := process.stderr.readline()):
            heard.append(line)
        broken = result_of(2)
        shop.write("shop_h", SHOP.replace('ship.push(n, by="rail")', "pass"))
        eventually(broken, "the job is done by the worker with the mended file")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=PATIENCE)

    assert process.returncode == 0, errors
    assert any("shop_h.py changed; restarting" in line for line in heard)
    assert any("cannot import module 'shop_h': SyntaxError" in line for line in [*heard, line])


def test_hidden_folders_and_virtual_environments_are_not_watched(tmp_path: Path) -> None:
    for path in ("a.py", "b/c.py", ".git/d.py", "venv/pyvenv.cfg", "venv/e.py", "b/__pycache__/f.py", "g.txt"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()

    assert {Path(path).relative_to(tmp_path).as_posix() for path in source_files(tmp_path)} == {"a.py", "b/c.py"}


def test_tasks_run_in_child_processes_too(shop: Shop, connection: drumbeat.client.BlockingConnection) -> None:
    shop.write(
        "shop_i", "import drumbeat, os\n@drumbeat.task\nasync def pack(n: int) -> list[int]: return [n * 2, os.getpid()]"
    )
    job_id = pushed(shop, connection, "shop_i", 4)

    said = shop.run("work", "shop_i", "--drain", "--executor", "processes")

    result = connection.pool("default").result(job_id)
    assert (said.code, result[0]) == (0, 8), said.errors
    assert result[1] != os.getpid()


@pytest.mark.parametrize("executor", ["async", "threads", "processes"])
def test_a_task_that_a_task_pushes_goes_to_the_workers_store(shop: Shop, executor: str) -> None:
    shop.write("shop_q")
    with drumbeat.connect_blocking(shop.url) as connection:
        pushed(shop, connection, "shop_q", 7)

        said = ran("pool", "work", "shop_q", "--drain", "--executor", executor, "--store", shop.url, cwd=shop.folder)

        assert said.code == 0, said.errors
        assert [job.result for job in connection.pool("shipping").list()] == ["7 by rail"]
    assert not (shop.folder / "drumbeat.db").exists()


def test_a_fixed_worker_id_works_at_every_start(shop: Shop, connection: drumbeat.client.BlockingConnection) -> None:
    shop.write("shop_j")
    first = pushed(shop, connection, "shop_j", 1)
    again = shop.run("work", "shop_j", "--drain", "--worker-id", "w1")
    second = pushed(shop, connection, "shop_j", 2)

    said = shop.run("work", "shop_j", "--drain", "--worker-id", "w1")

    assert (again.code, said.code) == (0, 0), again.errors + said.errors
    assert "2 attempts ended: 2 jobs are done, 0 failed" in said.errors
    assert [connection.pool("default").result(each) for each in (first, second)] == [1, 2]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("nothing_k", None, "no pool and no module 'nothing_k' in "),
        ("app_k.tasks", None, "no pool and no module 'app_k.tasks' in "),
        ("empty_k", "x = 1", "expected a module with tasks, got 'empty_k', which has none"),
        ("odd_k", "def f(:", "cannot import module 'odd_k': SyntaxError"),
        (
            "broken_k",
            "import nothing_at_all",
            "cannot import module 'broken_k': ModuleNotFoundError: No module named 'nothing_at",
        ),
        ("broken_l.tasks", "import nothing_at_all", "cannot import module 'broken_l.tasks': ModuleNotFoundError: No module"),
    ],
)
def test_without_a_store_the_modules_problem_is_told(shop: Shop, name: str, text: str | None, says: str) -> None:
    if text is not None:
        shop.write(name.partition(".")[0], text)

    said = shop.run("work", name, "--drain")

    assert (said.code, len(said.errors.splitlines())) == (1, 1), said.errors
    assert says in said.errors


def test_a_module_that_imports_its_tasks_creates_the_store_too(shop: Shop) -> None:
    shop.write("shop_m")
    shop.write("all_m", "from shop_m import pack, ship")

    said = shop.run("work", "all_m", "--drain")

    assert said.code == 0, said.errors


def test_a_store_that_does_not_answer_is_told_as_such(shop: Shop) -> None:
    shop.url = "redis://127.0.0.1:1"

    said = shop.run("work", "nothing_n", "--drain")

    assert (said.code, "module" in said.errors) == (2, False), said.errors


def test_a_module_whose_tasks_belong_to_the_pool_of_its_name_means_the_same_at_every_start(shop: Shop) -> None:
    shop.write("mail_o", 'import drumbeat\n@drumbeat.task(pool="mail_o")\ndef send(n: int) -> int: return n')

    said = [shop.run("work", "mail_o", "--drain") for _ in range(2)]

    assert [each.code for each in said] == [0, 0], said
    assert all("working on pool mail_o: mail_o.send" in each.errors for each in said)


def test_a_name_that_can_mean_two_things_is_refused_at_the_first_start_too(shop: Shop) -> None:
    shop.write("shipping", SHOP)

    first = shop.run("work", "shipping", "--drain")
    told, second = (shop.run("work", "shipping", "--drain", *more) for more in (("--tasks",), ()))

    assert (first.code, told.code, second.code) == (1, 0, 1), first.errors + told.errors + second.errors
    assert "'shipping' is a module with tasks of pool default, and a pool of one of its tasks; add --tasks" in first.errors
    assert "'shipping' is a module with tasks of pool default, and a pool of this store; add --tasks" in second.errors


@pytest.mark.parametrize("has_store", [False, True])
@pytest.mark.parametrize(
    "given", ["app_p/tasks.py", "./app_p/tasks.py", "{folder}/app_p/tasks.py", "app_p.tasks:add", "app_p/tasks"]
)
def test_the_module_of_a_file_or_a_task_is_suggested(shop: Shop, given: str, has_store: bool) -> None:
    (shop.folder / "app_p").mkdir()
    shop.write("app_p/tasks")
    if has_store:
        shop.run("create", "any")

    said = shop.run("work", given.format(folder=shop.folder), "--drain")

    assert said.code == 1
    assert said.errors.endswith("did you mean: drumbeat pool work app_p.tasks\n")


def test_a_name_that_no_pool_may_have_is_not_offered_for_creation(shop: Shop) -> None:
    shop.run("create", "any")

    said = [shop.run(*words) for words in (("work", "app/nothing.py"), ("work", "a/b", "--no-tasks"), ("pause", "a/b"))]

    assert [each.code for each in said] == [1, 1, 1]
    assert not any("pool create" in each.errors for each in said)
