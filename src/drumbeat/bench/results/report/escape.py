"""Escapes text for each output format. Names of runs, kinds and workers are untrusted input."""

import re

_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  #: characters that XML 1.0 does not allow
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>()#+!|~])")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def markup(text: object) -> str:
    """Escape for HTML and XML, between tags and inside quoted attributes."""
    clean = _ILLEGAL.sub("�", str(text))
    for plain, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("'", "&#39;")):
        clean = clean.replace(plain, entity)
    return clean


def markdown(text: object) -> str:
    """Escape for one line of Markdown, also inside a table."""
    return _MARKDOWN.sub(r"\\\1", " ".join(_ILLEGAL.sub("�", str(text)).split()))


def label(text: object) -> str:
    """Escape for the value of a Prometheus label."""
    return str(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def cell(text: object) -> str:
    """Escape for a CSV field. Text that a spreadsheet would take for a formula gets an apostrophe in front."""
    plain = str(text)
    if isinstance(text, str) and plain.startswith(_FORMULA):
        plain = f"'{plain}"
    return '"' + plain.replace('"', '""') + '"' if re.search('[",\r\n]', plain) else plain
