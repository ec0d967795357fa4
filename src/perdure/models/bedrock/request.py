"""Where a request to Converse goes, its body, and what that does not say."""

from __future__ import annotations

from urllib.parse import quote

from perdure.loop.model import ModelRequest
from perdure.models.bedrock.messages import Converse
from perdure.models.bedrock.settings import is_claude, settings_members
from perdure.models.http.body import Body
from perdure.models.mapping.heads import Head, head_of, opened
from perdure.models.mapping.losses import Loss, Lost
from perdure.models.mapping.texts import json_text
from perdure.models.mapping.turns import Turns, View

_HEAD = "perdure.models.bedrock:head"
_TURNS = "perdure.models.bedrock:turns"
_BEGIN = b'{"role":"user","content":[{"text":"."}]},'
"""What the user says where the assistant begins, and the model does not take that."""


def request_body(request: ModelRequest, *, stream: bool = True) -> Body:
    """The body of `POST /model/MODEL/converse-stream`, or of `/converse`.

    Turns are encoded once for a transcript and settings once for a drive (DESIGN 7).

    Raises:
        ConfigError: The API cannot do what the settings ask for.
    """
    del stream  # the address says it
    view = _view(request)
    head = _head(request, view).begin
    if view.first == "assistant" and not is_claude(request.settings.model or ""):
        head += _BEGIN
    return view.between(head, b"]}")


def losses(request: ModelRequest) -> tuple[Loss, ...]:
    """What a request does not say to its model as it was given, and why.

    Raises as `request_body`.
    """
    view = _view(request)
    return (*_head(request, view).losses, *view.losses())


def _view(request: ModelRequest) -> View:
    model = request.settings.model or ""
    form = Converse(claude=is_claude(model), nova="nova" in model)
    return Turns.of(request.input, (_TURNS, form), form)


def _head(request: ModelRequest, view: View) -> Head:
    """Everything before the first turn."""
    settings = request.settings
    seen = view.seen(names=not settings.tools or settings.tool_choice == "none")

    def make(lost: Lost) -> bytes:
        return opened(json_text(settings_members(settings, seen, lost)), "messages")

    return head_of(request.input, _HEAD, settings, make, seen=seen)


def path_of(model: str, *, stream: bool) -> str:
    """Where a request for a model goes, below the base URL."""
    return f"/model/{quote(model, safe='')}/{'converse-stream' if stream else 'converse'}"
