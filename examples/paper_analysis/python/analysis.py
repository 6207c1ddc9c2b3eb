"""An extractive summary: the keywords of a text, and the sentences with most of them. No network, no model."""

import re
from collections import Counter
from typing import Any

_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_WORD = re.compile(r"[a-z]+(?:-[a-z]+)*")
_STOP_WORDS = """
a about after afterwards again all although an and another any are as at be because been before behind between both but
by can cannot could did do does each either for from gave give given had has have how however if in into is it its
itself leave leaves less let like made make makes many may month more most much must never no nobody not nothing of on
once one only or other others our out over own percent provided said same say says second seconds see should simpler
since so some such than that the their them then there therefore these they this those three through to two under until
up us was we were what when where which while who whole whose will with without would yet you
"""
_STOP = frozenset(_STOP_WORDS.split())


def summarize(text: str, sentences: int = 3, keywords: int = 6) -> dict[str, Any]:
    """The title, the keywords and the most relevant sentences in their order. Raises ValueError if there is no sentence."""
    title, _, body = text.strip().partition("\n")
    found = [" ".join(each.split()) for each in _SENTENCE.split(body.strip()) if each.strip()]
    if not title or not found:
        raise ValueError("expected a title and at least one sentence")
    frequency = Counter(word for word in _WORD.findall(body.lower()) if word not in _STOP and len(word) > 2)
    relevant = sorted(range(len(found)), key=lambda n: (-_weight(found[n], frequency), n))[:sentences]
    return {
        "title": title.strip(),
        "keywords": [word for word, _ in sorted(frequency.items(), key=lambda each: (-each[1], each[0]))[:keywords]],
        "summary": [found[n] for n in sorted(relevant)],
        "sentences": len(found),
    }


def _weight(sentence: str, frequency: Counter[str]) -> float:
    """How many of the text's frequent words a sentence has, relative to its length."""
    words = [word for word in _WORD.findall(sentence.lower()) if word in frequency]
    return sum(frequency[word] for word in set(words)) / (len(words) + 5)
