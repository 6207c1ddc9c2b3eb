"""Writes the request to a language model: what it should do, and the figures of a run as JSON. Pure."""

import json
from collections.abc import Mapping
from typing import Any

TASK = """\
You explain the result of a database benchmark to the engineer who ran it. You get its figures as JSON.
Say in at most six short sentences what limited the run, what changed since the run before (if it is given), and what to try.
Use only numbers of the JSON, rounded at most; do not compute others. If the figures do not show something, do not say it.
Latencies are in milliseconds. Answer in English, as plain text: no Markdown, no lists, no HTML, no headings.
"""


def messages(figures: Mapping[str, Any], longest: int) -> list[dict[str, str]]:
    """Return the messages of the request. ``longest``: how many characters the answer may have."""
    task = f"{TASK}Your answer may have at most {longest} characters."
    return [{"role": "system", "content": task}, {"role": "user", "content": json.dumps(figures, separators=(",", ":"))}]
