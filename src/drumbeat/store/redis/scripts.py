"""Loads the Lua scripts: one file per atomic operation. A file's first line names the shared parts that it needs."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).parent / "lua"
_NEEDS = re.compile(r"-- needs: (.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class LuaScript:
    """A Lua script, and the SHA-1 digest by which the server finds its cached copy."""

    text: bytes
    digest: bytes


@cache
def load_scripts(clock: str | None = None) -> Mapping[str, LuaScript]:
    """Load every script, by file name. ``clock`` is Lua code that defines ``now()``; by default the server's TIME."""
    return {path.stem: _script(path, clock or _part("clock")) for path in sorted(_FOLDER.glob("*.lua"))}


def _script(path: Path, clock: str) -> LuaScript:
    body = path.read_text(encoding="utf-8")
    needs = _NEEDS.match(body)
    parts = [_part(name) for name in (needs[1].split(", ") if needs else ())]
    text = "\n".join([_part("start"), clock, *parts, "local function operate()", body, "end", _part("end")]).encode()
    return LuaScript(text=text, digest=hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())


@cache
def _part(name: str) -> str:
    return (_FOLDER / "parts" / f"{name}.lua").read_text(encoding="utf-8")
