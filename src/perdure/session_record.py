"""The record behind a live conversation: taking it up, what it answers, branching off it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from perdure.durable.chats import recorded_answers
from perdure.errors import ConfigError
from perdure.log import Recording, Store, open_named, record
from perdure.log.branching import fork
from perdure.log.environment import cwd_of
from perdure.log.inputs import is_same_input
from perdure.log.keyed import KEY, Exchange, exchange_of
from perdure.log.store import Transactions
from perdure.loop import Answer, Hidden, PendingCall, Trigger, unhide
from perdure.tools import ToolSet, check_transactional
from perdure.wire import Item

if TYPE_CHECKING:
    from perdure.agent import Agent
    from perdure.output.contract import OutputT


class TakenUp(NamedTuple):
    """A record under our lease, and the tools of today."""

    recording: Recording
    tools: ToolSet


async def take_up(agent: Agent[OutputT], store: Store, name: str, *, wait: float) -> TakenUp:
    """Take up the recorded session of a name, or make one.

    Args:
        agent: Whose session.
        store: Where it is.
        name: What it is called; empty for a new one.
        wait: Seconds to wait for the lease of another.

    Raises:
        ConfigError: The name is that of a run.
        Leased: Another driver has it.
        NoTransactions: A tool is transactional, and the store does not commit what it does.
        LogError: The store refuses.
    """
    tools = await agent.tools_now()  # before there is a lease that a failure would keep
    check_transactional(tools, transacts=isinstance(store, Transactions))
    if name:
        recording = await open_named(
            store,
            name,
            cwd=cwd_of(agent.env),
            keep=agent.keep,
            clock=agent.clock,
            ids=agent.ids,
            seconds=agent.lease,
            wait=wait,
        )
    else:
        recording = await record(
            store,
            cwd=cwd_of(agent.env),
            keep=agent.keep,
            clock=agent.clock,
            ids=agent.ids,
            seconds=agent.lease,
        )
    if recording.halts:
        await recording.close()
        raise ConfigError(f"{name!r} is the id of a run; a session needs another name")
    recording.keep_lease(max_stall=agent.max_stall)
    return TakenUp(recording, tools)


def said_under(recording: Recording, key: str, prompts: Sequence[Item | Hidden]) -> Exchange | None:
    """What was said under a key, and what came of it; None if nothing was.

    Raises:
        ConfigError: Something else was said.
    """
    exchange = exchange_of(recording.view, key)
    if exchange is None or is_same_input(exchange.inputs, [unhide(one)[0] for one in prompts]):
        return exchange
    raise ConfigError(f"the key {key!r} was used for another input")


def under_key(trigger: Trigger | None, key: str) -> Trigger:
    """The trigger of what is said under a key."""
    trigger = trigger or Trigger()
    return msgspec.structs.replace(trigger, extra={**trigger.extra, KEY: key})


def answers_to(
    recording: Recording, pending: Sequence[PendingCall], tools: ToolSet
) -> tuple[Answer, ...]:
    """What the record answers to pending calls, if it answers them all; else nothing."""
    answers = recorded_answers(recording, tools)
    answered = {answer.call_id for answer in answers}
    return answers if answered == {one.call.call_id for one in pending} else ()


async def branch_off(agent: Agent[OutputT], recording: Recording, name: str, entry: str) -> None:
    """Make a session that goes on from an entry of a record.

    Args:
        agent: Whose session.
        recording: The record, which stays as it is.
        name: What the other session is called.
        entry: The id of the entry; the leaf if it is empty.

    Raises:
        ConfigError: The record is empty.
        NameTaken: Another session has the name.
        NoEntry: There is no such entry.
        EntryRefused: A fork cannot begin there.
    """
    base = entry or recording.session.leaf
    if base is None:
        raise ConfigError("an empty session has nothing to go on from")
    begun = fork(recording.session, base, clock=agent.clock, ids=agent.ids, name=name)
    await recording.store.create(begun.header, name=name, batch=begun.entries)
