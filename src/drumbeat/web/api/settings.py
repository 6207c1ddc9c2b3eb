"""Converts settings and documents from JSON to the text that the services take."""

import json
from collections.abc import Mapping
from typing import Any

from drumbeat.core.errors import InvalidInput


def settings_of(settings: Mapping[str, Any]) -> list[str]:
    """``{"scaling.max_workers": 4}`` as ``scaling.max_workers=4``, like on the command line. JSON values are valid YAML."""
    for path in settings:
        if "=" in path:
            raise InvalidInput(f"settings: expected a path of fields, without '=', got {path[:100]!r}")
    return [f"{path}={json.dumps(value)}" for path, value in settings.items()]


def text_of(document: Mapping[str, Any]) -> str:
    return json.dumps(document)
