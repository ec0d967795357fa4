"""What people write as a prompt, as items."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.errors import ConfigError
from perdure.loop import Hidden
from perdure.wire import Item, Part, user

Input = str | Part | Item | Hidden | Sequence[Item | Hidden]
"""What a run begins from: a text or a part that the user says, an item, or items."""


def prompt_items(given: Input) -> tuple[Item | Hidden, ...]:
    """The prompt as items.

    Raises:
        ConfigError: It is something else.
    """
    if isinstance(given, str | Part):
        return (user(given),)
    if isinstance(given, Item | Hidden):
        return (given,)
    elements: list[object] = list(given) if isinstance(given, list | tuple) else [given]
    for element in elements:
        if not isinstance(element, Item | Hidden):
            raise ConfigError(
                f"a prompt is a text, a part, an item, or a list of items, not {element!r}; "
                "make items with user(...), or decode_items(...)"
            )
    return tuple(given)
