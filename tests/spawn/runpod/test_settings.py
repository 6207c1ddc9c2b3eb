"""RunPod's settings from the environment, checked whole."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from drumbeat.core.errors import InvalidSettings
from drumbeat.spawn.runpod.settings import VARIABLES, Cloud, RunPodSettings

LEAST = {"RUNPOD_MAX_PRICE_PER_HOUR": "0.5", "RUNPOD_WORKER_IMAGE": "drumbeat/worker:1"}


def test_an_image_and_a_ceiling_are_enough() -> None:
    assert RunPodSettings.from_environment(LEAST) == RunPodSettings(image="drumbeat/worker:1", max_price_per_hour=0.5)


def test_every_variable_is_read() -> None:
    settings = RunPodSettings.from_environment(
        {
            **LEAST,
            "RUNPOD_GPU_TYPE": "NVIDIA L4, NVIDIA A100",
            "RUNPOD_CLOUD": "secure,COMMUNITY",
            "RUNPOD_DATA_CENTERS": "EU-RO-1",
            "RUNPOD_GPU_COUNT": "2",
            "RUNPOD_MIN_GPU_MEMORY_GB": "24",
            "RUNPOD_NETWORK_VOLUME_ID": "vol",
            "RUNPOD_CONTAINER_DISK_GB": "",
        }
    )

    assert settings.gpu_types == ("NVIDIA L4", "NVIDIA A100")
    assert settings.clouds == (Cloud.SECURE, Cloud.COMMUNITY)
    assert (settings.data_centers, settings.gpu_count, settings.min_gpu_memory_gb) == (("EU-RO-1",), 2, 24)
    assert (settings.network_volume_id, settings.container_disk_gb) == ("vol", 50)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"RUNPOD_MAX_PRICE_PER_HOUR": ""}, "RUNPOD_MAX_PRICE_PER_HOUR"),
        ({"RUNPOD_MAX_PRICE_PER_HOUR": "cheap"}, "RUNPOD_MAX_PRICE_PER_HOUR, got 'cheap'"),
        ({"RUNPOD_MAX_PRICE_PER_HOUR": "0"}, "above 0"),
        ({"RUNPOD_MAX_PRICE_PER_HOUR": "nan"}, "above 0"),
        ({"RUNPOD_WORKER_IMAGE": ""}, "an image or a template"),
        ({"RUNPOD_CLOUD": "moon"}, "SECURE, COMMUNITY"),
        ({"RUNPOD_GPU_COUNT": "0"}, "RUNPOD_GPU_COUNT of 1 or more, got 0"),
        ({"RUNPOD_DISK_SIZE_GB": "5"}, "RUNPOD_DISK_SIZE_GB of 0, or 10 or more, got 5"),
        ({"RUNPOD_DISK_SIZE_GB": "20", "RUNPOD_NETWORK_VOLUME_ID": "v"}, "got both"),
        ({"RUNPOD_CONTAINER_DISK_GB": "0"}, "RUNPOD_CONTAINER_DISK_GB of 1 or more, got 0"),
    ],
    ids=str,
)
def test_what_cannot_be_rented_is_refused(change: Mapping[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidSettings, match=complaint):
        RunPodSettings.from_environment({**LEAST, **change})


def test_the_page_names_every_variable() -> None:
    page = (Path(__file__).parents[3] / "docs" / "runpod.md").read_text(encoding="utf-8")

    assert [name for name in (*VARIABLES, "RUNPOD_API_KEY") if f"`{name}`" not in page] == []
