"""Checksums of tables: equal for equal rows, in any SQL database and in any order of reading."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from hashlib import blake2b
from typing import Any

_BYTES = 16
_MODULUS = 1 << 8 * _BYTES
_LONGEST_INTEGER = 400  #: digits; a number with more is kept as digits and exponent


@dataclass(slots=True)
class Checksum:
    """The number of rows and the sum of their hashes. Two checksums are equal if the rows are, in any order."""

    rows: int = 0
    total: int = 0

    def add(self, row: Sequence[Any], json_places: Sequence[int]) -> int:
        """Add one row. ``json_places``: the positions of columns whose JSON is compared by its value, not its text.
        Returns the size of the row in bytes."""
        if json_places:
            values = list(row)
            for place in json_places:
                if values[place] is not None:
                    values[place] = canonical_json(values[place])
            row = tuple(values)
        encoded = repr(row).encode("utf-8", "surrogatepass")
        self.rows += 1
        self.total = (self.total + int.from_bytes(blake2b(encoded, digest_size=_BYTES).digest())) % _MODULUS
        return len(encoded)

    def __str__(self) -> str:
        return f"{self.total:0{2 * _BYTES}x}"


def canonical_json(text: str) -> str:
    """Return a JSON document in its canonical form: sorted keys, no spaces, and equal numbers written alike (1e2 as 100).
    A text that is not JSON is returned unchanged."""
    try:
        return _encode(_decode(text))
    except ValueError:
        return text


def _number(text: str) -> int | str:
    """Parse a JSON number that has a fraction or an exponent. Returns an integer if the value is whole and has at most
    ``_LONGEST_INTEGER`` digits; otherwise a text of its digits and exponent, which is the same for equal numbers."""
    sign, digits, exponent = Decimal(text).as_tuple()
    written = "".join(map(str, digits)).lstrip("0")
    bare = written.rstrip("0")
    if not bare:
        return 0
    place = int(exponent) + len(written) - len(bare)
    if place >= 0 and place + len(bare) <= _LONGEST_INTEGER:
        return int(f"{'-' if sign else ''}{bare}{'0' * place}")
    return f"\0{'-' if sign else ''}{bare}e{place}"  # no text from JSON that PostgreSQL stores begins with a zero byte


_decode = json.JSONDecoder(parse_float=_number).decode
_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
