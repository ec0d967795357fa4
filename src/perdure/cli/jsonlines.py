"""Events as JSON lines, for programs. The form is described in docs/cli.md and does not change.

Every line is one object with a `type`. Items, responses and wire events in it are exactly those of
the wire (`perdure.wire.encode`), unknown members included.
"""

from __future__ import annotations

import re
from typing import cast

import msgspec

from perdure.cli.problems import Problem
from perdure.errors import Rejected
from perdure.loop import (
    Event,
    ItemEnd,
    ItemStart,
    ItemUpdate,
    Loss,
    ModelBlocked,
    ModelRetry,
    PendingCall,
    Queued,
    ResponseEnd,
    RunEnd,
    RunStart,
    ToolDispatch,
    ToolEnd,
    ToolStart,
    ToolUpdate,
    TurnEnd,
    TurnStart,
)
from perdure.result import RunResult
from perdure.wire import ABSENT, Wire, encode
from perdure.wire.jsontext import dumps

Members = dict[str, object]


def event_line(event: Event) -> bytes:
    """An event as one line, with its newline."""
    return _line({"type": event.type, "run_id": event.run_id, **_members(event)})


def result_line(result: RunResult[str], code: int, problem: Problem | None = None) -> bytes:
    """The last line: how it went.

    Args:
        result: What the run gave.
        code: The exit code of the command.
        problem: What went wrong, for a person.
    """
    return _line(
        {
            "type": "result",
            "run_id": result.run_id,
            "status": result.status,
            "text": result.text,
            "cause": result.cause,
            "hint": problem.todo if problem else "",
            "turns": result.turns,
            "usage": result.usage,
            "items": result.items,
            "partial": result.partial,
            "pending": [_pending(one) for one in result.pending],
            "exit_code": code,
        }
    )


def _losses(losses: tuple[Loss, ...]) -> list[Members]:
    return [dict(loss._asdict()) for loss in losses]


def _members(event: Event) -> Members:
    match event:
        case RunStart():
            return {"source": event.source}
        case TurnStart():
            model = event.request.settings.model or ""
            return {"turn": event.turn, "model": model, "losses": _losses(event.losses)}
        case ModelRetry():
            told = {"error": _error(event.error), "losses": _losses(event.losses)}
            return _of(event, "turn", "attempt", "delay") | told
        case ModelBlocked():
            return {"turn": event.turn, "error": _error(event.error)}
        case ItemStart():
            return _of(event, "turn", "response_id", "hidden", "item")
        case ItemUpdate():
            return _of(event, "turn", "response_id") | {"event": event.stream}
        case ItemEnd():
            return _of(event, "turn", "response_id", "hidden", "item")
        case ResponseEnd():
            return _of(event, "turn", "attempts", "response")
        case Queued():
            return _of(event, "queue_id", "mode", "hidden", "item")
        case TurnEnd():
            return {"turn": event.turn}
        case RunEnd():
            return _of(event, "reason", "cause", "turns", "usage") | {"error": _error(event.error)}
        case ToolStart() | ToolDispatch() | ToolUpdate() | ToolEnd():
            return _of(event, "turn", "call_id", "name", "parent") | _tool(event)


def _tool(event: ToolStart | ToolDispatch | ToolUpdate | ToolEnd) -> Members:
    match event:
        case ToolStart():
            return {"arguments": event.arguments}
        case ToolDispatch():
            return _of(event, "effect", "idempotency_key")
        case ToolUpdate():
            return {"output": event.partial.output}
        case ToolEnd():
            rest = _of(event, "entered", "rejected", "held", "reason")
            return {"output": event.output, "error": _error(event.error), **rest}


def _of(event: Event, *names: str) -> Members:
    return {name: getattr(event, name) for name in names}


def _error(error: BaseException | None) -> Members | None:
    if error is None:
        return None
    said: Members = {"class": type(error).__name__, "message": str(error)}
    if isinstance(error, Rejected):
        said |= {
            "status": error.status,
            "code": error.code,
            "param": error.param,
            "retry_after": error.retry_after,
        }
    return said


def _pending(one: PendingCall) -> Members:
    return {"reason": one.reason, "may_have_run": one.may_have_run, "call": one.call}


# --- JSON -----------------------------------------------------------------------------

_ENDS = re.compile(rb"[\r\n]")


def _line(members: Members) -> bytes:
    # A value whose type nobody knows keeps its source, which may have line ends between members;
    # inside a JSON string there are none.
    return _ENDS.sub(b" ", _json(members)) + b"\n"


def _json(value: object) -> bytes:
    match value:
        case str():
            return dumps(value)
        case Wire():
            return encode(value)
        case dict():
            members = cast("Members", value).items()
            return b"{" + b",".join(dumps(n) + b":" + _json(v) for n, v in members) + b"}"
        case list() | tuple():
            elements = cast("list[object]", value)
            return b"[" + b",".join(map(_json, elements)) + b"]"
        case _:
            return msgspec.json.encode(None if value is ABSENT else value)
