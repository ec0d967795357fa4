"""A sub-agent: an agent as a tool, whose work is a session of its own (LOG 5.9).

The child's id is made of the parent's and the call's, and the parent links it before its dispatch;
so entering the call again finds the child and goes on with it. The child is written under the lease
and the fence of its root. What it waits for, its parent waits for: the call is suspended, and
answers go to the child's session.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from types import MappingProxyType

from perdure.durable.callwork import recording_of
from perdure.durable.control import Control
from perdure.durable.driven import Driven
from perdure.durable.driver import Driving, drive_until_rest
from perdure.durable.spending import tree_spend
from perdure.durable.state import BUDGET, CUT, RunState, read_run, state_of, waiting_calls
from perdure.errors import BudgetExceeded, InvalidArguments, LogError, NoSession, Suspend, ToolError
from perdure.log import (
    AnyEntry,
    Draft,
    Header,
    Origin,
    Recording,
    RunIdentity,
    Session,
    Summary,
    View,
    go_on,
    new_header,
    subsession_id,
)
from perdure.log.entries import Json
from perdure.log.environment import env_of
from perdure.log.ids import ParentRef
from perdure.log.recorded_bodies import input_draft, needs_of
from perdure.log.timestamps import timestamp
from perdure.log.work import CHILD
from perdure.log.writing import salted, seal
from perdure.loop import LoopPort, Opening, RunEnd, Transcript
from perdure.loop.account import Account
from perdure.tools import Approval, Call, ToolResult, parse_arguments
from perdure.tools.effect import Effect
from perdure.tools.tool import check_name
from perdure.wire import user

PARAMETERS: Mapping[str, object] = MappingProxyType(
    {
        "type": "object",
        "properties": {"task": {"type": "string", "description": "What the agent is to do."}},
        "required": ["task"],
        "additionalProperties": False,
    }
)

RUN_AGAIN = "perdure:run_again"
"""Names, in a child's session, the decision of its parent that the call runs once more."""


