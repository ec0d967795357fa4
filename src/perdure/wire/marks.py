"""What stands on wire values for one provider or one format alone: marks, and types of its own.

A *mark* is a member `perdure:NAME` that an adapter gave to an item or a part, so that its provider
gets back exactly what it said; `perdure:PROVIDER` holds members of the provider's own form. Items,
parts, tools and annotations of a type `PROVIDER:TYPE` hold what only that provider knows.
"""

from __future__ import annotations

MAKER = "perdure:provider"
"""The mark of a thought: who made it, and gets its signature back."""

REDACTED = "perdure:redacted"
"""The mark of a thought that its maker shows nothing of."""

SIGNATURE = "perdure:thought_signature"
"""The mark of a call or a text that Google signed."""

_MARK = "perdure:"


def mark_of(name: str) -> str:
    """The mark of a provider or a format."""
    return f"{_MARK}{name}"


def is_mark(name: str) -> bool:
    """Whether a member is a mark."""
    return name.startswith(_MARK)


def slug_of(type_: str) -> str:
    """Who a type belongs to: what stands before its colon."""
    return type_.partition(":")[0]
