"""Whatever is wrong: one line that begins with "drumbeat: ", the right exit code, no traceback."""

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from cli.given import COMMAND, PATIENCE, Said, drumbeat, environment, eventually, ran, started
from drumbeat.store.sql.migrate import LATEST
from servers.places import free_port
from servers.postgres import PostgresServer

SECRET = "hunter2"
WORKER = "worker --run-id p --worker-id w --worker-group-id 0 --worker-group-count 1"


def complaint(said: Said, code: int) -> str:
    """The one line a command complained with."""
    assert (said.code, said.output) == (code, ""), said
    assert "Traceback" not in said.errors
    assert said.errors.startswith("drumbeat: ")
    assert said.errors.count("\n") == 1
    assert SECRET not in said.errors
    return said.errors.removeprefix("drumbeat: ").rstrip("\n")


def tried(*words: str, cwd: Path, **variables: str) -> Said:
    """The front door is the same for all; what lives on behind it, a worker or a demo, has a process of its own."""
    return (drumbeat if words[0] in ("worker", "demo") else ran)(*words, cwd=cwd, **variables)


@pytest.mark.parametrize(
    ("command", "words", "help_of"),
    [
        ("bogus", "No such command 'bogus'", "drumbeat"),
        ("store bogus", "No such command 'bogus'", "drumbeat store"),
        ("--bogus", "No such option: --bogus", "drumbeat"),
        ("worker", "Missing option '--run-id'", "drumbeat worker"),
        ("worker --run-id p", "Missing option '--worker-id'", "drumbeat worker"),
        ("workers list", "Missing argument 'POOL'", "drumbeat workers list"),
        ("pools list extra", "Got unexpected extra argument", "drumbeat pools list"),
    ],
)
def test_arguments_that_make_no_sense(tmp_path: Path, command: str, words: str, help_of: str) -> None:
    line = complaint(ran(*command.split(), cwd=tmp_path), 1)

    assert line.startswith(words)
    assert line.endswith(f"See: {help_of} --help")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("events list p --after x", "--after"),
        ("store check --store", "--store"),
        ("events list p --after -1", "--after"),
        ("events list p --limit 0", "--limit"),
        ("beats show p 0", "[N]"),
        ("worker --run-id p --worker-id w --worker-group-id x --worker-group-count 1", "--worker-group-id"),
        ("demo --workers 0", "--workers"),
        ("demo --workers 1000", "--workers"),
    ],
)
def test_values_that_are_missing_or_out_of_bounds(tmp_path: Path, command: str, words: str) -> None:
    assert words in complaint(ran(*command.split(), cwd=tmp_path), 1)


@pytest.mark.parametrize("group", ["-1", "3", "7"])
def test_a_worker_outside_its_group(tmp_path: Path, empty: str, group: str) -> None:
    arguments = f"worker --run-id p --worker-id w --worker-group-id {group} --worker-group-count 3".split()

    line = complaint(tried(*arguments, cwd=tmp_path, DRUMBEAT_STORE=empty), 1)

    assert line == f"expected --worker-group-id to be at least 0 and less than --worker-group-count (3), got {group}"


@pytest.mark.parametrize(
    "command", ["workers list p", "events list p", "beats list p", "beats show p", "samples list p", "logs list p", WORKER]
)
def test_a_pool_or_run_that_is_not_there(tmp_path: Path, empty: str, command: str) -> None:
    line = complaint(tried(*command.split(), cwd=tmp_path, DRUMBEAT_STORE=empty), 1)

    assert line == "there is no pool 'p'; create it, or see which there are: drumbeat pools list"


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("beats show p 4", "pool 'p' has no beat 4; see: drumbeat beats list p"),
        ("beats show r1", "pool 'r1' has no beat yet; see: drumbeat beats list r1"),
        ("logs list p --level loud", "expected --level to be one of DEBUG, INFO, WARNING, ERROR, CRITICAL, got 'loud'"),
        ("store prune --older-than soon", "--older-than: expected a duration such as 200ms, 90s, 12h or 30d, got 'soon'"),
        ("pool work p --lease abc", "--lease: expected a duration such as 200ms, 90s, 12h or 30d, got 'abc'"),
        ("pool work p --timeout -1", "--timeout: expected a duration such as 200ms, 90s, 12h or 30d, got '-1'"),
        ("pool work p --grace 5x", "--grace: expected a duration such as 200ms, 90s, 12h or 30d, got '5x'"),
        ("pool create p --heartbeat 1", "--heartbeat: expected a duration such as 200ms, 90s, 12h or 30d, got '1'"),
        ("pool push p 1 --max-backoff x", "--max-backoff: expected a duration such as 200ms, 90s, 12h or 30d, got 'x'"),
        (
            "pool push p 1 --group g --group-rate 1/x",
            "--group-rate: expected a duration such as 200ms, 90s, 12h or 30d, got 'x'",
        ),
        ("events list p --after 99999999999999999999", "SQLite cannot store this value"),
    ],
)
def test_what_is_asked_for_does_not_exist(tmp_path: Path, full: str, command: str, line: str) -> None:
    assert complaint(tried(*command.split(), cwd=tmp_path, DRUMBEAT_STORE=full), 1).startswith(line)


