"""Which suspended calls may go on: what they wait for has come, or has something to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from perdure.durable.driven import Driven, SubAgent
from perdure.durable.gates import wants_counting
from perdure.durable.plan import NO_LIMITS, Outlook, Rest, limits_allow, plan
from perdure.durable.state import BUDGET, CUT, children_of, read_run
from perdure.errors import NoSession
from perdure.log import AnyEntry, Call, Store, View
from perdure.log.entries import (
    ChannelEntry,
    Json,
    RetryEntry,
    SignalEntry,
    StepEntry,
    WaitEntry,
)
from perdure.log.nested import shown_step
from perdure.log.programs import OWN, program_wait, program_work
from perdure.log.timestamps import wall_of
from perdure.log.work import CHILD, Wait, named_waits
from perdure.loop import Limits
from perdure.tools import ToolSet, unwrap


def _never(entry: str) -> bool:  # noqa: ARG001 - the port's signature
    return False


async def ready_calls(
    store: Store,
    view: View,
    tools: ToolSet,
    now: int,
    *,
    is_ours: Callable[[str], bool] = _never,
    limits: Limits = NO_LIMITS,
) -> frozenset[str]:
    """The suspended calls of a view that may enter their tools again; `OWN` for a program.

    Args:
        store: Where the sessions of sub-agents are.
        view: The record.
        tools: The tools of today.
        now: Nanoseconds since the Unix epoch.
        is_ours: Whether the driver that asks wrote an entry. A sub-agent that it saw cut is for the
            next one: what cut it, a store that fails, say, would cut it again.
        limits: What the run may take today.
    """
    if view.is_program:
        come = await program_has_come(store, view, now, is_ours)
        return frozenset({OWN}) if come else frozenset()
    ready: set[str] = set()
    for call in view.calls.open.values():
        if call.wait.get(CUT) and is_ours(call.decisions[-1].id):
            continue
        if call.wait.get("cause") == BUDGET:
            if _is_allowed(view, call, is_ours, limits):
                ready.add(call.call_id)
            continue
        if call.suspended and has_come(view, call, now):
            last = call.last_dispatch
            if last is None or not is_ours(last.id) or _has_news(view, last, call.entry, now):
                ready.add(call.call_id)
            continue
        if await _agent_goes_on(store, view, call, tools, is_ours):
            ready.add(call.call_id)
    return frozenset(ready)


async def _agent_goes_on(
    store: Store, view: View, call: Call, tools: ToolSet, is_ours: Callable[[str], bool]
) -> bool:
    """Whether an agent that a call waits for, its own or one that its tool calls, goes on."""
    agents = {one.session: one for one in named_waits(call.wait) if one.kind == CHILD}
    for child in children_of(view, call.call_id):
        one = agents.get(child)
        if one is not None and one.cut and is_ours(call.decisions[-1].id):
            continue  # what cut it just now would cut it again: it is for the next driver
        found = tools.get(shown_step(one.name) if one is not None else call.call.name)
        tool = unwrap(found) if found is not None else None
        if isinstance(tool, SubAgent) and await _is_ready(store, child, tool.driven):
            return True
    return False


def _is_allowed(view: View, call: Call, is_ours: Callable[[str], bool], limits: Limits) -> bool:
    """Whether a sub-agent that a budget stopped may go on: its limit was raised, or counts anew.

    One of those above is theirs to look at: they enter this session again when it allows.
    """
    held = call.decisions[-1].id
    if call.wait.get("above") != 1:
        return not is_ours(held)
    needs = call.wait.get("needs")
    if limits_allow(limits, cast("Json", needs) if isinstance(needs, dict) else {}):
        return True
    for entry in reversed(view.path):
        if isinstance(entry, RetryEntry):
            return True
        if entry.id == held:
            break
    return False


def has_come(view: View, call: Call, now: int) -> bool:
    """Whether one of the waits that a call was suspended with is over, so that it may go on."""
    waits = view.work.of(call.entry).waits
    found = (waits.get((one.kind, one.name)) for one in named_waits(call.wait))
    return any(wait is not None and _is_over(view, wait, now) for wait in found)


async def program_has_come(
    store: Store, view: View, now: int, is_ours: Callable[[str], bool] = _never
) -> bool:
    """Whether a program that is suspended may go on: a wait is over, or an agent of it goes on."""
    last = view.drives.last
    told = last.told if last is not None else None
    entered = wall_of(last.start.ts) if last is not None and is_ours(last.start.id) else None
    waits = program_work(view.work).waits
    for one in named_waits(program_wait(view.drives)):
        wait = waits.get((one.kind, one.name))
        if wait is not None and wait.end is None and one.kind == CHILD:
            if one.cut and told is not None and is_ours(told.id):
                continue  # what cut it just now would cut it again: it is for the next driver
            due = one.due is not None and one.due <= now
            if due and (entered is None or (one.due or 0) > entered):
                return True
            if await _is_told(store, one.session, entered):
                return True
        elif wait is not None and _is_over(view, wait, now):
            start = last.start if last is not None else None
            if start is None or not is_ours(start.id) or _has_news(view, start, OWN, now):
                return True
    return False


def _has_news(view: View, entered: AnyEntry, target: str, now: int) -> bool:
    """Whether entering a tool again could bring it further than the last time.

    A wait that nobody asks for any more, in a tool that took another way, say, comes and stays; it
    must not have its tool entered again and again. So there has to be something since the tool was
    entered: a step or a wait of it ended, a signal or a message came, or a time.
    """
    for entry in reversed(view.path):
        if entry is entered or entry.id == entered.id:
            break
        match entry:
            case SignalEntry() | ChannelEntry():
                return True
            case StepEntry() | WaitEntry() if entry.phase == "end" and entry.target == target:
                return True
            case _:
                pass
    since = wall_of(entered.ts)
    dues = (wait.begin.due for wait in view.work.of(target).open_waits)
    return any(due is not None and since < due <= now for due in dues)


async def _is_told(store: Store, session: str, entered: int | None) -> bool:
    """Whether something happened to an agent, or to one below it, since it was left waiting.

    Args:
        store: Where the sessions are.
        session: The agent's.
        entered: When the driver that asks entered the program last; None if it did not. What an
            agent that was driven since left as it was, entering it again would leave as well.
    """
    if await store.unconsumed(session):
        return True
    try:
        view = (await read_run(store, session)).view()
    except NoSession:
        return True
    if view.closed is not None or view.drives.open is not None:
        return True
    last = view.drives.last
    if entered is not None and last is not None and wall_of(last.start.ts) < entered:
        return False
    below = [child for call_id in view.calls.open for child in children_of(view, call_id)]
    return any([await _is_told(store, child, entered) for child in below])


def _is_over(view: View, wait: Wait, now: int) -> bool:
    due = wait.begin.due
    return (due is not None and due <= now) or view.work.is_over(wait)


async def _is_ready(store: Store, child: str, driven: Driven) -> bool:
    """Whether a sub-agent has something to do, so that its parent's call is entered again."""
    try:
        session = await read_run(store, child)
    except NoSession:
        return True
    view = session.view()
    if view.closed is not None or view.drives.open is not None or view.saga.tripped is not None:
        return True
    if await store.unconsumed(child):
        return True
    tools = await driven.tools_now()
    if wants_counting(driven, session, view, tools):
        return True
    outlook = Outlook(
        session=session,
        view=view,
        tools=tools,
        limits=driven.limits,
        ready=await ready_calls(store, view, tools, driven.clock.wall(), limits=driven.limits),
    )
    return not isinstance(plan(outlook, {}), Rest)
