"""Converts the options of commands that push jobs to the options of a job."""

from typing import Any

from drumbeat.cli.options import parse_age
from drumbeat.core.errors import InvalidInput


def given_options(**options: Any) -> dict[str, Any]:
    """Return the options that were given, without those that are None."""
    return {name: value for name, value in options.items() if value is not None}


def backoff_option(first: str | None, most: str | None) -> dict[str, Any] | None:
    """Return the backoff of a job from --backoff and --max-backoff; None if neither was given. Raises InvalidInput."""
    found = given_options(first=first and parse_age(first, "--backoff"), most=most and parse_age(most, "--max-backoff"))
    return found or None


def rate_option(text: str) -> dict[str, Any]:
    """Parse the rate limit of a group, such as 10/1m. Raises InvalidInput."""
    count, slash, per = text.partition("/")
    if not slash or not count.strip().isdigit():
        raise InvalidInput(f"expected --group-rate as a number and a time, such as 10/1m, got {text!r}")
    return {"count": int(count), "per": parse_age(per, "--group-rate")}