def test_a_name_too_long_for_any_file_is_no_template(tmp_path: Path, empty: str) -> None:
    said = tried("bench", "run", "x" * 5000, cwd=tmp_path, DRUMBEAT_STORE=empty)

    assert complaint(said, 1).startswith("there is no template 'xxx")


def run(command: Sequence[str | bytes], folder: Path, store: str) -> Said:
    """Run any command, as long as it takes."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment(DRUMBEAT_STORE=store),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return Said(done.returncode, done.stdout, done.stderr)


def test_bytes_that_are_no_text(tmp_path: Path, empty: str) -> None:
    said = run([*COMMAND, "workers", "list", b"\xff\xfe"], tmp_path, empty)

    assert "SQLite cannot store this value" in complaint(said, 1)


def test_a_driver_that_is_not_installed(tmp_path: Path) -> None:
    program = "import sys; sys.modules['asyncpg'] = None; sys.argv[1:] = ['pools', 'list']; import drumbeat.__main__"

    line = complaint(run([sys.executable, "-c", program], tmp_path, "postgresql://u@127.0.0.1:1/db"), 1)

    assert line == "the PostgreSQL store needs an optional dependency; run: pip install 'drumbeat[postgres]'"


@pytest.mark.parametrize("command", ["pools list", "store check", "store init", "demo", WORKER])
def test_a_store_of_a_kind_nobody_knows(tmp_path: Path, command: str) -> None:
    url = f"mysql://u:{SECRET}@h/db"
    arguments = ["demo", "--store", url] if command == "demo" else command.split()

    line = complaint(tried(*arguments, cwd=tmp_path, DRUMBEAT_STORE=url), 1)

    kinds = "sqlite:///FILE, postgresql://USER@HOST/DATABASE, redis://HOST or snowflake://USER@ACCOUNT/DATABASE/SCHEMA"
    assert line == f"the store's URL: expected {kinds}, got 'mysql:'"


@pytest.mark.parametrize("command", ["pools list", "store check", "store init", "store migrate", "store prune", "demo", WORKER])
def test_a_store_nobody_answers_at(tmp_path: Path, command: str) -> None:
    url = f"postgresql://u:{SECRET}@127.0.0.1:{free_port()}/db"
    arguments = ["demo", "--store", url] if command == "demo" else command.split()

    line = complaint(tried(*arguments, cwd=tmp_path, DRUMBEAT_STORE=url), 2)

    assert line.startswith("PostgreSQL at postgresql://127.0.0.1:")
    assert line.endswith("is it running, and is the store's URL right?")


@pytest.mark.parametrize("command", ["pools list", "store check", "store migrate", WORKER])
def test_a_store_that_was_never_made(tmp_path: Path, url: str, command: str) -> None:
    line = complaint(tried(*command.split(), cwd=tmp_path, DRUMBEAT_STORE=url), 2)

    assert line == f"there is no store at {tmp_path}/drumbeat.db; run: drumbeat store init"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["pools list", "store check", "store init", WORKER])
def test_a_store_from_a_newer_version(tmp_path: Path, empty: str, command: str) -> None:
    connection = sqlite3.connect(tmp_path / "drumbeat.db")
    with connection:
        connection.execute("INSERT INTO schema_version VALUES (9999, 0)")
    connection.close()

    line = complaint(tried(*command.split(), cwd=tmp_path, DRUMBEAT_STORE=empty), 1)

    assert line.endswith(f"has schema version 9999, this Drumbeat knows up to {LATEST}; upgrade Drumbeat")


@pytest.mark.parametrize("command", ["pools list", "store check", "store init", WORKER])
def test_a_file_that_is_no_store(tmp_path: Path, url: str, command: str) -> None:
    path = tmp_path / "drumbeat.db"
    path.write_bytes(b"this is a poem, not a database, and long enough to be looked at" * 100)
    path.chmod(0o600)
    before = path.read_bytes()

    line = complaint(tried(*command.split(), cwd=tmp_path, DRUMBEAT_STORE=url), 1)

    assert line.startswith(f"expected a SQLite database at {path}, got a damaged or different file")
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["drumbeat.db"]


@pytest.mark.parametrize("command", ["pools list", "store check", "store init"])
def test_a_store_that_is_damaged_inside(tmp_path: Path, empty: str, command: str) -> None:
    path = tmp_path / "drumbeat.db"
    damaged = bytearray(path.read_bytes())
    damaged[100:4096] = b"\xff" * 3996
    path.write_bytes(damaged)

    complaint(tried(*command.split(), cwd=tmp_path, DRUMBEAT_STORE=empty), 1)

    assert path.read_bytes() == bytes(damaged)


def test_a_store_that_is_damaged_further_in_is_found_by_check(tmp_path: Path, full: str) -> None:
    path = Path(full.removeprefix("sqlite:///"))
    damaged = bytearray(path.read_bytes())
    damaged[8192 : 8192 + 3 * 4096] = b"\xff" * (3 * 4096)
    copy = tmp_path / "damaged.db"
    copy.write_bytes(damaged)

    said = tried("store", "check", "--store", f"sqlite:///{copy}", cwd=tmp_path)

    assert said.code == 1
    assert "Traceback" not in said.errors
    assert "problem: " in said.output or said.errors.startswith("drumbeat: expected a SQLite database")


def test_a_folder_in_place_of_a_file(tmp_path: Path) -> None:
    line = complaint(tried("store", "init", cwd=tmp_path, DRUMBEAT_STORE=f"sqlite:///{tmp_path}"), 1)

    assert line == f"expected a SQLite file at {tmp_path}, got a folder; name a file in it"


def test_a_folder_that_is_missing(tmp_path: Path) -> None:
    line = complaint(tried("store", "init", cwd=tmp_path, DRUMBEAT_STORE="sqlite:///nowhere/x.db"), 1)

    assert line == f"there is no folder {tmp_path}/nowhere for the SQLite file; create the folder first"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("store = [", "expected TOML in drumbeat.toml, got invalid TOML"),
        ("store = 3", "expected the setting store in drumbeat.toml to be text, got 3"),
        (f"password = '{SECRET}'", "unknown setting 'password' in drumbeat.toml; expected only store, state_dir"),
    ],
)
def test_a_settings_file_that_is_broken(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "drumbeat.toml").write_text(text)

    assert complaint(tried("pools", "list", cwd=tmp_path), 1).startswith(words)


def test_a_settings_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "drumbeat.toml").mkdir()

    line = complaint(tried("pools", "list", cwd=tmp_path), 1)

    assert line == "cannot read settings from drumbeat.toml: Is a directory; fix or remove it"


def test_a_database_that_is_not_there(tmp_path: Path, postgres: PostgresServer) -> None:
    line = complaint(tried("pools", "list", cwd=tmp_path, DRUMBEAT_STORE=postgres.url("nowhere")), 1)

    assert line.endswith("has no such database; create it first (createdb)")


def test_a_wrong_password(tmp_path: Path, postgres: PostgresServer, postgres_url: str) -> None:
    database = postgres_url.rpartition("/")[2]
    postgres.add_password_user(f"wrong_{database}", "right")
    url = postgres.url(database, f"wrong_{database}", SECRET)

    line = complaint(tried("pools", "list", cwd=tmp_path, DRUMBEAT_STORE=url), 1)

    assert line.endswith("refused the user or password; check the store's URL")


def test_a_leash_that_is_none(tmp_path: Path, empty: str) -> None:
    line = complaint(drumbeat(*WORKER.split(), cwd=tmp_path, DRUMBEAT_STORE=empty, DRUMBEAT_LEASH_FD="99"), 1)

    assert line.startswith("expected DRUMBEAT_LEASH_FD to be the number of a pipe")


def test_no_command_shows_help(tmp_path: Path) -> None:
    said = drumbeat(cwd=tmp_path)

    assert (said.code, said.errors) == (1, "")
    assert "Usage: drumbeat [OPTIONS] COMMAND [ARGS]..." in said.output


@pytest.mark.parametrize("command", ["events list p", "events list p --json", "logs list p"])
def test_a_reader_who_leaves_early_causes_no_noise(tmp_path: Path, full: str, command: str) -> None:
    with started(*command.split(), cwd=tmp_path, DRUMBEAT_STORE=full) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        errors = process.stderr.read()
        code = process.wait(PATIENCE)

    assert (code, errors) == (1, "")


def test_a_terminal_that_knows_little_is_no_reason_to_fail(tmp_path: Path, full: str) -> None:
    said = drumbeat("workers", "list", "p", cwd=tmp_path, DRUMBEAT_STORE=full, PYTHONIOENCODING="ascii")

    assert said.code == 0
    assert "w-busy" in said.output


def test_an_interrupted_command_says_nothing(tmp_path: Path, private_postgres: PostgresServer) -> None:
    url = private_postgres.new_database()
    patient = f"{url}?connect_timeout=50"
    with private_postgres.paused(), started("pools", "list", cwd=tmp_path, DRUMBEAT_STORE=patient) as process:
        eventually(lambda: bool(psutil.Process(process.pid).net_connections("tcp")), "a connection to the store")
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=PATIENCE)

    assert (process.returncode, output, errors) == (130, "", "")
