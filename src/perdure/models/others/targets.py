"""Other models than a drive's own, for one request."""

from __future__ import annotations

from typing import TypeAlias

from msgspec.structs import replace

from perdure.errors import ConfigError
from perdure.loop import ModelRequest
from perdure.loop.model import Model
from perdure.loop.transcript import filtered
from perdure.models.registry import Resolved, resolve
from perdure.wire import Reasoning

Target: TypeAlias = str | Resolved | Model
"""Who is to answer: a model string, a client with the name to send, or a model that needs none."""


def target_of(given: Target) -> Resolved:
    """Who a target names.

    Raises:
        UnknownModel: It is a string that names nobody.
        ConfigError: It is none.
    """
    if isinstance(given, str):
        return resolve(given)
    if isinstance(given, Resolved):
        return given
    if not hasattr(given, "stream"):
        raise ConfigError(f"a model is a string or has a stream method, got {given!r}")
    return Resolved(given, "")


def aimed(request: ModelRequest, target: Resolved) -> ModelRequest:
    """The request, for another model. A target without a name gets the one that is there."""
    name = target.name or request.settings.model
    return replace(request, settings=replace(request.settings, model=name), via=target.model)


def is_at(request: ModelRequest, target: Resolved) -> bool:
    """Whether a request is for a target."""
    named = not target.name or request.settings.model == target.name
    return named and request.via is target.model


def without_thoughts(request: ModelRequest) -> ModelRequest:
    """The request without thoughts: they are signed for the model that had them."""
    kept = filtered(request.input, lambda item: not isinstance(item, Reasoning))
    return request if len(kept) == len(request.input) else replace(request, input=kept)
