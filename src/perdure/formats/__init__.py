"""Histories in other formats, and back, with nothing lost.

A *history* is a list of items. A *message* is what another format has instead: a JSON object with a
role. A *carrier* holds in a message what its format cannot express; a *mark* holds in an item what
of a message's form the item does not say. `to_` and `from_` are each other's inverse, both ways.
"""

from perdure.formats.chat import ChatMessage, from_chat_messages, to_chat_messages
from perdure.formats.chat_response import to_chat_message
from perdure.formats.claude import (
    ClaudeMessage,
    ClaudeRequest,
    claude_request,
    from_claude_messages,
    to_claude_messages,
)
from perdure.formats.claude_response import to_claude_message
from perdure.formats.unsupported import (
    UnsupportedContent,
    has_unsupported_content,
    is_claude_style,
    scan_unsupported,
    unsupported_content,
    unsupported_summary,
)

__all__ = [
    "ChatMessage",
    "ClaudeMessage",
    "ClaudeRequest",
    "UnsupportedContent",
    "claude_request",
    "from_chat_messages",
    "from_claude_messages",
    "has_unsupported_content",
    "is_claude_style",
    "scan_unsupported",
    "to_chat_message",
    "to_chat_messages",
    "to_claude_message",
    "to_claude_messages",
    "unsupported_content",
    "unsupported_summary",
]
