"""Requests of one adapter in short words, for tables: what is sent, and what is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from perdure.loop.losses import Loss
from perdure.loop.model import ModelRequest
from perdure.loop.transcript import Items
from perdure.models import Body
from perdure.wire import Item, Request, function_call_output


class BodyOf(Protocol):
    def __call__(self, request: ModelRequest, /) -> Body: ...


class Asking(NamedTuple):
    """An adapter's functions, and the settings of a request that names none."""

    request_body: BodyOf
    losses: Callable[[ModelRequest], tuple[Loss, ...]]
    settings: Request

    def asked(self, *items: Item, settings: Request | None = None) -> ModelRequest:
        return ModelRequest(settings=settings or self.settings, input=Items.of(items))

    def body(self, *items: Item, settings: Request | None = None) -> Any:
        """The body as values; its length is what it says."""
        made = self.request_body(self.asked(*items, settings=settings))
        assert made.length == len(b"".join(made.fragments))
        return made.value()

    def lost(self, *items: Item, settings: Request | None = None) -> list[tuple[str, str]]:
        """The places of losses, and what is lost there."""
        return [(loss.at, loss.what) for loss in self.losses(self.asked(*items, settings=settings))]


def output(call_id: str, text: str = "done") -> Item:
    return function_call_output(call_id, text)
