"""The state of a conversation that perdure's log records: a projection of its entries.

Nothing of it is saved beside the log. What a core entry does not say (the tasks, a forced tool
choice that has had its call, who interrupted) stands in an entry of its own, the newest of which
counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from perdure.clock import Clock, Ids
from perdure.compose.state import (
    AsyncTask,
    ConversationState,
    PartialResponse,
    PendingToolCall,
    PendingWhy,
    Status,
)
from perdure.compose.turns import parse_tool_arguments
from perdure.errors import ConfigError
from perdure.log import (
    Draft,
    Recording,
    Store,
    View,
    open_named,
    read_lines,
)
from perdure.log.entries import CustomEntry, Json, ResponseEntry
from perdure.log.resuming import transcript_of
from perdure.log.store import named_session
from perdure.log.timestamps import wall_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.wire import Item

FACTS = "perdure:call_model"
"""The namespace of what the log's own entries do not say."""

BY_CALLER = "run by the caller"
"""Why a call is held whose tool is none of ours."""

NEEDS_APPROVAL = "needs approval"
"""Why a call is held that somebody has to approve."""


class Facts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the log's own entries do not say."""

    consumed_tool_choice: str = ""
    interrupted_by: str = ""
    partial_response: PartialResponse | None = None
    tasks: tuple[AsyncTask, ...] = ()


class LogState:
    """A conversation in perdure's log, under a name; an accessor whose state is a projection.

    Args:
        store: A store, which the caller opens and closes.
        name: What the session is called in it.
    """

    def __init__(self, store: Store, name: str) -> None:
        if not name:
            raise ConfigError("a recorded conversation has a name")
        self.store = store
        self.name = name
        self._interrupted: str | None = None

    async def load(self) -> ConversationState | None:
        """The state, from the record as it stands; None if there is no such session.

        It may be asked while a run goes on, from any process.

        Raises:
            LogError: The store refuses, or the log does not verify.
        """
        found = await named_session(self.store, self.name)
        if found is None:
            return None
        stored = await self.store.read(found.id)
        view = read_lines(stored.header, stored.lines).session.view()
        return state_of(stored.header.id, stored.header.created_at, view)

    async def save(self, state: ConversationState) -> None:
        """Write of a state what the log's own entries do not say; between two runs.

        Everything else was written as it happened.

        Raises:
            Leased: A run goes on.
            LogError: The store refuses, as its methods say.
        """
        facts = Facts(
            consumed_tool_choice=state.consumed_tool_choice,
            interrupted_by=state.interrupted_by,
            partial_response=state.partial_response,
            tasks=state.tasks,
        )
        async with await open_named(self.store, self.name) as recording:
            await write_facts(recording, facts)

    async def interrupt(self, by: str = "user") -> None:
        """Ask the run of this process that goes on to stop after its round."""
        self._interrupted = by or "user"

    async def interruption(self) -> str | None:
        """Who asked the run to stop."""
        return self._interrupted

    async def clear_interruption(self) -> None:
        """Forget the wish."""
        self._interrupted = None

    async def open(self, *, keep: Callable[[Item], bool], clock: Clock, ids: Ids) -> Recording:
        """Take the session up to drive it, or make it.

        Raises:
            Leased: Somebody else drives it.
            LogError: The store refuses, as its methods say.
        """
        recording = await open_named(self.store, self.name, keep=keep, clock=clock, ids=ids)
        recording.keep_lease()
        return recording


def state_now(recording: Recording) -> ConversationState:
    """The state of a session that is being driven."""
    session = recording.session
    header = session.header
    return state_of(session.id, header.created_at, recording.recorder.appender.view)


async def write_facts(recording: Recording, facts: Facts) -> None:
    """Write what the log's own entries do not say, if it has changed; durably."""
    view = recording.recorder.appender.view
    if facts != facts_of(view):
        data: Json = msgspec.to_builtins(facts)
        await recording.recorder.appender.add([Draft("custom", {"ns": FACTS, "data": data})])


def facts_of(view: View) -> Facts:
    """The newest of the entries that hold them."""
    for entry in reversed(view.path):
        if isinstance(entry, CustomEntry) and entry.ns == FACTS:
            return msgspec.json.decode(entry.data, type=Facts)
    return Facts()


def state_of(session: str, created: str, view: View) -> ConversationState:
    """The state that a path says."""
    facts = facts_of(view)
    pending = tuple(_pending(view))
    responses = (one for one in reversed(view.path) if isinstance(one, ResponseEntry))
    last = view.path[-1].ts if view.path else created
    running = tuple(
        call.call_id for call in view.calls.open.values() if call.may_have_run and not call.waits
    )
    return ConversationState(
        id=session,
        status=_status(view, pending, facts),
        created_at=wall_of(created) // 1_000_000,
        updated_at=wall_of(last) // 1_000_000,
        messages=tuple(transcript_of(view).snapshot()),
        previous_response_id=next((one.response_id for one in responses), ""),
        pending_tool_calls=pending,
        partial_response=facts.partial_response,
        interrupted_by=facts.interrupted_by,
        running_call_ids=running,
        consumed_tool_choice=facts.consumed_tool_choice,
        tasks=facts.tasks,
    )


def _pending(view: View) -> Iterator[PendingToolCall]:
    for call in view.calls.open.values():
        if not call.waits:
            continue
        why: PendingWhy = "approval"
        if call.suspended:
            why = "hitl"
        elif call.decisions[-1].reason == BY_CALLER:
            why = "client"
        yield PendingToolCall(
            id=call.call_id,
            name=call.call.name,
            arguments=parse_tool_arguments(call.arguments),
            why=why,
        )


def _status(view: View, pending: Sequence[PendingToolCall], facts: Facts) -> Status:
    if pending:
        return status_of_pending(pending)
    if view.drives.open is not None or view.drives.last is None:
        return "in_progress"
    if any(one.mode == "deferred" and one.status == "pending" for one in facts.tasks):
        return "awaiting_async_tools"
    if facts.interrupted_by:
        return "interrupted"
    told = view.drives.last.told
    reason = told.reason if told is not None else ""
    return "complete" if reason in ("done", "stopped") else "in_progress"


def status_of_pending(pending: Sequence[PendingToolCall]) -> Status:
    """The status of a conversation whose calls wait: for an approver first, the caller last."""
    whys = {one.why for one in pending}
    if "approval" in whys:
        return "awaiting_approval"
    return "awaiting_hitl" if "hitl" in whys else "awaiting_client_tools"
