"""What repeats itself in a run: streaks of calls, of texts, and of words within a text.

A *round* is the calls of one response. A *streak* counts rounds in a row that a tool was called in:
those in which one of its calls came again, and those in which all its calls of a round did. What
other tools do in between does not end it, and a call that is made twice in one round counts once.
All functions are pure; a state is small, and JSON.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

import msgspec

from perdure.counts import check_count
from perdure.middleware.doom_fingerprint import fingerprint

Action = Literal["observe", "steer", "escalate", "block", "stop"]
"""What is done about a streak, from the weakest to the strongest."""

ACTIONS: tuple[Action, ...] = ("observe", "steer", "escalate", "block", "stop")

Kind = Literal["call", "server_call", "text", "words"]
"""What repeats itself: a call, one that a provider runs, a text, words within a text."""

TAIL = 400
"""How many words at the end of a text are looked at."""

MAX_PERIOD = 16
MIN_REPEATS = 4
MIN_WORDS = 12
"""A text ends in a loop if a block of at most `MAX_PERIOD` words stands there at least
`MIN_REPEATS` times, which are at least `MIN_WORDS` words."""


class Ladder(msgspec.Struct, frozen=True, kw_only=True):
    """From which streak on an action is taken; None is never. The strongest that is due is."""

    observe: int | None = 2
    steer: int | None = None
    escalate: int | None = None
    block: int | None = 3
    stop: int | None = 6

    def __post_init__(self) -> None:
        for action in ACTIONS:
            least: object = getattr(self, action)
            if least is not None:
                check_count(f"Ladder({action}=...)", least)

    def action(self, streak: int, *, without: tuple[Action, ...] = ()) -> Action | None:
        """What is due at a streak; None if nothing is."""
        for action in reversed(ACTIONS):
            least: int | None = getattr(self, action)
            if least is not None and streak >= least and action not in without:
                return action
        return None


class ToolStreaks(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool was called with, round after round.

    Attributes:
        calls: The fingerprints of its last round, each with its own streak.
        rounds: How many rounds in a row had exactly these.
    """

    calls: dict[str, int] = {}
    rounds: int = 0


class TextStreaks(msgspec.Struct, frozen=True, kw_only=True):
    """What was said, response after response.

    Attributes:
        last: The fingerprint of the last text.
        same: How many responses in a row said just that.
        looping: How many responses in a row ended in a loop of words.
    """

    last: str = ""
    same: int = 0
    looping: int = 0


class LoopState(msgspec.Struct, frozen=True, kw_only=True):
    """All streaks of a run."""

    tools: dict[str, ToolStreaks] = {}
    text: TextStreaks = TextStreaks()


class CallPrint(NamedTuple):
    """A call of a round: its tool and its fingerprint."""

    tool: str
    fingerprint: str


def after_round(state: LoopState, calls: Iterable[CallPrint]) -> LoopState:
    """The streaks after a round, in which each call counts once."""
    by_tool: dict[str, set[str]] = {}
    for call in calls:
        by_tool.setdefault(call.tool, set()).add(call.fingerprint)
    if not by_tool:
        return state
    tools = dict(state.tools)
    for tool, prints in by_tool.items():
        before = tools.get(tool, ToolStreaks())
        tools[tool] = ToolStreaks(
            calls={one: before.calls.get(one, 0) + 1 for one in sorted(prints)},
            rounds=before.rounds + 1 if prints == before.calls.keys() else 1,
        )
    return msgspec.structs.replace(state, tools=tools)


def streak_of(state: LoopState, call: CallPrint) -> int:
    """The streak of a call of the last round: its own, or that of its tool's whole round."""
    streaks = state.tools.get(call.tool, ToolStreaks())
    own = streaks.calls.get(call.fingerprint, 0)
    return max(own, streaks.rounds) if own else 0


def after_text(state: LoopState, text: str) -> LoopState:
    """The streaks after what a response said; one that says nothing changes nothing."""
    words = text.split()
    if not words:
        return state
    found = fingerprint(" ".join(words))
    before = state.text
    streaks = TextStreaks(
        last=found,
        same=before.same + 1 if found == before.last else 1,
        looping=before.looping + 1 if repeats_at_end(text) else 0,
    )
    return msgspec.structs.replace(state, text=streaks)


def repeats_at_end(text: str) -> int:
    """How often a block of words stands at the end of a text; 0 if that is no loop."""
    words = text.split()[-TAIL:]
    found = (_repeats(words, period) for period in range(1, MAX_PERIOD + 1))
    return max(
        (
            repeats
            for period, repeats in enumerate(found, 1)
            if repeats >= MIN_REPEATS and repeats * period >= MIN_WORDS
        ),
        default=0,
    )


def _repeats(words: list[str], period: int) -> int:
    block = words[-period:]
    repeats = 1
    while words[len(words) - (repeats + 1) * period : len(words) - repeats * period] == block:
        repeats += 1
        if (repeats + 1) * period > len(words):
            break
    return repeats
