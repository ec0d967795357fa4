"""One life of a process that drives a run: it drives, tells what really happened, and may die.

A life asks for the run by its id, like any program. What waits it answers, from the ledger of what
really happened: a held call is approved; of a halted one it says what its tool gave, or that it
never ran. So it goes on until the run ends, or stays where it is.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias, cast

import msgspec

from perdure.agent import Agent
from perdure.durable import Undone, read_run
from perdure.durable.agents import agent_tool
from perdure.durable.callwork import around_step
from perdure.durable.children import AgentTool
from perdure.durable.driven import Driven
from perdure.errors import RunError, RunFailed, SagaRolledBack
from perdure.log.nested import is_nested
from perdure.log.store import Store
from perdure.loop import PendingCall
from perdure.programs import Program
from perdure.prompts import Input
from perdure.result import RunResult
from perdure.runs import Runs
from perdure.testing.chaos_ledger import EffectLedger, Line, lease_line
from perdure.testing.chaos_places import below, path_here, path_to, place_of, step_keys
from perdure.testing.chaos_store import Faults, faulted
from perdure.testing.chaos_votes import chaos_keys, vote, without_keys
from perdure.testing.chaos_waits import (
    NO_ANSWERS,
    Answers,
    ChaosClock,
    clock_of,
    halted_steps,
    jump,
    tell_waits,
    waits_in_words,
    watching_steps,
)
from perdure.tools import (
    AsyncTx,
    Call,
    Compensation,
    Compensator,
    Tool,
    ToolResult,
    Transaction,
    Tx,
    approval_of,
    as_tool,
    wrap,
)
from perdure.tools.compensation import call_compensator
from perdure.tools.tool import compensator_of, reconciler_of
from perdure.wire import text_of

ROUNDS = 20
"""How often a life asks for a run that does not end."""

WAITING = ("halted", "input_required", "suspended")

FIRED = "It took effect; what it gave is not known."
"""What a life says of a call whose tool was entered and whose process died in it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """What a process is to do.

    Attributes:
        run: The run's id.
        input: Its input.
        saga: It is all or nothing.
        number: Which life of the run it is, from 0.
        ledger: Where it writes what really happens.
        faults: Where it dies.
        table: Where committed transactions are counted, in the log's own database.
        answers: What it tells a run that waits.
        clock: What time it is for the agent; its own clock, if nothing else is said.
    """

    run: str
    input: Input
    number: int
    ledger: EffectLedger
    faults: Faults
    table: str = ""
    saga: bool = False
    answers: Answers = NO_ANSWERS
    clock: ChaosClock | None = None


Target: TypeAlias = Agent[object] | Program[object]
"""What is tried out."""


async def live(agent: Target, store: Store, life: Life) -> str:
    """Drive a run until it ends or cannot go on; its status, which the ledger is told too."""
    own = faulted(
        store,
        life.faults,
        on_lease=lambda lease: life.ledger.write(lease_line(life.run, life.number, lease)),
    )
    clock = clock_of(agent.clock, life.ledger.lines(life.run))
    life = dataclasses.replace(life, clock=clock)
    agent_tool.set(functools.partial(_watched_part, life=life))
    around_step.set(watching_steps(life.run, life.number, life.ledger, life.faults))
    own_agent: Target
    if isinstance(agent, Program):
        own_agent = dataclasses.replace(agent, store=own, clock=clock)
    else:
        own_agent = watched(agent, life).with_(store=own)
    runs = Runs(own, clock=clock)
    status, before = "", ""
    for _ in range(ROUNDS):
        before, status = status, await _asked(own_agent, runs, life)
        if status not in (*WAITING, "failed", "aborted", "running"):
            break
        told = await _answer_all(runs, own, life, clock) if status in WAITING else True
        if not told and status == before:
            break
    life.ledger.write(
        Line(run=life.run, phase="writes", life=life.number, writes=tuple(life.faults.writes))
    )
    return status


async def _run(agent: Target, life: Life) -> RunResult[object]:
    if isinstance(agent, Program):
        return await agent.run(life.input if agent.takes_input else None, run_id=life.run)
    return await agent.run(life.input, run_id=life.run, saga=life.saga)


async def _asked(agent: Target, runs: Runs, life: Life) -> str:
    """Ask for the run; its status, as its caller learns it."""
    text, recorded = "", ""
    try:
        result = await _run(agent, life)
        status, text = str(result.status), result.text or waits_in_words(result.pending)
        recorded = (await runs.get(life.run)).status
    except Exception as error:  # noqa: BLE001 - whatever else it is, it is no status
        cause = cause_of(error)
        undone = isinstance(cast("object", error), SagaRolledBack)
        failed = "rolled_back" if undone else "failed"
        status = failed if cause is not None else f"{type(error).__name__}: {error}"
        text = str(cause or "")
    await life.faults.breathe()
    life.ledger.write(
        Line(
            run=life.run,
            phase="told",
            life=life.number,
            status=status,
            recorded=recorded,
            output=text,
        )
    )
    return status


