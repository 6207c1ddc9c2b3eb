"""Cron triggers in the user's crontab: ours come and go, the user's own lines stay as they are."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from drumbeat.core.errors import InvalidInput, InvalidSettings
from drumbeat.triggers import crontab
from drumbeat.triggers.crontab import CronPlace, install, installed, lines, merged, remove
from triggers.given import trigger

FAKE = """#!/bin/sh
# Keeps a crontab in $CRONTAB_FILE as the real one does.
case "$1" in
  -l) if [ -f "$CRONTAB_FILE" ]; then cat "$CRONTAB_FILE"; else echo "no crontab for me" >&2; exit 1; fi ;;
  -) if [ -n "$CRONTAB_REFUSES" ]; then echo "bad minute" >&2; exit 1; fi; cat > "$CRONTAB_FILE" ;;
  *) exit 2 ;;
esac
"""
OWN = "MAILTO=me@example.org\n# my own\n0 3 * * * /usr/bin/backup --all  # nightly\n\n* * * * * echo '% sign'\n"
EVERY = trigger("often", schedule="*/5 * * * *", pool_id="papers")


def place(folder: Path, file: str = "triggers.yml", store: str | None = None, **variables: str) -> CronPlace:
    return CronPlace(file=folder / file, folder=folder, state_dir=folder / ".drumbeat", store=store, variables=variables)


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the fake crontab command on PATH keeps its lines."""
    command, kept = tmp_path / "bin" / "crontab", tmp_path / "kept"
    command.parent.mkdir()
    command.write_text(FAKE)
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}:/usr/bin:/bin")
    monkeypatch.setenv("CRONTAB_FILE", str(kept))
    return kept


async def test_lines_are_installed_into_an_empty_crontab_and_removed_again(table: Path, tmp_path: Path) -> None:
    put = await install([EVERY, trigger("push", "subprocess")], place(tmp_path))

    assert table.read_text() == f"{put[0]}\n"
    assert len(put) == 1
    assert put[0].startswith("*/5 * * * * cd ")
    assert (tmp_path / ".drumbeat" / "triggers").is_dir()
    assert await remove(tmp_path / "triggers.yml") == put
    assert table.read_text() == ""


async def test_the_users_own_lines_stay_as_they_are(table: Path, tmp_path: Path) -> None:
    table.write_text(OWN)

    await install([EVERY], place(tmp_path))
    assert table.read_text().startswith(OWN)
    await remove(tmp_path / "triggers.yml")

    assert table.read_text() == OWN


async def test_installing_twice_is_installing_once_and_a_new_schedule_replaces_the_old(table: Path, tmp_path: Path) -> None:
    for schedule in ("*/5 * * * *", "*/5 * * * *", "@hourly"):
        await install([trigger("often", schedule=schedule)], place(tmp_path))

    (line,) = table.read_text().splitlines()
    assert line.startswith("@hourly cd ")


async def test_files_do_not_touch_each_others_lines(table: Path, tmp_path: Path) -> None:
    await install([EVERY], place(tmp_path, "a.yml"))
    await install([EVERY], place(tmp_path, "b.yml"))

    assert len(await remove(tmp_path / "a.yml")) == 1
    assert await remove(tmp_path / "a.yml") == []
    assert len(installed(table.read_text(), tmp_path / "b.yml")) == 1


async def test_what_crontab_complains_of_is_told(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRONTAB_REFUSES", "1")

    with pytest.raises(InvalidInput, match="got exit code 1: bad minute"):
        await install([EVERY], place(tmp_path))


async def test_without_crontab_there_is_another_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(InvalidInput, match="use: drumbeat trigger serve"):
        await remove(tmp_path / "triggers.yml")


def test_a_line_runs_the_trigger_in_its_folder_whatever_the_folder_is_called(tmp_path: Path) -> None:
    odd = tmp_path / "it's 100% odd; $HOME"
    odd.mkdir()

    (line,) = lines([EVERY], place(odd, store="sqlite:///a b.db"))

    command = line.removeprefix("*/5 * * * * ").replace(r"\%", "%")
    assert r"\%" in line
    assert "%" not in line.replace(r"\%", ""), "to cron a bare % ends the command"
    (odd / ".drumbeat" / "triggers").mkdir(parents=True)
    subprocess.run(["sh", "-c", command.replace(shlex.quote(sys.executable), "echo")], check=True)
    said = (odd / ".drumbeat" / "triggers" / "cron.log").read_text()
    assert said == f"-m drumbeat trigger fire often --file {odd}/triggers.yml --store sqlite:///a b.db\n"


def test_a_line_sets_the_variables_whatever_they_contain(tmp_path: Path) -> None:
    odd = "file:///it's 100% odd; $HOME"
    (tmp_path / ".drumbeat" / "triggers").mkdir(parents=True)

    (line,) = lines([EVERY], place(tmp_path, DRUMBEAT_LARGE=odd, DRUMBEAT_MAX_INLINE="1024B"))

    assert "%" not in line.replace(r"\%", "")
    settings = line.removeprefix("*/5 * * * * ").replace(r"\%", "%").partition(shlex.quote(sys.executable))[0]
    subprocess.run(["sh", "-c", f"{settings} env > said"], check=True)
    said = (tmp_path / "said").read_text().splitlines()
    assert {f"DRUMBEAT_LARGE={odd}", "DRUMBEAT_MAX_INLINE=1024B"} <= {*said}


def test_a_zone_that_cron_would_not_keep_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="cron uses this machine's time zone"):
        lines([trigger(schedule="0 3 * * *", timezone="Europe/Vienna")], place(tmp_path))


def test_a_line_break_never_gets_into_a_crontab(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="without line breaks"):
        lines([EVERY], place(tmp_path / "a\n* * * * * evil"))


def test_a_crontab_without_a_last_line_break_gets_one(tmp_path: Path) -> None:
    assert merged("0 3 * * * a", ["b"], tmp_path) == "0 3 * * * a\nb\n"


def test_the_mark_says_whose_lines_they_are(tmp_path: Path) -> None:
    (line,) = crontab.lines([EVERY], place(tmp_path))

    assert line.endswith(f" # drumbeat-trigger {tmp_path}/triggers.yml")
