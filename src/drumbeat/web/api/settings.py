"""Settings and documents, from JSON to what the desks take."""

import json
from collections.abc import Mapping
from typing import Any

from drumbeat.core.errors import InvalidInput


def settings_of(settings: Mapping[str, Any]) -> list[str]:
    """``{"scaling.max_workers": 4}`` as the command line has it. JSON is YAML, and has no aliases."""
    for path in settings:
        if "=" in path:
            raise InvalidInput(f"settings: expected fields' paths, without =, got {path[:100]!r}")
    return [f"{path}={json.dumps(value)}" for path, value in settings.items()]


def text_of(document: Mapping[str, Any]) -> str:
    return json.dumps(document)
