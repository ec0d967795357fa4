"""The body of a request to the Messages API, and what it does not say."""

from __future__ import annotations

from perdure.loop.model import ModelRequest
from perdure.models.anthropic.messages import Messages
from perdure.models.anthropic.settings import settings_members
from perdure.models.http.body import Body
from perdure.models.mapping.claude import takes_inline_system
from perdure.models.mapping.heads import Head, head_of, opened
from perdure.models.mapping.losses import Loss, Lost
from perdure.models.mapping.texts import json_text
from perdure.models.mapping.turns import Turns, View

_HEAD = "perdure.models.anthropic:head"
_TURNS = "perdure.models.anthropic:turns"


def request_body(request: ModelRequest, *, stream: bool = True) -> Body:
    """The body of `POST /v1/messages`.

    Turns are encoded once for a transcript and settings once for a drive (DESIGN 7).

    Raises:
        ConfigError: The API cannot do what the settings ask for.
    """
    view = _view(request)
    return view.between(_head(request, view, stream=stream).begin, b"]}")


def losses(request: ModelRequest) -> tuple[Loss, ...]:
    """What a request does not say to Claude as it was given, and why. Raises as `request_body`."""
    view = _view(request)
    return (*_head(request, view, stream=True).losses, *view.losses())


def _view(request: ModelRequest) -> View:
    form = Messages(takes_inline_system(request.settings.model or ""))
    return Turns.of(request.input, (_TURNS, form), form)


def _head(request: ModelRequest, view: View, *, stream: bool) -> Head:
    """Everything before the first turn."""
    settings = request.settings
    seen = view.seen(names=not settings.tools)

    def make(lost: Lost) -> bytes:
        members = settings_members(settings, seen, stream=stream, lost=lost)
        return opened(json_text(members), "messages")

    return head_of(request.input, (_HEAD, stream), settings, make, seen=seen)
