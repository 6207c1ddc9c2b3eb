"""drumbeat pool work MODULE records the schedules of tasks, and removes those that their own module no longer defines."""

from collections.abc import Sequence
from pathlib import Path

import pytest

import drumbeat
from cli.given import Said, drumbeat as run

TASK = """
@drumbeat.task(cron="0 3 * * *")
def {name}(): ...
"""


class Application:
    """A folder with the modules of an application, whose workers use a store that is not in this folder."""

    def __init__(self, folder: Path, store: str) -> None:
        self.folder = folder
        self.store = store

    def write(self, name: str, *tasks: str, more: str = "") -> None:
        file = self.folder / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("import drumbeat\n" + "".join(TASK.format(name=task) for task in ("helper", *tasks)) + more)

    def work(self, module: str, *words: str) -> Said:
        """Start a worker of a module, and let it run until no job is left."""
        said = run("pool", "work", module, "--drain", *words, cwd=self.folder, DRUMBEAT_STORE=self.store)
        assert said.code == 0, said.errors
        return said


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def app(tmp_path: Path, store: str) -> Application:
    return Application(tmp_path / "one", store)


def schedules(store: str, pool: str = "default") -> Sequence[str]:
    with drumbeat.connect_blocking(store) as connection:
        return [each.name for each in connection.pool(pool).schedules.list() if not each.name.endswith("helper")]


def test_a_schedule_that_its_module_no_longer_has_is_removed_and_others_stay(app: Application, store: str) -> None:
    app.write("jobs", "nightly", "weekly")
    app.work("jobs")
    with drumbeat.connect_blocking(store) as connection:
        connection.pool("default").schedules.add("by hand", every=60)
    app.write("jobs", "weekly")

    said = app.work("jobs")

    assert schedules(store) == ["by hand", "jobs.weekly"]
    assert "removed the schedule jobs.nightly from pool default: its module no longer defines it\n" in said.errors


def test_a_schedule_belongs_to_the_module_of_its_task_and_not_to_one_that_imports_it(app: Application, store: str) -> None:
    app.write("app/mail", "nightly", "weekly")
    app.write("app/tasks", more="from app.mail import nightly, weekly")
    app.work("app.tasks")
    app.write("app/tasks")
    assert "removed" not in app.work("app.tasks").errors
    assert schedules(store) == ["app.mail.nightly", "app.mail.weekly"]

    app.write("app/mail", "weekly")
    app.write("app/tasks", more="import app.mail")
    app.work("app.tasks")

    assert schedules(store) == ["app.mail.weekly"]


def test_the_schedule_of_a_module_that_was_deleted_from_the_package_is_removed(app: Application, store: str) -> None:
    app.write("app/__init__")
    app.write("app/mail", "nightly")
    app.write("app/tasks", more="from app.mail import nightly")
    app.work("app.tasks")
    (app.folder / "app" / "mail.py").unlink()
    app.write("app/tasks")

    app.work("app.tasks")

    assert schedules(store) == []


def test_an_application_keeps_the_schedules_of_another_one_with_equally_named_modules(
    app: Application, tmp_path: Path, store: str
) -> None:
    other = Application(tmp_path / "two", store)
    app.write("jobs", "billing")
    other.write("jobs", "newsletter")
    app.work("jobs")

    said = other.work("jobs")

    assert schedules(store) == ["jobs.billing", "jobs.newsletter"]
    assert (
        f"pool default has the schedule jobs.billing of module jobs in {app.folder}/jobs.py, which is not in "
        f"{other.folder}/jobs.py; if no other application has it, remove it with: "
        "drumbeat pool schedule rm default jobs.billing\n" in said.errors
    )


def test_a_schedule_is_recorded_in_the_store_of_its_task_only(app: Application, tmp_path: Path, store: str) -> None:
    elsewhere = f"sqlite:///{tmp_path}/elsewhere.db"
    app.write("jobs", "nightly", more=f"@drumbeat.task(store={elsewhere!r}, every=3600)\ndef hourly(): ...")

    main = app.work("jobs")
    other = app.work("jobs", "--store", elsewhere)

    assert (schedules(store), schedules(elsewhere)) == (["jobs.nightly"], ["jobs.hourly"])
    assert "task jobs.hourly has another store, so its schedule is not recorded here" in main.errors
    assert "task jobs.nightly has another store" in other.errors


def test_a_worker_may_be_started_on_another_store_than_that_of_the_settings(app: Application, tmp_path: Path) -> None:
    elsewhere = f"sqlite:///{tmp_path}/elsewhere.db"
    app.write("jobs", "nightly")

    app.work("jobs", "--store", elsewhere)

    assert schedules(elsewhere) == ["jobs.nightly"]


def test_a_copy_of_a_periodic_task_for_another_pool_has_no_schedule_of_its_own(app: Application, store: str) -> None:
    app.write("jobs", "nightly", more='urgent = nightly.with_options(pool="urgent")')
    app.write("other", more="from jobs import urgent")

    app.work("jobs")
    app.work("other")

    assert (schedules(store), schedules(store, "urgent")) == (["jobs.nightly"], [])
