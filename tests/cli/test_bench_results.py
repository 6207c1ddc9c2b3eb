"""bench executions, compare and regress: which run is meant, and why nothing is shown."""

import json
from pathlib import Path

import pytest

from cli.given import invoke, make_store, ran
from drumbeat.core.histogram import Histogram
from drumbeat.core.pool import PoolKind, pool
from drumbeat.core.run import Execution, ExecutionFile, Result, Run, RunId, RunStatus
from drumbeat.core.worker import WorkerId
from drumbeat.store import Store
from drumbeat.store.interface import RunChange

PATH = (RunStatus.STARTING, RunStatus.RUNNING, RunStatus.STOPPING, RunStatus.COMPLETED)


async def completed(store: Store, name: str) -> Run:
    run = await store.runs.create(Run(run_id=RunId(name), name="k", config={}), pool(name, PoolKind.BENCH))
    for status in PATH:
        run = await store.runs.update(run, RunChange(status=status, ended=status is RunStatus.COMPLETED))
    latency = Histogram()
    latency.record_all([1_000_000] * 10)
    await store.results.save([Result(run_id=run.run_id, operations=10, qps=1.0, latency=latency)])
    return run


async def scene(store: Store) -> None:
    """Three runs of one name: with operations in the store, with a file of them, with neither."""
    loaded, filed, _ = [await completed(store, name) for name in ("loaded", "filed", "bare")]
    who, at = WorkerId("w"), await store.now()
    row = Execution(
        run_id=loaded.run_id, worker_id=who, n=0, connection=0, kind="READ", started_at=at, duration_ms=1.0, ok=True
    )
    await store.executions.load(iter([row]))
    file = ExecutionFile(run_id=filed.run_id, worker_id=who, path="/elsewhere/00000.parquet", host="h", rows=1234, size=1)
    await store.results.add_file(file)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('results')}/s.db"
    make_store(url, scene)
    return url


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["loaded", "--kind", "WRITE"], "none of the 1 operations in the store matches; remove a filter"),
        (["filed"], "the store has no operations, but the workers' files have 1,234; copy them with --load"),
        (["bare"], "bare recorded no operations: it executed none, or its recording.sampling is 0"),
    ],
)
def test_why_no_operation_is_shown_is_said(store: str, arguments: list[str], said: str) -> None:
    found = invoke("bench", "executions", *arguments, store=store)

    assert (found.code, found.output) == (0, f"{said}\n")


def test_operations_of_a_run_that_is_not_there_are_an_error(store: str, tmp_path: Path) -> None:
    said = ran("bench", "executions", "nope", cwd=tmp_path, DRUMBEAT_STORE=store)

    assert said.code == 1
    assert "there is no run 'nope'" in said.errors


def test_regress_says_which_run_it_took_and_why_nothing_can_be_said(store: str) -> None:
    found = invoke("bench", "regress", "bare", store=store)

    assert found.code == 6
    assert "bare against filed, the newest good run of the same name 'k'\n" in found.output
    assert "## k, filed → k, bare: inconclusive\n" in found.output
    assert "- inconclusive: too little was measured" in found.output


def test_regress_against_a_named_run_says_so(store: str) -> None:
    assert (
        "bare against loaded, given with --against\n"
        in invoke("bench", "regress", "bare", "--against", "loaded", store=store).output
    )


def test_regress_without_a_baseline_says_what_it_looked_for(store: str) -> None:
    found = invoke("bench", "regress", "loaded", store=store)

    assert found.code == 6
    assert (
        "no good run of the same name 'k' was created in the 30 days before loaded; name a run with --against\n" in found.output
    )
    assert invoke("bench", "regress", "loaded", "--json", store=store).output == "[]\n"


def test_the_command_that_runs_a_new_template_can_be_pasted(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text("name: it's odd; rm -rf\ntarget: {url: 'sqlite:///t.db'}\nworkload: {standard: mixed}\n")

    said = ran("bench", "template", "add", "t.yaml", cwd=tmp_path, DRUMBEAT_STORE=f"sqlite:///{tmp_path}/s.db")

    assert said.code == 0
    assert said.output.endswith("""run it with: drumbeat bench run 'it'"'"'s odd; rm -rf'\n""")


def test_the_trend_of_a_kind_of_run_is_told_oldest_first(store: str) -> None:
    told = json.loads(invoke("bench", "trend", "bare", "--json", store=store).output)
    shown = invoke("bench", "trend", "bare", "--limit", "2", store=store).output

    assert [each["run_id"] for each in told["runs"]] == ["loaded", "filed", "bare"]
    assert {each["verdict"] for each in told["runs"]} == {"NO_OBJECTIVE"}
    assert (told["trends"]["operations/s"]["runs"], told["trends"]["operations/s"]["steadiness"]) == (3, "stable")
    assert "loaded" not in shown
    assert "change per run" in shown


def test_what_is_printed_as_json_is_json_also_if_a_file_is_written(store: str, tmp_path: Path) -> None:
    compared = invoke("bench", "compare", "loaded", "filed", "--json", "--html", str(tmp_path / "c.html"), store=store)
    reported = invoke("bench", "report", "loaded", "--form", "json", "--html", str(tmp_path / "r.html"), store=store)

    for said, name in ((compared, "c.html"), (reported, "r.html")):
        assert json.loads(said.output)
        assert f"report: {tmp_path / name}" in said.errors.replace("\n", "")
        assert (tmp_path / name).is_file()


@pytest.mark.parametrize("command", [["run", "t.yaml"], ["rerun", "loaded"]])
def test_a_report_of_a_run_that_is_only_started_is_refused(store: str, tmp_path: Path, command: list[str]) -> None:
    said = ran("bench", *command, "--detach", "--report", "out.html", cwd=tmp_path, DRUMBEAT_STORE=store)

    assert (said.code, said.output) == (1, "")
    assert said.errors.startswith("drumbeat: expected --detach or --report, got both")
    assert said.errors.endswith("drumbeat bench report RUN --output FILE\n")
