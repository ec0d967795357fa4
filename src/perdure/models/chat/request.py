"""The body of a request to a Chat Completions server, and what it does not say."""

from __future__ import annotations

from perdure.loop.model import ModelRequest
from perdure.models.chat.messages import Messages, messages
from perdure.models.chat.settings import instructions, members
from perdure.models.dialects import OPENAI, Dialect
from perdure.models.http.body import Body
from perdure.models.mapping.heads import Head, head_of
from perdure.models.mapping.losses import Loss, Lost
from perdure.models.mapping.texts import json_text

_HEAD_KEY = "perdure.models.chat:head"
_TAIL = b"]}"


def request_body(request: ModelRequest, *, stream: bool = True, dialect: Dialect = OPENAI) -> Body:
    """The body of `POST /chat/completions`.

    What is settled of the input is encoded once for a transcript, and settings once for a drive
    (DESIGN 7).

    Raises:
        ConfigError: The settings name a conversation that a server holds, or a tool whose name
            cannot be sent.
    """
    said, head = _mapped(request, dialect, stream=stream)
    before = head.begin if said.fragments else head.begin.removesuffix(b",")
    length = len(before) + said.length + len(_TAIL)
    return Body([before, *said.fragments, _TAIL], length)


def losses(request: ModelRequest, *, dialect: Dialect = OPENAI) -> tuple[Loss, ...]:
    """What of a request its service does not get, or gets in another form. Raises as above."""
    said, head = _mapped(request, dialect, stream=True)
    return (*head.losses, *said.losses)


def _mapped(request: ModelRequest, dialect: Dialect, *, stream: bool) -> tuple[Messages, Head]:
    items, settings = request.input, request.settings
    said = messages(items, dialect, dialect.thoughts_of(settings.model or ""))

    def make(lost: Lost) -> bytes:
        body = members(settings, dialect, lost, stream=stream)
        body["messages"] = instructions(settings, said.system)
        begin = json_text(body).removesuffix(_TAIL)
        return begin if begin.endswith(b"[") else begin + b","

    key = (_HEAD_KEY, dialect, stream)
    return said, head_of(items, key, settings, make, seen=said.system)
