"""Converts settings and documents from JSON to the text that services accept."""

import json
from collections.abc import Mapping
from typing import Any

from drumbeat.core.errors import InvalidInput


def settings_of(settings: Mapping[str, Any]) -> list[str]:
    """Convert ``{"scaling.max_workers": 4}`` to ``["scaling.max_workers=4"]``, as on the command line, with values as JSON."""
    for path in settings:
        if "=" in path:
            raise InvalidInput(f"settings: expected a path such as scaling.mode, without '=', got {path[:100]!r}")
    return [f"{path}={json.dumps(value)}" for path, value in settings.items()]


def text_of(document: Mapping[str, Any]) -> str:
    return json.dumps(document)
