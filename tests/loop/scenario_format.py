"""The format of the scenarios, as values; the README of `tests/scenarios` describes it."""

from __future__ import annotations

from typing import Literal

import msgspec

from perdure.loop import PendingReason

Json = msgspec.Raw
Members = dict[str, object]


class Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a scenario says and the format does not know is an error."""


class Settings(Strict, frozen=True, kw_only=True):
    max_turns: int | None = None
    max_parallel: int = 8
    sequential: bool = False
    attempts: int = 1
    grace: float = 5
    model_name: str = "m"


class Step(Strict, frozen=True, kw_only=True, rename={"returns": "return", "raises": "raise"}):
    """One thing that a tool does; each has one member, `return` may have `terminate`."""

    returns: str | None = None
    terminate: bool = False
    raises: str | None = None
    wait: str | None = None
    until_told: bool = False
    never: bool = False
    progress: str | None = None
    invoke: str | None = None
    arguments: Members = {}
    return_invoked: bool = False


class ToolScript(Strict, frozen=True, kw_only=True):
    does: list[Step] = []
    effect: str = "once"
    sequential: bool = False
    resource: str | None = None
    timeout: float | None = None


class Decide(Strict, frozen=True, kw_only=True):
    action: Literal["proceed", "hold", "reject"] = "proceed"
    reason: str = ""
    arguments: str | None = None
    note: str = ""
    terminate: bool = False


class HookScript(Strict, frozen=True, kw_only=True):
    """One hook: when it speaks, and what it says."""

    hook: str
    tool: str | None = None
    turn: int | None = None
    message: str | None = None
    decide: Decide | None = None
    guard: str | None = None
    fail: str | None = None
    add: list[str] = []
    replace: str | None = None
    stop: bool = False
    wait: str | None = None


class Part(Strict, frozen=True, kw_only=True):
    """One thing a model says."""

    text: str | None = None
    reasoning: str | None = None
    call: str | None = None
    id: str | None = None
    arguments: Members | str = {}
    status: int | None = None
    cut_off: bool = False
    fail: str | None = None


class TurnScript(Strict, frozen=True, kw_only=True):
    say: list[Part] = []
    incomplete: Literal["max_output_tokens", "content_filter"] | None = None
    attempts: list[TurnScript] = []
    events: list[Json] = []


class Deed(Strict, frozen=True, kw_only=True):
    """What is done at an event."""

    abort: str | None = None
    steer: str | None = None
    skip: bool = False
    follow_up: str | None = None
    open: str | None = None
    fail: str | None = None


class Action(Strict, frozen=True, kw_only=True):
    at: Members
    do: list[Deed]


class Answering(Strict, frozen=True, kw_only=True):
    call_id: str
    approve: bool = False
    output: str | None = None
    arguments: str | None = None
    note: str = ""
    terminate: bool = False
    run_again: bool = False
    idempotency_key: str = ""
    by: Literal["human", "policy", "agent"] | None = None


class Waiting(Strict, frozen=True, kw_only=True):
    call_id: str
    reason: PendingReason
    idempotency_key: str = ""
    dispatched: bool = False


class Expect(Strict, frozen=True, kw_only=True):
    refused: str | None = None
    events: list[Members] | None = None
    end: Members = {}
    text: str | None = None


class DriveScript(Strict, frozen=True, kw_only=True, rename={"continues": "continue"}):
    send: list[str | Members] | None = None
    resume: list[Answering] | None = None
    continues: bool = False
    expect: Expect


class Scenario(Strict, frozen=True, kw_only=True):
    about: str
    config: Settings = Settings()
    tools: dict[str, ToolScript] = {}
    hooks: list[HookScript] = []
    person: Literal["accept", "decline", "cancel"] | None = None
    model: list[TurnScript] = []
    transcript: list[str | Members] = []
    pending: list[Waiting] = []
    actions: list[Action] = []
    shown: list[str] = []
    drives: list[DriveScript]
    requests: int
    entered: dict[str, int] = {}
    final: list[Members] | None = None


UNSHOWN = {"item_update", "tool_update"}
"""Events that a scenario leaves out unless it asks for them."""
