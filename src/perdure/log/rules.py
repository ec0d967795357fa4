"""The rules of calls: which decisions, dispatches and outputs may follow which.

A writer refuses what breaks them, a verifier reports it. They are asked before the entry is taken.
"""

from __future__ import annotations

from perdure.log.calls import Call
from perdure.log.context import item_of
from perdure.log.entries import AnyEntry, DecisionEntry, DispatchEntry, ItemEntry
from perdure.log.path import View
from perdure.log.session import Session
from perdure.wire import FunctionCall, FunctionCallOutput

_VERDICTS = frozenset({"proceed", "reject", "hold", "answer"})


def call_fault(view: View, entry: AnyEntry) -> str:
    """Why an entry may not follow on a view; empty if it may."""
    match entry:
        case DecisionEntry():
            return _target_fault(view, entry) or _decision_fault(view, entry)
        case DispatchEntry():
            return _target_fault(view, entry) or _dispatch_fault(view, entry)
        case ItemEntry():
            return _item_fault(view, entry)
        case _:
            return ""


def _target_fault(view: View, entry: DecisionEntry | DispatchEntry) -> str:
    call = view.calls.of_entry(entry.target)
    if call is None:
        return f"{entry.target!r} is no function call on the path"
    if call.call_id != entry.call_id:
        return f"{entry.target!r} is call {call.call_id!r}, not {entry.call_id!r}"
    return ""


def _ended(call: Call) -> str:
    if call.output:
        return f"call {call.call_id!r} has an output"
    verdict = call.decisions[-1].verdict if call.decisions else ""
    if verdict in ("reject", "answer"):
        return f"call {call.call_id!r} was ended by {verdict!r}; only its output may follow"
    return ""


def _decision_fault(view: View, entry: DecisionEntry) -> str:
    call = view.calls.of_entry(entry.target)
    if call is None:
        return ""
    if entry.verdict not in _VERDICTS:
        return f"a decision has no verdict {entry.verdict!r}"
    if ended := _ended(call):
        return ended
    if entry.verdict == "reject" and call.dispatches:
        return f"call {call.call_id!r} was dispatched; it ends by an answer or its output"
    if entry.verdict == "reject" and not entry.reason:
        return "a reject needs a reason"
    if entry.verdict == "answer" and call.own and call.promised and not _dispatched(call):
        return f"call {call.call_id!r} was never dispatched; nothing is to be answered"
    return ""


def _dispatched(call: Call) -> bool:
    return bool(call.dispatches or call.elsewhere)


def _dispatch_fault(view: View, entry: DispatchEntry) -> str:
    call = view.calls.of_entry(entry.target)
    return _ended(call) if call is not None else ""


def _item_fault(view: View, entry: ItemEntry) -> str:
    raw = bytes(entry.item)
    if b'"function_call' not in raw:
        return ""
    item = item_of(entry.item)
    if isinstance(item, FunctionCall):
        if not item.call_id:
            return "a function call has no call_id"
        if view.calls.named(item.call_id) is not None:
            return f"the call_id {item.call_id!r} stands twice"
    return ""


def promise_fault(session: Session, view: View, entry: ItemEntry) -> str:
    """Whether an output, just taken, lacks what the header promises; empty if not.

    Promises hold for what stands behind the base.
    """
    if b'"function_call_output"' not in bytes(entry.item) or not session.header.promises(
        "dispatch"
    ):
        return ""
    item = item_of(entry.item)
    if not isinstance(item, FunctionCallOutput) or not view.own:
        return ""
    call = view.calls.named(item.call_id)
    if call is None or call.output != entry.id or not call.own:
        return ""
    if _dispatched(call) or any(d.verdict in ("reject", "answer") for d in call.decisions):
        return ""
    return f"call {call.call_id!r} has an output and no dispatch, which the header promises"
