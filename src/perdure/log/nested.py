"""Calls that a tool makes: what their steps are called, and how people read that (LOG 5.5).

The name has the tool and its arguments, and counts only those that share both. So the order in
which a tool makes different calls is free to change when it is entered again, and calls that are
told apart by nothing stand for each other.
"""

from __future__ import annotations

from collections import Counter

from perdure.log.entries import StepEntry
from perdure.tools import arguments_digest
from perdure.tools.arguments import canonical_arguments

INVOKED = "perdure:invoke/"
"""What the name of the step of a nested call begins with."""

DIGITS = 16
"""How many hexadecimal digits of the digest of its arguments the name has."""

CLIP = 200
"""How many characters of its arguments people are shown."""


def nested_place(made: Counter[str], tool: str, arguments: str) -> str:
    """Where a call that is made now has its place among those of its maker.

    Args:
        made: How many calls of each kind this entry has made; it is counted there.
        tool: The name of the tool.
        arguments: What it is asked with, as JSON text: before any hook.

    Returns:
        `TOOL/DIGEST/NUMBER`; behind `INVOKED` it is the name of its step.
    """
    kind = f"{tool}/{arguments_digest(arguments)[:DIGITS]}"
    made[kind] += 1
    return f"{kind}/{made[kind]}"


def is_nested(step: str) -> bool:
    """Whether a step is a call that a tool made, by its name."""
    return step.startswith(INVOKED)


def nested_tool(step: str) -> str:
    """The tool of a nested call, by the name of its step."""
    return step.removeprefix(INVOKED).partition("/")[0]  # no tool has a slash in its name


def shown_step(step: str) -> str:
    """The name of a step as people read it: that of a nested call is its tool's."""
    return nested_tool(step) if is_nested(step) else step


def asked_with(step: str, arguments: str) -> bool:
    """Whether a nested call was asked with these arguments, by the name of its step."""
    _, _, place = step.removeprefix(INVOKED).partition("/")
    return place.partition("/")[0] == arguments_digest(arguments)[:DIGITS]


def encodable(arguments: str) -> str:
    """Arguments as a record holds them: half of a surrogate pair stands as its escape."""
    return arguments.encode(errors="backslashreplace").decode()


def step_words(step: StepEntry) -> str:
    """The name of a step, and of a nested call also what was called with what."""
    if not is_nested(step.name) or not step.arguments:
        return step.name
    return f"{step.name} ({nested_tool(step.name)} {shown_arguments(step.arguments)})"


def shown_arguments(arguments: str) -> str:
    """Arguments as people read them: in one line, and not too long."""
    text = canonical_arguments(arguments).decode(errors="backslashreplace")
    return text if len(text) <= CLIP else f"{text[:CLIP]}…"
