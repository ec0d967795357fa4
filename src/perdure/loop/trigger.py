"""What caused a drive or brought an input in, in the caller's own terms."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from perdure.errors import ConfigError
from perdure.wire import Item

_RESERVED = frozenset({"kind", "ref", "source"})


class Trigger(msgspec.Struct, frozen=True, kw_only=True):
    """A cron job, a channel's message, a user's turn. The loop carries it and does not read it.

    Raises:
        ConfigError: `extra` names `kind`, `ref` or `source`, or holds what is not JSON.
    """

    kind: str = ""
    """The category, as `cron`."""
    ref: str = ""
    """The instance, as the job's name."""
    source: str = ""
    """The layer that took the input, as a gateway's name."""
    extra: Mapping[str, object] = {}
    """Further facts, each a JSON value."""

    def __post_init__(self) -> None:
        taken = _RESERVED & set(self.extra)
        if taken:
            raise ConfigError(f"a trigger's extra must not name {min(taken)!r}")
        for name, value in self.extra.items():
            try:
                msgspec.json.encode(value)
            except (TypeError, ValueError, OverflowError, RecursionError) as error:
                raise ConfigError(f"a trigger's extra {name!r} is not JSON: {error}") from None

    def __str__(self) -> str:
        return ":".join(word for word in (self.kind, self.ref) if word)


class Hidden(msgspec.Struct, frozen=True):
    """Marks an item that the model reads and a renderer should not show.

    Use it wherever the loop is given items: `Hidden(user("context: ..."))`.
    """

    item: Item


def unhide(given: Item | Hidden) -> tuple[Item, bool]:
    """The item, and whether it was hidden."""
    return (given.item, True) if isinstance(given, Hidden) else (given, False)
