"""The plugins of pools as the settings say: middleware, the place of large values, and their sweep."""

import os
from datetime import timedelta
from pathlib import Path

import pytest

from drumbeat.composition.plane import open_control_plane
from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import InvalidInput, InvalidSettings
from drumbeat.core.job import JobStatus
from drumbeat.core.pool_settings import PoolSettings, read_pool_settings
from drumbeat.settings import Settings, load_settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    pool = PoolSettings(large=f"file://{tmp_path}/large%20values", max_inline=1024)
    return Settings(store="memory:", state_dir=tmp_path / "state", pool=pool)


async def test_a_beat_sweeps_the_values_of_jobs_that_retention_deleted(settings: Settings, tmp_path: Path) -> None:
    clock = ManualClock()
    async with open_control_plane(settings, clock=clock) as plane:
        pool = plane.pool("papers")
        kept, gone = await pool.push("x" * 5000), await pool.push("y" * 5000)
        await pool.cancel(gone)
        await plane.store.jobs.prune(timedelta(), [JobStatus.CANCELLED])
        files = list((tmp_path / "large values").rglob("*.json"))
        for path in files:
            os.utime(path, ((clock.now() - timedelta(days=2)).timestamp(),) * 2)

        await plane.tidy()

        assert len(files) == 2
        assert len(list((tmp_path / "large values").rglob("*.json"))) == 1
        assert (await pool.job(kept)).payload == "x" * 5000


async def test_without_a_place_there_is_nothing_to_build(tmp_path: Path) -> None:
    async with open_control_plane(Settings(store="memory:", state_dir=tmp_path)) as plane:
        assert plane.plugins.large is None
        assert plane.plugins.middleware is None


async def test_middleware_of_the_settings_that_cannot_be_imported_is_named(tmp_path: Path) -> None:
    settings = Settings(store="memory:", state_dir=tmp_path, pool=PoolSettings(middleware=("nowhere:Hooks",)))
    async with open_control_plane(settings) as plane:
        with pytest.raises(InvalidInput, match="middleware 'nowhere:Hooks': cannot import 'nowhere'"):
            plane.pool("papers")


def test_settings_come_from_the_file_and_the_environment_and_go_to_children(tmp_path: Path) -> None:
    file = tmp_path / "drumbeat.toml"
    file.write_text(
        '[pool]\nmiddleware = ["a:B", "c:D"]\nlarge = "s3://bucket/prefix?endpoint=http://x"\nmax_inline = "2 KB"\n'
    )

    settings = load_settings({"DRUMBEAT_LARGE": "file:///srv/large", "DRUMBEAT_LOG_FORMAT": "json"}, file)

    assert settings.pool == PoolSettings(
        middleware=("a:B", "c:D"), large="file:///srv/large", max_inline=2048, log_format="json"
    )
    assert load_settings(settings.for_children(), tmp_path / "none").pool == settings.pool


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"midleware": []}, "unknown setting 'midleware' in the table"),
        ({"middleware": ["app"]}, "expected .pool. middleware to be a list"),
        ({"middleware": 3}, "expected .pool. middleware to be a list"),
        ({"large": "ftp://host"}, "expected .pool. large to be file:///FOLDER or s3://BUCKET"),
        ({"large": "file://host/x"}, "expected .pool. large to be file:///FOLDER"),
        ({"max_inline": "2GB"}, "expected .pool. max_inline to be a size from 1KB to 1MB"),
        ({"max_inline": True}, "expected .pool. max_inline to be a size"),
        ({"max_inline": "10B"}, "expected .pool. max_inline to be a size"),
        ({"log_format": "xml"}, "expected .pool. log_format to be one of text, json, got 'xml'"),
        ("text", "expected a table .pool."),
    ],
)
def test_a_wrong_setting_says_what_was_expected(table: object, said: str) -> None:
    with pytest.raises(InvalidSettings, match=said):
        read_pool_settings(table, "drumbeat.toml", {})


def test_a_password_in_the_place_is_refused_and_not_shown() -> None:
    with pytest.raises(InvalidSettings, match="without a password") as caught:
        read_pool_settings({"large": "s3://me:secret@bucket"}, "drumbeat.toml", {})
    assert "secret" not in str(caught.value)
