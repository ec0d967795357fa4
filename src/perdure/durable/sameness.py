"""Whether a word that is told is the first once more: of values, whoever gives it."""

from __future__ import annotations

import msgspec

from perdure.durable.messages import Reply, Resolve, Sent, Settle, Signal, Told
from perdure.errors import NotIJson
from perdure.wire import canonicalize


def is_same_word(first: Told | None, told: Told) -> bool:
    """Whether a word says what the first says that was put about the same."""
    match first, told:
        case (
            (Signal(value=known), Signal(value=given))
            | (Sent(value=known), Sent(value=given))
            | (Reply(value=known), Reply(value=given))
        ):
            return is_same_json(bytes(known), bytes(given))
        case _:
            return first is not None and _canonical(first) == _canonical(told)


def is_same_json(one: bytes, other: bytes) -> bool:
    """Whether two texts give the same JSON value, however they spell it.

    The order of members is no part of it, and 1.0 is 1. What is no I-JSON, a number that no double
    holds, say, is the same only if it is spelled the same.
    """
    return one == other or _spelled(one) == _spelled(other)


def _spelled(text: bytes) -> bytes:
    try:
        return canonicalize(text)
    except (NotIJson, RecursionError):
        return text


def _canonical(told: Told) -> Told:
    """The same word, with the JSON in it spelled canonically."""
    if not isinstance(told, Resolve | Settle):
        return told
    told = msgspec.structs.replace(told, evidence=_spelled(told.evidence.encode()).decode())
    if isinstance(told, Resolve) and told.step and told.output is not None:
        output = _spelled(told.output.encode()).decode()  # that of a call is text
        return msgspec.structs.replace(told, output=output)
    return told