class AgentTool:
    """An agent as a tool: it gets a task, and gives its answer.

    Args:
        driven: The agent.
        name: The tool's name.
        description: What the model reads of it.
        approval: Who has to agree before it gets to work.
    """

    effect: Effect = "idempotent"
    """Entering its call again goes on with the child, which keeps its own effects apart."""
    subsession = True

    def __init__(
        self,
        driven: Driven,
        name: str,
        description: str,
        approval: Approval | None = None,
    ) -> None:
        check_name(name)
        self.approval = approval
        self.driven = driven
        self.name = name
        self.description = description
        self.parameters: Mapping[str, object] | None = dict(PARAMETERS)

    def check(self, arguments: str) -> None:
        """Refuse arguments that are not a task alone.

        Raises:
            InvalidArguments: They are something else.
        """
        _task_of(arguments)

    async def execute(self, call: Call) -> ToolResult:
        """Drive the child until it has its answer.

        Raises:
            ToolError: The agent failed, or was stopped before it had one.
            Suspend: It waits for somebody, or for a time.
        """
        recording = recording_of(call)
        if recording is None:
            return await self._in_memory(call)
        try:
            child = await self._opened(recording, call)
        except LogError as error:
            raise _broken(recording, call, error, self._now()) from error
        return await self._driven(recording, child, call)

    async def _in_memory(self, call: Call) -> ToolResult:
        """Without a record there is nothing to come back to, so it cannot wait."""
        opening = Opening(prompts=(user(_task_of(call.arguments)),))
        account = self.driven.account(_account_of(call))
        handle = await self.driven.begin(Transcript(), opening, account=account)
        try:
            end = await handle.wait()
        finally:
            handle.abort("its call ended")
        if end.reason != "done":
            _ = _exceeded_above(call, end)
            why = end.cause or (str(end.error) if end.error else end.reason)
            raise ToolError(f"agent {self.name!r} gave no answer: {why}")
        return ToolResult(end.answer)

    def _now(self) -> int:
        return self.driven.clock.wall()

    # --- the child's session ---------------------------------------------------------------------

    async def _opened(self, parent: Recording, call: Call) -> Recording:
        child = subsession_id(parent.session.id, call.id)
        try:
            await parent.store.read(child)
        except NoSession:
            await self._create(parent, call, child)
        recording = await self._going_on(parent, child)
        decision = _decided_again(parent.view, call.id)
        if decision and not _took(recording.session, decision):
            return await self._again(parent, recording, call, decision)
        return recording

    async def _again(
        self, parent: Recording, child: Recording, call: Call, decision: str
    ) -> Recording:
        """Take up a decision that the call runs once more (LOG 5.9).

        A child that has ended begins anew, with a root of its own beside the first; any other goes
        on. Either way an entry of the child names the decision, so that it counts once.
        """
        if child.view.closed is None:
            await child.append(Draft("custom", {"ns": RUN_AGAIN, "data": {"decision": decision}}))
            return child
        entry = self._task(call, {RUN_AGAIN: decision})
        await parent.store.append(
            child.session.id,
            child.session.version,
            parent.lease.fence,
            [entry],
            summary=Summary(status="idle", leaf=entry.id),
        )
        return await self._going_on(parent, child.session.id)

    async def _going_on(self, parent: Recording, child: str) -> Recording:
        driven = self.driven
        recording = await go_on(
            parent.store,
            child,
            keep=driven.keep,
            clock=driven.clock,
            ids=driven.ids,
            held=parent.held,
        )
        recording.host, recording.inherited = parent.host, env_of(parent.view.env)
        return recording

    async def _create(self, parent: Recording, call: Call, child: str) -> None:
        entry = self._task(call)
        if child not in parent.view.linked:  # a tool makes the call, so the record does not show it
            parent.recorder.carry(call.id, child)
        await parent.store.create(
            self._header(parent, call, child, entry.ts),
            batch=[entry],
            fence=parent.lease.fence,
            summary=Summary(status="idle", leaf=entry.id),
        )

    def _task(self, call: Call, members: Json | None = None) -> AnyEntry:
        """The first entry of a child's path."""
        draft = input_draft(user(_task_of(call.arguments)), self.driven.keep)
        draft.body |= members or {}
        return seal(salted(draft, self.driven.ids), None, timestamp(self._now()))

    def _header(self, parent: Recording, call: Call, child: str, now: str) -> Header:
        run = parent.session.header.run
        env = parent.view.env
        return new_header(
            child,
            now,
            run=_below(run, call) if run is not None else None,
            agent=self.driven.name,
            principal=parent.recorder.principal or parent.session.header.principal,
            cwd=(env.cwd if env is not None else "") or parent.session.header.cwd,
            origin=Origin(parent.session.id),
            spawned_by=call.id,
            root=parent.lease.root,
        )

    async def _driven(self, parent: Recording, child: Recording, call: Call) -> ToolResult:
        control = Control()
        driving = Driving(control=control, account=_account_of(call))
        telling = asyncio.get_running_loop().create_task(_tell(call, control))
        try:
            rested = await drive_until_rest(self.driven, child, driving)
        except LogError as error:
            raise _broken(parent, call, error, self._now()) from error
        finally:
            telling.cancel()
            with contextlib.suppress(LogError):
                await child.close()
        if rested.lost or isinstance(rested.error, LogError):
            raise _broken(parent, call, rested.error, self._now())
        session = await read_run(parent.store, child.session.id)
        state = await self._state(child, session, rested.status)
        if rested.status == "aborted":
            why = rested.end.error if rested.end is not None else None
            raise _broken(parent, call, why, self._now())
        above = _exceeded_above(call, rested.end)
        if above is not None and state.status == "stopped":
            raise _refused(state, above)
        return await self._answer(parent, child, call, state, rested.error)

    async def _state(self, child: Recording, session: Session, status: str) -> RunState:
        tools = await self.driven.tools_now()
        spend = await tree_spend(child.store, session)
        pending = await waiting_calls(child.store, session, tools)
        return state_of(session, pending, status, spend=spend)

    async def _answer(
        self,
        parent: Recording,
        child: Recording,
        call: Call,
        state: RunState,
        error: BaseException | None,
    ) -> ToolResult:
        if state.status in ("halted", "input_required", "suspended"):
            raise _waits(state)
        parent.recorder.carry(call.id, child.session.id, state.spend)
        if state.status == "done":
            leaf = child.session.leaf or ""
            parent.recorder.leaves[call.id] = ParentRef(entry=leaf, session=child.session.id)
            return ToolResult(state.text)
        await _give_up(child, state.status)
        why = state.cause or (str(error) if error is not None else state.status)
        raise ToolError(f"agent {self.name!r} gave no answer: {why}")


