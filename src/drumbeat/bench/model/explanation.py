"""What a language model wrote about a run, and how that is stored in the run's row."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from drumbeat.core.plain import printable
from drumbeat.core.run import Run

STORED_UNDER = "explanation"  #: the key of the explanation in the custom metrics of a run's row
_LONGEST = 20_000  #: the most characters of a stored text that are shown
_MOST_NUMBERS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RunExplanation:
    """A text about a run that a language model wrote. Wherever it is shown, ``label`` stands beside it."""

    text: str
    model: str
    at: datetime
    unknown_numbers: tuple[str, ...] = ()  #: numbers in the text that are not among the figures the model was given
    shortened: bool = False  #: whether the end of the text was cut off

    @property
    def label(self) -> str:
        """Return who wrote the text and when, as a sentence."""
        cut = " Its end was cut off." if self.shortened else ""
        when = self.at.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
        return f"Written by the language model {self.model} on {when}, not by Drumbeat; it may be wrong.{cut}"

    @property
    def warning(self) -> str:
        """Return which numbers of the text are not figures of the run; empty if there are none."""
        numbers = ", ".join(self.unknown_numbers)
        return f"Numbers in this text that are not among the run's figures: {numbers}." if numbers else ""


def explanation_document(explanation: RunExplanation) -> dict[str, Any]:
    """Convert an explanation to plain data for the run's row and for JSON."""
    return {
        "text": explanation.text,
        "model": explanation.model,
        "at": explanation.at.isoformat(),
        "unknown_numbers": list(explanation.unknown_numbers),
        "shortened": explanation.shortened,
    }


def stored_explanation(run: Run) -> RunExplanation | None:
    """Return the explanation in a run's row; None if the row has no explanation or an invalid one."""
    stored = run.custom_metrics.get(STORED_UNDER)
    if not isinstance(stored, Mapping):
        return None
    try:
        at = datetime.fromisoformat(str(stored["at"]))
        numbers = stored.get("unknown_numbers") or ()
        return RunExplanation(
            text=printable(str(stored["text"])[:_LONGEST], lines=True),
            model=printable(str(stored["model"])),
            at=at if at.tzinfo else at.replace(tzinfo=UTC),
            unknown_numbers=tuple(printable(str(each)) for each in list(numbers)[:_MOST_NUMBERS]),
            shortened=bool(stored.get("shortened")),
        )
    except (KeyError, TypeError, ValueError):
        return None
