"""Security headers of every response: they forbid other sites to frame a page, read a response or get a referrer."""

from collections.abc import MutableMapping, Sequence
from typing import Any

from drumbeat.web.login import LOGIN

API = "/api/"

#: NiceGUI writes inline scripts and compiles components in the browser: hence 'unsafe-inline' and 'unsafe-eval'.
#: Scripts can still load from, and connect to, this server only.
PAGES_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; worker-src 'self' blob:; object-src 'none'; base-uri 'self'; "
    "form-action 'self'; frame-ancestors 'none'"
)
LOGIN_POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
#: reports are HTML pages with styles and images, but without scripts
API_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; frame-ancestors 'none'; sandbox"

_ALWAYS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=(), payment=(), usb=()"),
)

Headers = Sequence[tuple[bytes, bytes]]


def with_security_headers(message: MutableMapping[str, Any], path: str, *, is_refusal: bool) -> MutableMapping[str, Any]:
    """Return the start message of a response with security headers added; headers that the response already sets stay.

    ``is_refusal``: the response is from the login or the access check, not from the application; it must not be cached.
    """
    given: Headers = [(bytes(name), bytes(value)) for name, value in message.get("headers", ())]
    names = {name.lower() for name, _ in given}
    added = [*_ALWAYS, (b"content-security-policy", _policy(path, is_refusal=is_refusal).encode())]
    if path.startswith(API) or is_refusal:
        added.append((b"cache-control", b"no-store"))
    return {**message, "headers": [*given, *((name, value) for name, value in added if name not in names)]}


def _policy(path: str, *, is_refusal: bool) -> str:
    if is_refusal or path == LOGIN:
        return LOGIN_POLICY
    return API_POLICY if path.startswith(API) else PAGES_POLICY
