"""The 1,000 last names of TPC-C's customers: all combinations of three of ten syllables, as the standard defines."""

_SYLLABLES = ("BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING")

LAST_NAMES = tuple(a + b + c for a in _SYLLABLES for b in _SYLLABLES for c in _SYLLABLES)
