"""How others write what the wire has in its own way: Chat's citations, OpenRouter's thoughts.

Functions of plain members, for everybody who reads or writes such a format.
"""

from __future__ import annotations

from collections.abc import Mapping

NO_SIGNATURE = "skip_thought_signature_validator"
"""What Google takes for the signature of a call that another model made."""

DETAIL_TEXTS = ("text", "summary", "data", "signature")
"""The members of a thought of OpenRouter's that become members of the item."""

ENCRYPTED = "reasoning.encrypted"
"""The kind of a thought of OpenRouter's that shows nothing."""


def nested_citation(annotation: Mapping[str, object]) -> dict[str, object]:
    """An annotation as Chat has it, where the members of a citation stand below its type."""
    members = dict(annotation)
    if members.get("type") != "url_citation":
        return members
    return {"type": members.pop("type"), "url_citation": members}


def sealed_member(kind: str | None) -> str:
    """The member of a thought of OpenRouter's that holds what only its maker can read."""
    return "data" if kind == ENCRYPTED else "signature"


def thought_detail(
    own: Mapping[str, object], kind: str | None, *, text: str, summary: str, sealed: str
) -> dict[str, object]:
    """A thought as OpenRouter writes it.

    Args:
        own: Its members beside its texts.
        kind: Its type, which stands among them.
        text: What it says.
        summary: What it says in short.
        sealed: What only its maker can read.
    """
    texts = {"text": text, "summary": summary, sealed_member(kind): sealed}
    return {**own, **{name: said for name, said in texts.items() if said}}