def cause_of(error: Exception) -> BaseException | None:
    """What a run failed with; None if it is another error."""
    return cast("RunFailed[object]", error).cause if isinstance(error, RunFailed) else None


# --- answering ---------------------------------------------------------------------------------


async def _answer_all(runs: Runs, store: Store, life: Life, clock: ChaosClock) -> bool:
    """Answer every call that waits; whether any took an answer, or a time came."""
    answered = False
    state = await runs.get(life.run)
    for call in state.pending:
        try:
            answered = await _answer(runs, store, life, call) or answered
        except RunError:
            continue  # somebody said so before, in an earlier life
    for undone in state.report.unknown if state.report is not None else ():
        try:
            if undone.step:
                await _undo_by_hand(runs, store, life, undone)
            else:
                path = await path_to(store, undone.session)
                await _resolve(runs, life, undone.call_id, undone.session, path)
            answered = True
        except RunError:
            continue
    return answered or jump(clock, state.due, life.ledger, life.run, life.number)


async def _answer(runs: Runs, store: Store, life: Life, call: PendingCall) -> bool:
    name = call.call.call_id
    match call.reason:
        case "suspended":
            return await tell_waits(runs, life.run, call, life.answers, life.ledger)
        case "aborted" | "unknown" if steps := await halted_steps(store, call):
            path = await path_to(store, call.session)
            for step in steps:
                await _resolve_step(runs, life, call, step, path)
        case "unknown" if not name:  # a program in which too many processes died
            await runs.retry(life.run, by="chaos")
        case "held" if call.gate is not None:
            return await vote(runs, life.run, call)
        case "held":
            await runs.approve(life.run, name, session=call.session, by="chaos")
        case "aborted" | "unknown" if call.effect != "transactional":  # it knows by itself
            await _resolve(runs, life, name, call.session, await path_to(store, call.session))
        case _:
            return False
    return True


async def _resolve_step(
    runs: Runs, life: Life, call: PendingCall, step: str, path: Sequence[str]
) -> None:
    """Say what really came of a step."""
    name, session = call.call.call_id, call.session
    fired, value = _what_happened_in(life.ledger.lines(life.run), call, step, path)
    if fired:
        await runs.resolve(life.run, name, session=session, step=step, value=value, by="chaos")
        return
    await runs.resolve(
        life.run, name, session=session, step=step, never_ran=True, min_age=0, by="chaos"
    )


def _what_happened_in(
    lines: tuple[Line, ...], call: PendingCall, step: str, path: Sequence[str]
) -> tuple[bool, object]:
    """Whether a step was taken, and what it gave. That of a nested call is its tool's."""
    if is_nested(step):
        made = [line.call_id for line in lines if line.key == f"{call.idempotency_key}/{step}"]
        return what_happened(lines, made[-1]) if made else (False, None)
    unknown = msgspec.json.encode(FIRED).decode()
    place = place_of(path, call.call.call_id, step)
    fired, output = what_happened(lines, place, unknown)
    return fired, msgspec.json.decode(output)


async def _undo_by_hand(runs: Runs, store: Store, life: Life, undone: Undone) -> None:
    """Undo what a call that a tool made may have done, and say so."""
    await runs.resolve(
        life.run,
        undone.call_id,
        session=undone.session,
        step=undone.step,
        compensated=True,
        by="chaos",
    )
    keys = step_keys(await read_run(store, undone.session), undone.call_id, undone.step)
    for line in life.ledger.lines(life.run):
        if line.phase == "entered" and line.key in keys:
            life.ledger.write(msgspec.structs.replace(line, phase="undoing", life=life.number))
            life.ledger.write(msgspec.structs.replace(line, phase="undone", life=life.number))


async def _resolve(runs: Runs, life: Life, call_id: str, session: str, path: Sequence[str]) -> None:
    """Say what really came of a call."""
    place = place_of(path, call_id)
    lines = [line for line in life.ledger.lines(life.run) if line.call_id == place]
    fired, output = what_happened(tuple(lines), place)
    if life.saga and lines and lines[-1].phase == "raised":
        await runs.resolve(life.run, call_id, session=session, failed=output, by="chaos")
    elif fired:
        await runs.resolve(life.run, call_id, session=session, output=output, by="chaos")
    else:
        await runs.resolve(
            life.run, call_id, session=session, never_ran=True, min_age=0, by="chaos"
        )