def _below(run: RunIdentity, call: Call) -> RunIdentity:
    """What a child is as a run: it shares the fate of its root, if that is a saga."""
    return RunIdentity(id=f"{run.id}>{call.id}", kind=CHILD, saga=run.saga)


def _account_of(call: Call) -> Account | None:
    """What the drive that runs a call is charged to."""
    return call.port.account if isinstance(call.port, LoopPort) else None


def _exceeded_above(call: Call, end: RunEnd | None) -> BudgetExceeded | None:
    """The budget above a run that refused it a request; the drive that runs its call stops too."""
    error = end.error if end is not None else None
    if not isinstance(error, BudgetExceeded) or not error.above:
        return None
    if isinstance(call.port, LoopPort):
        call.port.exceeded(error.below())
    return error


def _decided_again(parent: View, call_id: str) -> str:
    """The last decision of somebody that a call runs once more; empty if there is none."""
    call = parent.calls.named(call_id)
    decisions = reversed(call.decisions) if call is not None else ()
    return next((one.id for one in decisions if one.run_again), "")


def _took(child: Session, decision: str) -> bool:
    """Whether a child took up a decision that its call runs once more."""
    name = decision.encode()
    return any(name in entry.line for entry in child.entries)


async def _give_up(child: Recording, status: str) -> None:
    """Close a child that failed or was stopped: its parent reads of it as of any failed tool."""
    if child.session.header.is_saga:
        return  # its root rolls it back, and closes it then
    if child.view.closed is None and status in ("failed", "stopped"):
        again = child.again()
        await again.append(Draft("perdure:closed", {"status": status}))


async def _tell(call: Call, control: Control) -> None:
    await call.cancelled
    control.abort(call.cancelled.reason)


def _waits(state: RunState) -> Suspend:
    wait: dict[str, object] = {
        "kind": CHILD,
        "session": state.session,
        "status": state.status,
    }
    if state.due is not None:
        wait["due"] = state.due
    return Suspend(f"its agent waits: {state.status}", wait=wait)


def _refused(state: RunState, error: BudgetExceeded) -> Suspend:
    """A budget above a child refused it a request: it goes on when that is raised."""
    wait: dict[str, object] = {
        "kind": CHILD,
        "session": state.session,
        "status": state.status,
        "cause": BUDGET,
        **needs_of(error),
    }
    return Suspend(f"its agent waits: {error}", wait=wait)


def _broken(parent: Recording, call: Call, error: BaseException | None, now: int) -> Suspend:
    """A child was cut, or its log failed. That is no failure of its work: it is entered again."""
    child = subsession_id(parent.session.id, call.id)
    wait = {"kind": CHILD, "session": child, "status": "suspended", "due": now, CUT: True}
    return Suspend(f"its agent was cut: {error}", wait=wait)


def _task_of(arguments: str) -> str:
    members = parse_arguments(arguments, required=True)
    task = members.get("task")
    if set(members) != {"task"} or not isinstance(task, str):
        raise InvalidArguments("it takes one argument, 'task', a string")
    return task
