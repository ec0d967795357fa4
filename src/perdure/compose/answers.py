"""Whether an answer says anything."""

from __future__ import annotations

from perdure.wire import FunctionCall, Item, Message, OutputText, Part, Reasoning, Refusal, Response


def is_empty_answer(response: Response, *, calls_count: bool = True) -> bool:
    """Whether a response says nothing: no text, no call, nothing a provider's tool made."""
    if not calls_count:
        return all(
            isinstance(item, FunctionCall) or is_empty_item(item) for item in response.output
        )
    return all(is_empty_item(item) for item in response.output)


def is_empty_item(item: Item) -> bool:
    """Whether an item says nothing."""
    if isinstance(item, Reasoning):
        return True
    if not isinstance(item, Message):
        return False
    if isinstance(item.content, str):
        return not item.content
    return item.role == "assistant" and not any(_says(part) for part in item.content)


def _says(part: Part) -> bool:
    if isinstance(part, OutputText):
        return bool(part.text)
    return bool(part.refusal) if isinstance(part, Refusal) else True
