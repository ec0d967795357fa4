"""Which suspended calls may go on: what they wait for has come, or has something to do."""

from __future__ import annotations

from perdure.durable.driven import Driven, SubAgent
from perdure.durable.plan import Outlook, Rest, plan
from perdure.durable.state import child_of, read_run
from perdure.errors import NoSession
from perdure.log import Store, View
from perdure.tools import ToolSet, unwrap


async def ready_calls(store: Store, view: View, tools: ToolSet) -> frozenset[str]:
    """The suspended calls of a view that may enter their tools again."""
    ready: set[str] = set()
    for call in view.calls.open.values():
        child = child_of(view, call.call_id)
        found = tools.get(call.call.name)
        tool = unwrap(found) if found is not None else None
        if child and isinstance(tool, SubAgent) and await _is_ready(store, child, tool.driven):
            ready.add(call.call_id)
    return frozenset(ready)


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
        max_turns=driven.max_turns,
        ready=await ready_calls(store, view, tools),
    )
    return not isinstance(plan(outlook, {}), Rest)