def what_happened(lines: tuple[Line, ...], call_id: str, unknown: str = FIRED) -> tuple[bool, str]:
    """Whether a call entered its tool, and what it gave, by the ledger."""
    own = [line for line in lines if line.call_id == call_id]
    left = [line.output for line in own if line.phase in ("left", "raised")]
    fired = any(line.phase == "entered" for line in own)
    return fired, (left[-1] if left else None) or unknown


# --- watching tools ------------------------------------------------------------------------------


def watched(agent: Agent[object], life: Life) -> Agent[object]:
    """The agent, whose tools write into the ledger when they are entered and left."""
    provider = agent.tool_provider
    given_tools = [as_tool(one) for one in agent.tools]
    if agent.key_source is not None or any(map(approval_of, given_tools)):
        agent = agent.with_(approvers=chaos_keys)
    if life.clock is not None:
        agent = agent.with_(clock=life.clock)
    tools = [_watched_tool(one, life) for one in given_tools]
    if provider is None:
        return agent.with_(tools=tools)

    async def provide() -> list[Tool]:
        given = provider()
        found = await given if inspect.isawaitable(given) else given
        return [_watched_tool(as_tool(one), life) for one in found]

    return agent.with_(tools=tools, tool_provider=provide)


class _WatchedAgent(AgentTool):
    """A sub-agent, whose tools are watched. It has no effect of its own."""

    async def execute(self, call: Call) -> ToolResult:
        with below(call.id):
            return await super().execute(call)


def _watched_part(agent: Driven, *, life: Life) -> AgentTool:
    """An agent that a program drives, whose tools are watched."""
    if not isinstance(cast("object", agent), Agent):
        return AgentTool(agent, "agent", "")
    return _WatchedAgent(watched(cast("Agent[object]", agent), life), "agent", "")


def _watched_tool(tool: Tool, life: Life) -> Tool:
    if isinstance(tool, AgentTool) and isinstance(cast("object", tool.driven), Agent):
        inner = watched(cast("Agent[object]", tool.driven), life)
        asks = without_keys(tool.approval)
        return _WatchedAgent(inner, tool.name, tool.description, asks)

    async def execute(call: Call) -> ToolResult:
        line = Line(
            run=life.run,
            phase="entered",
            life=life.number,
            tool=call.name,
            effect=call.effect,
            call_id=place_of(path_here(), call.id),
            key=call.idempotency_key,
            vouched=reconciler_of(tool) is not None,
            undoable=compensator_of(tool) is not None,
        )
        await life.faults.around(f"enter {call.name}", _writing(life, line))
        try:
            result = await tool.execute(call)
        except Exception as error:
            output = str(error) or type(error).__name__
            raised = msgspec.structs.replace(line, phase="raised", output=output)
            await life.faults.around(f"leave {call.name}", _writing(life, raised))
            raise
        if result.transaction is not None:
            return dataclasses.replace(
                result, transaction=_counted(result.transaction, line, life.table)
            )
        left = msgspec.structs.replace(line, phase="left", output=text_of(result.output))
        await life.faults.around(f"leave {call.name}", _writing(life, left))
        return result

    compensator = compensator_of(tool)
    undo = _watched_compensator(compensator, life) if compensator is not None else None
    approval = without_keys(approval_of(tool))
    return wrap(tool, execute=execute, approval=approval, compensator=undo)


def _watched_compensator(compensator: Compensator, life: Life) -> Compensator:
    async def undo(compensation: Compensation) -> None:
        line = Line(
            run=life.run,
            phase="undoing",
            life=life.number,
            tool=compensation.tool,
            call_id=compensation.call_id,
            key=compensation.idempotency_key,
        )
        await life.faults.around(f"undo {compensation.tool}", _writing(life, line))
        await call_compensator(functools.partial(compensator, compensation))
        undone = msgspec.structs.replace(line, phase="undone")
        await life.faults.around(f"undid {compensation.tool}", _writing(life, undone))

    return undo


def _writing(life: Life, line: Line) -> Callable[[], Awaitable[None]]:
    async def write() -> None:
        life.ledger.write(line)

    return write


def _counted(transaction: Transaction, line: Line, table: str) -> Transaction:
    """A transaction function that leaves a row behind, if it commits."""
    values = [line.run, line.call_id]

    def counted(tx: Tx | AsyncTx) -> object:
        value = cast("Callable[[object], object]", transaction)(tx)
        if inspect.isawaitable(value):
            return _later(value, cast("AsyncTx", tx), table, values)
        cast("Tx", tx).execute(f"INSERT INTO {table} VALUES (?, ?)", values)  # noqa: S608 - ours
        return value

    return cast("Transaction", counted)


async def _later(value: Awaitable[object], tx: AsyncTx, table: str, values: list[str]) -> object:
    given = await value
    await tx.execute(f"INSERT INTO {table} VALUES ($1, $2)", values)  # noqa: S608 - a name of ours
    return given
