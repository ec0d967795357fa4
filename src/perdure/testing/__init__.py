"""What tests of agents are made of: a model from a script, a server on loopback, a clock by hand.

Words. A *script* is a list of turns. A *turn* is what a scripted model answers once: texts, calls,
thoughts, and how it ends. A *cassette* is recorded traffic with a model. Nothing here needs a
network beyond this machine, but for recording.
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
    from perdure.testing.cassettes import Cassette, NotRecorded, RecordedModel
    from perdure.testing.chaos import run_chaos
    from perdure.testing.chaos_report import ChaosReport, RuleBroken
    from perdure.testing.server import LoopbackServer, Received

__all__ = [
    "Cassette",
    "ChaosReport",
    "FakeClock",
    "LoopbackServer",
    "NotRecorded",
    "Received",
    "RecordedModel",
    "RuleBroken",
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
    "run_chaos",
    "text",
    "turn",
]

_LAZY = {
    "Cassette": "perdure.testing.cassettes",
    "ChaosReport": "perdure.testing.chaos_report",
    "LoopbackServer": "perdure.testing.server",  # loads aiohttp
    "NotRecorded": "perdure.testing.cassettes",
    "Received": "perdure.testing.server",
    "RecordedModel": "perdure.testing.cassettes",
    "RuleBroken": "perdure.testing.chaos_report",
    "run_chaos": "perdure.testing.chaos",
}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module 'perdure.testing' has no attribute {name!r}")
    value: object = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value
