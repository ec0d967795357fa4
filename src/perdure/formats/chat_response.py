"""A response as the message that a Chat service would have answered."""

from __future__ import annotations

from perdure.formats.chat import ChatMessage, written
from perdure.formats.values import Json, plain
from perdure.wire import Response


def to_chat_message(response: Response) -> ChatMessage:
    """A response as one message of an assistant; `metadata` has its id, model and status.

    All its items are in the one message; `from_chat_messages` gives them again. What it said before
    and after a call is one content.
    """
    items = plain(response.output)
    empty: ChatMessage = {"role": "assistant", "content": ""}
    message = written(items, answer=True) if items else empty
    metadata: Json = {
        name: value
        for name, value in (
            ("id", response.id),
            ("model", response.model),
            ("status", response.status),
        )
        if value
    }
    return {**message, "metadata": metadata} if metadata else message
