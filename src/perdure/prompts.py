"""What people write as a prompt, as items."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.loop import Hidden
from perdure.wire import Item, Part, user

Input = str | Part | Item | Hidden | Sequence[Item | Hidden]
"""What a run begins from: a text or a part that the user says, an item, or items."""


def prompt_items(given: Input) -> tuple[Item | Hidden, ...]:
    """The prompt as items."""
    if isinstance(given, str | Part):
        return (user(given),)
    if isinstance(given, Item | Hidden):
        return (given,)
    return tuple(given)
