"""A client for the chat completions of an OpenAI-compatible API, such as that of Snowflake Cortex, to explain a run."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from drumbeat.bench.explain.answer import text_of
from drumbeat.bench.explain.settings import LanguageModelSettings
from drumbeat.core.errors import LanguageModelFailed, MissingExtra
from drumbeat.core.plain import printable, time_span

try:
    import httpx
except ImportError as exc:
    raise MissingExtra("a language model", "words") from exc

LARGEST = 256 * 1024  #: bytes of an answer; a larger one is refused
_LONGEST_DETAIL = 200
_LARGEST_REFUSAL = 4096  #: bytes of a refusal that are read for its reason


class LanguageModelClient:
    """Asks a language model once, without retries, because each request may cost money. Raises LanguageModelFailed."""

    def __init__(self, settings: LanguageModelSettings, key: str | None) -> None:
        self._settings, self._key = settings, key

    @property
    def settings(self) -> LanguageModelSettings:
        return self._settings

    async def answer(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Return the text that the model answers to these messages."""
        limit = self._settings.timeout
        try:
            async with asyncio.timeout(limit.total_seconds()):
                return text_of(await self._post(messages))
        except (TimeoutError, httpx.TimeoutException):
            within = f"within {time_span(limit)}"
            raise LanguageModelFailed(f"{self._place} did not answer {within}; try again, or raise timeout") from None
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as exc:
            said = self._clean(str(exc)) or type(exc).__name__
            raise LanguageModelFailed(
                f"{self._place} could not be reached: {said}; check url in [language_model], and the network"
            ) from exc

    async def _post(self, messages: Sequence[Mapping[str, str]]) -> bytes:
        body: dict[str, Any] = {
            "model": self._settings.model,
            "messages": list(messages),
            "max_completion_tokens": self._settings.max_tokens,
            "stream": False,
        }
        content, headers = json.dumps(body).encode(), self._headers()
        seconds = self._settings.timeout.total_seconds()  # httpx counts it from byte to byte; ``answer`` limits the whole
        async with (
            httpx.AsyncClient(timeout=seconds, follow_redirects=False) as http,
            http.stream("POST", self._settings.endpoint, content=content, headers=headers) as response,
        ):
            if response.status_code != 200:
                raise self._refusal(response.status_code, await _read(response, _LARGEST_REFUSAL))
            answer = await _read(response, LARGEST + 1)
        if len(answer) > LARGEST:
            raise LanguageModelFailed(
                f"{self._place} answered with more than {LARGEST // 1024} KiB; check url in [language_model]"
            )
        return answer

    def _headers(self) -> dict[str, str]:
        plain = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": "drumbeat",
        }
        return plain | ({"Authorization": f"Bearer {self._key}"} if self._key else {})

    def _refusal(self, status: int, body: bytes) -> LanguageModelFailed:
        """Return an error that says what an answer with this HTTP status means, and what to do."""
        source = str(self._settings.key_file or self._settings.key_variable)
        detail = self._clean(_reason(body))
        said = f": {detail}" if detail else ""
        match status:
            case 401 | 403 if self._key is None:
                what = f"asks for a key (HTTP {status}); set {source}"
            case 401 | 403:
                what = f"refuses the key in {source} (HTTP {status}); it is wrong, expired, or may not use this model"
            case 404 | 405:
                what = f"has no such address or model (HTTP {status}){said}; check url and model in [language_model]"
            case 429:
                what = "refuses for now (HTTP 429): too many requests, or no budget left; try again later"
            case _ if 300 <= status < 400:
                what = f"redirects to another address (HTTP {status}), which is not followed; check url in [language_model]"
            case _ if status >= 500:
                what = f"failed (HTTP {status}){said}; try again later"
            case _:
                what = f"refused the request (HTTP {status}){said}; check model and max_tokens"
        return LanguageModelFailed(f"{self._place} {what}")

    def _clean(self, text: str) -> str:
        """Return an endpoint's message as one short line, with the key replaced by … in case the message repeats it."""
        plain = printable(text.replace(self._key, "…") if self._key else text)
        return plain if len(plain) <= _LONGEST_DETAIL else plain[: _LONGEST_DETAIL - 1] + "…"

    @property
    def _place(self) -> str:
        return f"the language model at {self._settings.host}"


async def _read(response: httpx.Response, most: int) -> bytes:
    """Return the first ``most`` bytes of an answer."""
    content = b""
    async for chunk in response.aiter_bytes(16 * 1024):
        content += chunk
        if len(content) >= most:
            return content[:most]
    return content


def _reason(body: bytes) -> str:
    """Return the message of an error in the form of OpenAI or Snowflake; empty if it has another form."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    error = found.get("error", found) if isinstance(found, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) else ""
