"""Secrets in the text of errors: found and replaced before anybody reads it.

Of every URL the user information, the values of the query and the fragment go, for that is where
credentials stand. What else is secret is said by patterns.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import AsyncGenerator, Iterable

from msgspec.structs import replace

from perdure.errors import ModelError, Rejected, ToolError
from perdure.loop import (
    Middleware,
    ModelRequest,
    NextModel,
    ToolOverride,
    ToolResultInfo,
)
from perdure.loop.model import close
from perdure.wire import ErrorEvent, ErrorPayload, ResponseFailed, StreamEvent, text_of

REDACTED = "REDACTED"

_URL = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'<>`{}|\\^]+")
_USER = re.compile(r"(?<=//)[^/?#]*@")
_VALUE = re.compile(r"(?<==)[^&#]*")


def redact_urls(text: str) -> str:
    """The text with the secrets of its URLs replaced."""
    return _URL.sub(_clean_url, text)


def _clean_url(found: re.Match[str]) -> str:
    address, mark, fragment = found[0].partition("#")
    head, question, query = address.partition("?")
    head = _USER.sub(f"{REDACTED}@", head)
    if query:
        query = _VALUE.sub(REDACTED, query) if "=" in query else REDACTED
    return f"{head}{question}{query}{mark}{REDACTED if fragment else ''}"


class Redactor:
    """Replaces what must not be read.

    Args:
        patterns: Regular expressions; where one has groups, its groups are replaced, else all of it
            is.
        secrets: Texts that are replaced wherever they stand.
    """

    def __init__(
        self, patterns: Iterable[str | re.Pattern[str]] = (), secrets: Iterable[str] = ()
    ) -> None:
        self._patterns = [re.compile(one) for one in patterns]
        self._secrets = sorted(filter(None, secrets), key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """The text without secrets."""
        for secret in self._secrets:
            text = text.replace(secret, REDACTED)
        for pattern in self._patterns:
            text = pattern.sub(_clean, text)
        return redact_urls(text)


def _clean(found: re.Match[str]) -> str:
    text, start = found[0], found.start()
    if not found.re.groups:
        return REDACTED
    spans = [found.span(group + 1) for group in range(found.re.groups)]
    for begin, end in sorted(spans, reverse=True):
        if begin >= 0:
            text = text[: begin - start] + REDACTED + text[end - start :]
    return text


class Redact(Middleware):
    """Redacts the text of errors, of tools and of models, for the model, the record and the log.

    A tool's own error stays, as the `__cause__` of the one that is told. Results that are no errors
    are left as they are.

    Args:
        patterns: What is secret beside the secrets of URLs; see `Redactor`.
        secrets: Texts that are secret.
    """

    per_request = True

    def __init__(self, *patterns: str | re.Pattern[str], secrets: Iterable[str] = ()) -> None:
        self._redact = Redactor(patterns, secrets)

    async def after_tool_call(self, info: ToolResultInfo) -> ToolOverride | None:
        """Redact what the model and the record read of a failed call."""
        if info.error is None:
            return None
        said, told = str(info.error), text_of(info.result.output)
        if self._redact(said) == said and self._redact(told) == told:
            return None
        error = ToolError(self._redact(said))
        error.__cause__ = info.error
        result = dataclasses.replace(info.result, output=self._redact(told), original=None)
        return ToolOverride(result=result, error=error)

    async def wrap_model_call(
        self,
        request: ModelRequest,
        next: NextModel,  # noqa: A002 - the hook's own name
    ) -> AsyncGenerator[StreamEvent, None]:
        """Redact what a failed request says."""
        stream = next(request)
        try:
            async for event in stream:
                yield self._cleaned(event)
        except ModelError as error:
            error.args = tuple(self._clean(arg) for arg in error.args)
            if isinstance(error, Rejected):
                error.message = self._redact(error.message)
            raise
        finally:
            await close(stream)

    def _cleaned(self, event: StreamEvent) -> StreamEvent:
        """The event, with what a server says in it of an error redacted."""
        if isinstance(event, ErrorEvent):
            return replace(event, error=self._payload(event.error))
        if isinstance(event, ResponseFailed) and event.response.error:
            error = self._payload(event.response.error)
            return replace(event, response=replace(event.response, error=error))
        return event

    def _payload(self, error: ErrorPayload) -> ErrorPayload:
        return replace(error, message=self._redact(error.message))

    def _clean(self, argument: object) -> object:
        return self._redact(argument) if isinstance(argument, str) else argument
