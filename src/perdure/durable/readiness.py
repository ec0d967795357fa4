"""Which suspended calls may go on: what they wait for has come, or has something to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from perdure.durable.driven import Driven, SubAgent
from perdure.durable.plan import Outlook, Rest, plan
from perdure.durable.state import CUT, child_of, read_run
from perdure.errors import NoSession
from perdure.log import Call, Store, View
from perdure.log.entries import Json
from perdure.log.work import Wait
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
    """Whether one of the waits that a call was suspended with is over, so that it may go on."""
    waits = view.work.of(call.entry).waits
    named = call.wait.get("waits")
    for one in cast("list[Json]", named) if isinstance(named, list) else []:
        wait = waits.get((str(one.get("kind")), str(one.get("name"))))
        if wait is not None and _is_over(view, wait, now):
            return True
    return False


def _is_over(view: View, wait: Wait, now: int) -> bool:
    begin = wait.begin
    if wait.end is not None or (begin.due is not None and begin.due <= now):
        return True
    if begin.kind == "channel":
        return view.work.first_of(begin.name.rpartition("#")[0]) is not None
    return begin.kind == "signal" and begin.name in view.work.signals


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
