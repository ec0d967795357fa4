"""Where a request to Gemini goes, its body, and what that does not say."""

from __future__ import annotations

from urllib.parse import quote

from perdure.loop.model import ModelRequest
from perdure.models.gemini.contents import Contents
from perdure.models.gemini.settings import settings_members, version
from perdure.models.http.body import Body
from perdure.models.mapping.heads import Head, head_of, opened
from perdure.models.mapping.losses import Loss, Lost
from perdure.models.mapping.texts import json_text
from perdure.models.mapping.turns import Turns, View

_HEAD = "perdure.models.gemini:head"
_TURNS = "perdure.models.gemini:turns"


def request_body(request: ModelRequest, *, stream: bool = True) -> Body:
    """The body of `POST /models/MODEL:streamGenerateContent`, or of `:generateContent`.

    Turns are encoded once for a transcript and settings once for a drive (DESIGN 7). Calls that
    another model made are signed as such since the user last spoke, and only then.

    Raises:
        ConfigError: The API cannot do what the settings ask for.
    """
    del stream  # the address says it
    view = _view(request)
    head = _head(request, view).begin
    if view.first != "user":  # who says nothing where the model is to begin
        head += _NOTHING if view.first is None else _NOTHING + b","
    return view.between(head, b"]}")


_NOTHING = b'{"role":"user","parts":[{"text":""}]}'


def losses(request: ModelRequest) -> tuple[Loss, ...]:
    """What a request does not say to Gemini as it was given, and why. Raises as `request_body`."""
    view = _view(request)
    return (*_head(request, view).losses, *view.losses())


def _view(request: ModelRequest) -> View:
    form = Contents(version(request.settings.model or "") >= (3, 0))
    return Turns.of(request.input, (_TURNS, form), form)


def _head(request: ModelRequest, view: View) -> Head:
    """Everything before the first turn."""
    settings, system = request.settings, view.system

    def make(lost: Lost) -> bytes:
        return opened(json_text(settings_members(settings, system, lost)), "contents")

    return head_of(request.input, _HEAD, settings, make, seen=system)


def path_of(model: str, *, stream: bool) -> str:
    """Where a request for a model goes, below the base URL."""
    name = model if "/" in model else f"models/{model}"
    method = "streamGenerateContent?alt=sse" if stream else "generateContent"
    return f"/{quote(name)}:{method}"
