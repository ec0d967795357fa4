"""One model for a run whose requests may name several."""

from __future__ import annotations

from collections.abc import AsyncIterator

from perdure.errors import ConfigError
from perdure.loop import Model, ModelRequest
from perdure.loop.model import check as check_model
from perdure.models import Resolved, resolve
from perdure.models.registry import schemes
from perdure.wire import StreamEvent


class Router:
    """Sends each request to the adapter of the model it names.

    Args:
        default: Who answers for names that nobody else does; None where every name is a string
            that says its adapter.
    """

    def __init__(self, default: Model | None) -> None:
        self._default = default
        self._adapters: dict[str, Model] = {}

    def name(self, text: str) -> str:
        """The name to send for a model string, whose adapter is remembered; any other as it is.

        Raises:
            ConfigError: The string names an adapter and no model.
        """
        scheme, colon, _ = text.partition(":")
        if not colon or scheme not in schemes():
            return text
        resolved: Resolved = resolve(text)
        self._adapters[resolved.name] = resolved.model
        return resolved.name

    def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        """The events of the response to `request`, as `Model.stream` says."""
        return self._adapter(request.settings.model or "").stream(request)

    async def check(self) -> None:
        """Raise `ConfigError` if no request could be sent."""
        if self._default is not None:
            await check_model(self._default)

    def _adapter(self, name: str) -> Model:
        adapter = self._adapters.get(name, self._default)
        if adapter is None:
            raise ConfigError(f"no adapter answers for the model {name!r}; write PROVIDER:MODEL")
        return adapter
