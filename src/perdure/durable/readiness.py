"""Which suspended calls may go on: what they wait for has come, or has something to do."""

from __future__ import annotations

from collections.abc import Callable

from perdure.durable.driven import Driven, SubAgent
from perdure.durable.plan import Outlook, Rest, plan
from perdure.durable.state import CUT, child_of, read_run
from perdure.errors import NoSession
from perdure.log import Call, Store, View
from perdure.loop import Limits
from perdure.tools import ToolSet, unwrap


def _never(entry: str) -> bool:  # noqa: ARG001 - the port's signature
    return False


async def ready_calls(
    store: Store,
    view: View,
    tools: ToolSet,
    now: int,
    is_ours: Callable[[str], bool] = _never,
) -> frozenset[str]:
    """The suspended calls of a view that may enter their tools again.

    Args:
        store: Where the sessions of sub-agents are.
        view: The record.
        tools: The tools of today.
        now: Nanoseconds since the Unix epoch.
        is_ours: Whether the driver that asks wrote an entry. A sub-agent that it saw cut is for the
            next one: what cut it, a store that fails, say, would cut it again.
    """
    ready: set[str] = set()
    for call in view.calls.open.values():
        if call.wait.get(CUT) and is_ours(call.decisions[-1].id):
            continue
        if call.suspended and has_come(view, call, now):
            ready.add(call.call_id)
            continue
        child = child_of(view, call.call_id)
        found = tools.get(call.call.name)
        tool = unwrap(found) if found is not None else None
        if child and isinstance(tool, SubAgent) and await _is_ready(store, child, tool.driven):
            ready.add(call.call_id)
    return frozenset(ready)


def has_come(view: View, call: Call, now: int) -> bool:
    """Whether one of the waits of a call is over, so that its tool may go on."""
    work = view.work.of(call.entry)
    answered = any(w.end is not None and w.end.outcome == "answer" for w in work.waits.values())
    if answered and call.wait.get("kind") == "interrupt" and not _still_asks(view, call):
        return True
    return any(
        (wait.begin.due is not None and wait.begin.due <= now)
        or (wait.begin.kind == "signal" and wait.begin.name in view.work.signals)
        or (wait.begin.kind == "channel" and _has_message(view, wait.begin.name))
        for wait in work.open_waits
    )


def _has_message(view: View, name: str) -> bool:
    return view.work.first_of(name.rpartition("#")[0]) is not None


def _still_asks(view: View, call: Call) -> bool:
    """Whether the question that a call was suspended with has no answer yet."""
    asked = view.work.of(call.entry).waits.get(("interrupt", str(call.wait.get("name"))))
    return asked is not None and asked.end is None


async def _is_ready(store: Store, child: str, driven: Driven) -> bool:
    """Whether a sub-agent has something to do, so that its parent's call is entered again."""
    try:
        session = await read_run(store, child)
    except NoSession:
        return True
    view = session.view()
    if view.closed is not None or view.drives.open is not None:
        return True
    if await store.unconsumed(child):
        return True
    tools = await driven.tools_now()
    outlook = Outlook(
        session=session,
        view=view,
        tools=tools,
        limits=Limits(driven.max_turns, driven.max_seconds),
        ready=await ready_calls(store, view, tools, driven.clock.wall()),
    )
    return not isinstance(plan(outlook, {}), Rest)
