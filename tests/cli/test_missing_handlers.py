"""A handler that cannot be loaded keeps its own jobs waiting, not those of the pool's other handlers."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import drumbeat
from cli.given import Said, ran
from drumbeat.client import BlockingConnection, WorkPlan
from drumbeat.core.job import JobStatus
from drumbeat.pool.explain import ReasonCode

TASK = "import drumbeat\n@drumbeat.task\ndef keep(n: int) -> int: return n\n"


class Shop:
    """A folder with modules, and a store whose pool ``default`` has handlers."""

    def __init__(self, folder: Path, connection: BlockingConnection) -> None:
        self.folder = folder
        self.connection = connection
        self.pool = connection.pool("default")

    def write(self, name: str, text: str = TASK) -> None:
        (self.folder / f"{name}.py").write_text(text)

    def push(self, kind: str) -> str:
        job_id: str = self.pool.push({"args": [1], "kwargs": {}}, type=kind)
        return job_id

    def run(self, *arguments: str) -> Said:
        return ran("pool", *arguments, cwd=self.folder, DRUMBEAT_STORE=f"sqlite:///{self.folder}/jobs.db")

    def statuses(self, *job_ids: str) -> list[JobStatus]:
        return [self.pool.job(each).status for each in job_ids]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    before = set(sys.modules)
    with drumbeat.connect_blocking(f"sqlite:///{tmp_path}/jobs.db") as connection:
        yield Shop(tmp_path, connection)
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


CAUSES = {
    "other_a:gone": "handler 'other_a:gone': module 'other_a' has no 'gone'",
    "wrong_a:gone": "handler 'wrong_a:gone': cannot import 'wrong_a': SyntaxError",
    "nowhere_a:gone": "handler 'nowhere_a:gone': cannot import 'nowhere_a': ModuleNotFoundError",
}


@pytest.mark.parametrize("spec", CAUSES)
@pytest.mark.parametrize("kind", ["keep", ""], ids=["by type", "for every other type"])
def test_a_worker_runs_the_types_whose_handlers_load_and_says_which_does_not(
    shop: Shop, caplog: pytest.LogCaptureFixture, kind: str, spec: str
) -> None:
    shop.write("other_a")
    shop.write("wrong_a", "def f(:")
    shop.pool.create(WorkPlan(handlers={"gone": spec, kind: "other_a:keep"}))
    keeps, waits = shop.push("keep"), shop.push("gone")

    said = shop.run("work", "default", "--drain")

    assert (said.code, shop.statuses(keeps, waits)) == (0, [JobStatus.DONE, JobStatus.PENDING]), said.errors
    [warning] = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert warning.startswith(f"this worker does not run jobs of type 'gone', they stay pending: {CAUSES[spec]}")
    assert warning.endswith("remove the handler with: drumbeat pool create default --update --remove-handler gone")


def test_status_and_explain_say_why_jobs_of_such_a_type_wait(shop: Shop) -> None:
    shop.write("other_b")
    shop.pool.create(WorkPlan(handlers={"gone": "other_b:gone", "keep": "other_b:keep"}))
    waits = shop.push("gone")
    shop.run("work", "default", "--drain")

    said = "workers cannot load the handler 'other_b:gone': module 'other_b' has no 'gone'"
    assert f"1 job of type 'gone' waits: {said}" in shop.run("status", "default").output
    explained = shop.pool.explain(waits)
    assert explained.why is ReasonCode.NO_HANDLER
    assert said in str(explained)
    shop.pool.update(handlers={"gone": "command:cat"})
    assert shop.pool.status().no_handler is None


def test_a_worker_that_can_load_no_handler_ends_and_status_says_why_at_once(shop: Shop) -> None:
    shop.write("other_c")
    shop.pool.create(WorkPlan(handlers={"gone": "other_c:gone", "lost": "other_c:lost"}))
    waits = shop.push("gone")

    said = shop.run("work", "default", "--drain")

    cause = "handler 'other_c:gone': module 'other_c' has no 'gone'"
    assert said.code == 1
    assert f"the last worker failed: {cause}" in shop.run("status", "default").output
    assert f"the last worker failed: {cause}" in str(shop.pool.explain(waits))


def test_handlers_that_only_the_command_names_must_all_be_loaded(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    keeps = shop.push("keep")

    said = shop.run("work", "default", "--drain", "--handler", "keep=command:cat", "--handler", "gone=os:gone")

    assert (said.code, shop.statuses(keeps)) == (1, [JobStatus.PENDING])
    assert "this worker ends: handler 'os:gone': module 'os' has no 'gone'" in caplog.text


def test_a_module_that_lost_a_task_removes_its_handler_and_names_jobs_that_wait(shop: Shop) -> None:
    shop.connection.record_handlers("default", {"other_d.keep": "other_d:keep", "other_d.gone": "other_d:gone"})
    shop.connection.record_handlers("mail", {"other_d.sent": "other_d:sent"})
    shop.write("other_d")
    keeps, waits = shop.push("other_d.keep"), shop.push("other_d.gone")

    said = shop.run("work", "other_d", "--drain")

    assert (said.code, shop.statuses(keeps, waits)) == (0, [JobStatus.DONE, JobStatus.PENDING]), said.errors
    assert said.errors.splitlines()[:2] == [
        "removed the handler of type other_d.gone from pool default: module other_d no longer has this task; 1 job of type "
        "other_d.gone has no function any more: if the task was renamed, give it its old name, @task(name='other_d.gone'), or "
        "cancel it with: drumbeat pool cancel default --type other_d.gone",
        "removed the handler of type other_d.sent from pool mail: module other_d no longer has this task",
    ]
    assert shop.pool.plan().handlers == {"other_d.keep": "other_d:keep"}
    assert "1 job of type 'other_d.gone' waits: no handler" in (shop.pool.status().no_handler or "")
    assert "removed" not in shop.run("work", "other_d", "--drain").errors


def test_handlers_of_other_modules_and_by_hand_and_tasks_that_are_still_there_stay(shop: Shop) -> None:
    recorded = {
        "x": "shop_e:x",
        "other_e.in_class": "other_e:Mail.send",
        "old name": "other_e:keep",
        "replaced": "other_e:gone",
    }
    by_hand = {"by hand": "other_e:gone", "plain": "other_e:plain", "replaced": "other_e:gone"}
    shop.pool.create(WorkPlan(handlers={"by hand": "other_e:gone"}))
    shop.connection.record_handlers("default", {**recorded, "by hand": "other_e:gone"})
    shop.pool.update(handlers={"plain": "other_e:plain", "replaced": "other_e:gone"})
    in_class = "class Mail:\n    @staticmethod\n    @drumbeat.task\n    def send(): ...\n"
    shop.write("other_e", f"{TASK}def plain(payload): ...\n{in_class}")

    said = shop.run("work", "other_e", "--drain")

    assert (said.code, "removed" in said.errors) == (0, False), said.errors
    assert shop.pool.plan().handlers == {**recorded, **by_hand, "other_e.keep": "other_e:keep"}


def test_a_function_that_is_no_longer_a_task_loses_the_handler_it_recorded(shop: Shop) -> None:
    shop.connection.record_handlers("default", {"other_f.plain": "other_f:plain"})
    shop.write("other_f", TASK + "def plain(n): ...\n")

    said = shop.run("work", "other_f", "--drain")

    assert "removed the handler of type other_f.plain from pool default" in said.errors
