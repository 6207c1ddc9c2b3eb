"""Checks the answer of a language model: its shape, its text, its length and its numbers. Pure.

A number that is not among the given figures is flagged, but the text is kept. Models round numbers and suggest numbers to try,
so refusing every such text would lose useful texts; the flag tells the reader which numbers not to believe. A text is refused
only if most of its numbers are unknown, because it is then not about this run. Numbers written as words are not checked.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from drumbeat.core.errors import LanguageModelFailed
from drumbeat.core.plain import printable

MOST_UNKNOWN = 2  #: a text with more unknown numbers than this is refused if they are more than the known ones
_MARKUP = re.compile(r"<[a-zA-Z/!][^>]*>")
_LIST_NUMBER = re.compile(r"^\s*[0-9]{1,2}[.)]\s", re.MULTILINE)
_NUMBER = re.compile(
    r"(?<!\w)(?<!\w[.,])[0-9][0-9,]*(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,3}\b)?(?:[kM](?![A-Za-z]))?(?![0-9]|(?:th|st|nd|rd)\b)"
)
_FACTORS = {"k": 1e3, "M": 1e6}
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedAnswer:
    """A language model's text after the check: which of its numbers are not among the given figures, and if it was cut."""

    text: str
    unknown_numbers: tuple[str, ...] = ()
    shortened: bool = False


def text_of(body: bytes) -> str:
    """Return the text in the answer of an OpenAI-compatible endpoint. Raises LanguageModelFailed for any other answer."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        looks_like = "HTML" if body.lstrip()[:1] == b"<" else "something else"
        raise LanguageModelFailed(
            f"expected JSON from the language model, got {looks_like}; check url in [language_model]"
        ) from None
    try:
        content = found["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError):
        raise LanguageModelFailed(
            "expected choices[0].message.content in the language model's answer, got other JSON; check url in [language_model]"
        ) from None
    text = _joined(content)
    if not text.strip():
        raise LanguageModelFailed("expected a text from the language model, got none; try again, or raise max_tokens")
    return text


def _joined(content: Any) -> str:
    """Return the text of a message; some endpoints split it into parts."""
    if isinstance(content, list):
        parts = [each.get("text") for each in content if isinstance(each, dict)]
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def check(text: str, numbers: Iterable[float], longest: int) -> CheckedAnswer:
    """Return the text without control characters, cut to ``longest`` characters, and those of its numbers not in ``numbers``.

    Raises LanguageModelFailed for a text with markup, or in which most numbers are unknown.
    """
    if _MARKUP.search(text):
        raise LanguageModelFailed("expected plain text from the language model, got markup; try again, or use another model")
    clean = printable(text[: 20 * longest], lines=True)
    if not clean:
        raise LanguageModelFailed("expected a text from the language model, got only control characters; try again")
    kept = _cut(clean, longest)
    known, unknown = _sorted_numbers(kept, [abs(each) for each in numbers])
    if len(unknown) > max(MOST_UNKNOWN, len(known)):
        raise LanguageModelFailed(
            f"the language model's answer is not about this run: {len(unknown)} of its {len(unknown) + len(known)} numbers are "
            "not among the run's figures; try again, or use another model"
        )
    return CheckedAnswer(text=kept, unknown_numbers=tuple(unknown), shortened=len(kept) < len(clean))


def _cut(text: str, longest: int) -> str:
    """Return the sentences of a text that fit into ``longest`` characters; if none does, its first characters."""
    if len(text) <= longest:
        return text
    ends = [found.end() for found in _SENTENCE_END.finditer(text[: longest + 1]) if found.end() <= longest]
    return text[: ends[-1]] if ends else text[: longest - 1] + "…"


def _sorted_numbers(text: str, figures: list[float]) -> tuple[list[str], list[str]]:
    """Return the numbers in a text that are among the figures, and those that are not, each once."""
    known: list[str] = []
    unknown: list[str] = []
    for found in dict.fromkeys(_numbers(_LIST_NUMBER.sub(" ", text))):
        (known if any(_rounds_to(figure, found) for figure in figures) else unknown).append(found)
    return known, unknown


def _numbers(text: str) -> Iterator[str]:
    """Yield the numbers in a text, except those inside names such as p95 and ordinals such as 95th. Digits of other scripts are
    yielded too."""
    for found in _NUMBER.finditer(text):
        yield found[0].rstrip(",")
    for is_other, signs in groupby(text, lambda sign: sign.isnumeric() and not sign.isascii()):
        if is_other:
            yield "".join(signs)


def _rounds_to(figure: float, text: str) -> bool:
    """Whether a figure, rounded to the precision of the number in ``text``, equals this number. Zeros at the end of a whole
    number count as rounded digits, except its first two digits: 12,000 stands for 11,500 to 12,500."""
    if not text.isascii():
        return False
    factor, digits = _FACTORS.get(text[-1], 1.0), text.rstrip("kM").replace(",", "")
    try:
        value = float(digits) * factor
    except ValueError:
        return False
    if value == 0:
        return figure == 0
    whole, _, decimals = digits.partition(".")
    zeros = 0 if decimals or "e" in digits.lower() else min(len(whole) - len(whole.rstrip("0")), max(len(whole) - 2, 0))
    unit = factor * 10.0 ** (zeros - len(decimals.lower().partition("e")[0]))
    return abs(figure - value) <= unit / 2 * (1 + 1e-9)
