"""What tests of agents are made of: a model from a script, a server on loopback, a clock by hand.

Words. A *script* is a list of turns. A *turn* is what a scripted model answers once: texts, calls,
thoughts, and how it ends. Nothing here needs a network beyond this machine.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from perdure.testing.clock import FakeClock
from perdure.testing.scripted import (
    ScriptedModel,
    Turn,
    TurnLike,
    attempts,
    call,
    error,
    fail,
    item,
    reasoning,
    refusal,
    text,
    turn,
)
from perdure.testing.stream_check import check_stream

if TYPE_CHECKING:
    from perdure.testing.server import LoopbackServer, Received

__all__ = [
    "FakeClock",
    "LoopbackServer",
    "Received",
    "ScriptedModel",
    "Turn",
    "TurnLike",
    "attempts",
    "call",
    "check_stream",
    "error",
    "fail",
    "item",
    "reasoning",
    "refusal",
    "text",
    "turn",
]

_LAZY = {"LoopbackServer", "Received"}  # they load aiohttp


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module 'perdure.testing' has no attribute {name!r}")
    value: object = getattr(import_module("perdure.testing.server"), name)
    globals()[name] = value
    return value
