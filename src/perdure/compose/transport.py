"""Hooks of a model's transport, several as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from perdure.errors import ConfigError, ModelError
from perdure.models.http.client import Hooks, HttpRequest, HttpResponse

T = TypeVar("T")

_SLOTS = ("before_request", "after_response", "on_error")


def transport_hooks(
    *hooks: object,
    before_request: Sequence[Callable[[HttpRequest], None]] = (),
    after_response: Sequence[Callable[[HttpResponse], None]] = (),
    on_error: Sequence[Callable[[HttpRequest, ModelError], None]] = (),
) -> Hooks:
    """One set of hooks of many, for the `hooks=` of a model's client.

    Args:
        hooks: Objects with any of the methods `before_request`, `after_response` and `on_error`;
            each is registered for what it has.
        before_request: Called in order before a request is sent; one that raises keeps it from
            being sent.
        after_response: Called in order when the head of an answer has come.
        on_error: Called in order with an error before it is raised.

    Raises:
        ConfigError: An object has none of the methods; nothing is ignored in silence.
    """
    befores, afters, errors = list(before_request), list(after_response), list(on_error)
    for hook in hooks:
        found = {name: getattr(hook, name, None) for name in _SLOTS}
        if not any(found.values()):
            raise ConfigError(f"{hook!r} has none of {', '.join(_SLOTS)}")
        if found["before_request"] is not None:
            befores.append(cast("Callable[[HttpRequest], None]", found["before_request"]))
        if found["after_response"] is not None:
            afters.append(cast("Callable[[HttpResponse], None]", found["after_response"]))
        if found["on_error"] is not None:
            errors.append(cast("Callable[[HttpRequest, ModelError], None]", found["on_error"]))

    def failed(request: HttpRequest, error: ModelError) -> None:
        for hook in errors:
            hook(request, error)

    return Hooks(
        before_request=_each(befores) if befores else None,
        after_response=_each(afters) if afters else None,
        on_error=failed if errors else None,
    )


def _each(hooks: Sequence[Callable[[T], None]]) -> Callable[[T], None]:
    def call(value: T) -> None:
        for hook in hooks:
            hook(value)

    return call
