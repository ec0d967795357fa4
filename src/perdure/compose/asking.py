"""Whom the requests of a run of `call_model` go to, and what they are made of."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias, cast

from perdure.compose.request import apply, check_members
from perdure.compose.router import Router
from perdure.compose.turns import Dynamic, TurnContext
from perdure.driving import with_sealed_reasoning
from perdure.errors import ConfigError
from perdure.loop import Model
from perdure.models import resolve
from perdure.wire import Request

Client: TypeAlias = str | Model | Callable[[TurnContext], object]
"""A model string, a model, or a function of the turn that gives a model string."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """Who is asked, and the lowest layers of every request."""

    router: Router
    model_name: str
    base: Request
    dynamic: Mapping[str, Dynamic]
    """Functions that give a member of each request anew."""


def asking_of(client: Client, request: Request, members: Mapping[str, object]) -> Asking:
    """What a caller asks, and whom.

    Args:
        client: Who is asked.
        request: The base of every request.
        members: Members in place of its own; a function gives one anew for each request.

    Raises:
        ConfigError: The client is no model, no request has such a member, or the member no such
            value.
    """
    check_members(members)
    dynamic = {name: cast("Dynamic", value) for name, value in members.items() if callable(value)}
    static = {name: value for name, value in members.items() if name not in dynamic}
    router, name = _router(client, dynamic)
    return Asking(
        router=router,
        model_name=name,
        base=with_sealed_reasoning(apply(request, static)),
        dynamic=MappingProxyType(dynamic),
    )


def _router(client: object, dynamic: dict[str, Dynamic]) -> tuple[Router, str]:
    if isinstance(client, str):
        resolved = resolve(client)
        return Router(resolved.model), resolved.name
    if hasattr(client, "stream"):
        return Router(cast("Model", client)), ""
    if callable(client):
        dynamic["model"] = cast("Dynamic", client)
        return Router(None), ""
    raise ConfigError(f"a model is a string, a Model or a function, got {client!r}")
