"""Opens the language model that the settings name, to explain runs of benchmarks."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from drumbeat.composition.engine_settings import read_settings
from drumbeat.extras import bench_part
from drumbeat.settings import Settings

if TYPE_CHECKING:
    from drumbeat.bench.explain.client import LanguageModelClient


def open_language_model(settings: Settings, environment: Mapping[str, str]) -> "LanguageModelClient | None":
    """Return a client for the language model of the settings; None if there is none. Raises InvalidSettings, MissingExtra."""
    if not settings.language_model:
        return None
    part = bench_part("explain.settings")
    chosen = read_settings(part.LanguageModelSettings, settings.language_model, "language_model")
    client: LanguageModelClient = bench_part("explain.client").LanguageModelClient(chosen, part.read_key(chosen, environment))
    return client
