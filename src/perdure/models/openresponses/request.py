"""The body of a request to an Open Responses server, and what it does not say."""

from __future__ import annotations

from msgspec.structs import replace

from perdure.loop.model import ModelRequest
from perdure.loop.transcript import Items
from perdure.models.http.body import Body
from perdure.models.mapping.heads import Head, head_of, opened
from perdure.models.mapping.losses import Loss, Lost
from perdure.models.mapping.settings import refuse_held
from perdure.models.openresponses.items import sent
from perdure.models.openresponses.settings import settings_members
from perdure.wire import (
    ABSENT,
    CompactRequest,
    Request,
    encode,
)

_HEAD_KEY = "perdure.models.openresponses:head"
_TAIL = b"]}"


def request_body(request: ModelRequest, *, stream: bool = True) -> Body:
    """The body of `POST /responses`.

    Items are encoded once for a transcript and settings once for a drive (DESIGN 7). Nothing is
    stored by the server: the history is sent whole (DESIGN 5). How items are sent stands in
    `items`.

    Raises:
        ConfigError: The settings name a conversation that a server holds.
    """
    items = request.input
    head = _head(request.settings, items, stream=stream)
    return sent(items).between(head.begin, _TAIL)


def losses(request: ModelRequest) -> tuple[Loss, ...]:
    """What of a request its server does not get, or gets in another form. Raises as above."""
    items = request.input
    return (*_head(request.settings, items, stream=True).losses, *sent(items).losses)


def _head(settings: Request, items: Items, *, stream: bool) -> Head:
    """Everything before the first item."""

    def make(lost: Lost) -> bytes:
        return opened(settings_members(settings, lost, stream=stream), "input")

    return head_of(items, (_HEAD_KEY, stream), settings, make)


def compact_body(request: CompactRequest) -> Body:
    """The body of `POST /responses/compact`. Raises as `request_body`."""
    refuse_held(request)
    if not isinstance(request.input, tuple):
        raw = encode(request)
        return Body([raw], len(raw))
    begin = opened(encode(replace(request, input=ABSENT)), "input")
    return sent(Items.of(request.input)).between(begin, _TAIL)
