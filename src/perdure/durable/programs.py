"""Programs without a model: an async function as a run by id, with steps and waits of its own.

The driver drives one as it drives an agent; a *drive* of a program enters its function from the
top, and ends when the function returns, fails, or is unwound by a wait. Its steps and waits name no
call (LOG 5.5). What it returned closes the run; what it failed with does not, so that it goes on
from its steps when it is driven next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Raw

from perdure.durable.callwork import ProgramPort
from perdure.durable.driven import Driven
from perdure.durable.state import CUT
from perdure.errors import Aborted, LogError, PerdureError, StopRequested, Suspend, ToolPanic
from perdure.log import Draft, Recording, View
from perdure.log.entries import Json
from perdure.log.programs import program_work
from perdure.log.recorded_bodies import run_end_draft
from perdure.log.work import CHILD
from perdure.loop import RunEnd
from perdure.loop.events import Reason
from perdure.tools import Call, Effect, Executor, Job, ToolResult
from perdure.tools.executor import Batch
from perdure.tools.job import BatchHooks, Outcome
from perdure.tools.result import given_json
from perdure.wire import Message, text_of

Body = Callable[[str], Awaitable[object]]
"""What a program does with its input, which is JSON text."""


class Programmed(Driven, Protocol):
    """A program, as far as its drives go. `perdure.Program` is one."""

    @property
    def grace(self) -> float:
        """Seconds that a program which was told to stop has before it is cancelled."""
        ...

    @property
    def body(self) -> Body:
        """What it does with its input."""
        ...


class _BodyTool:
    """The function of a program, as what an executor enters."""

    effect: Effect = "idempotent"
    """It is entered as often as its waits and crashes ask; what it does once, it does in steps."""
    description = ""
    parameters: Mapping[str, object] | None = None

    def __init__(self, name: str, body: Body) -> None:
        self.name = name
        self._body = body

    async def execute(self, call: Call) -> ToolResult:
        given = await self._body(call.arguments)
        return ToolResult(given_json(given, f"program {self.name!r} ran, and what it returned"))


class ProgramDrive:
    """A drive of a program: a task of its own, and the end by which it is stopped."""

    def __init__(self, program: Programmed, recording: Recording) -> None:
        self._program = program
        self._recording = recording
        self._cause: BaseException | None = None
        self._batch: Batch | None = None
        self._run_id = program.ids.new("run_")
        self._task = asyncio.get_running_loop().create_task(
            self._drive(), name=f"perdure-program-{recording.session.id}"
        )

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self._task.done()

    def abort(self, cause: BaseException | str = "aborted") -> None:
        """Ask it to stop. It ends as `aborted`, with this cause. The first cause stands."""
        if self._cause is None and not self.done:
            self._cause = Aborted(cause) if isinstance(cause, str) else cause
            if self._batch is not None:
                self._batch.stop(str(self._cause))

    async def wait(self) -> RunEnd:
        """Wait for it to end; a waiter that is cancelled aborts it, and leaves."""
        try:
            return await asyncio.shield(self._task)
        except asyncio.CancelledError:
            self.abort("the caller was cancelled")
            raise

    async def _drive(self) -> RunEnd:
        try:
            await self._recording.append(Draft("run", self._start()))
            port = ProgramPort(self._recording)
            outcome = await self._entered(port)
            return await self._ended(outcome, port.agents)
        except LogError as error:  # the record refuses; whoever drives next reads what it has
            return self._end("error", error)

    def _start(self) -> Json:
        first = self._recording.view.drives.last is None
        return {
            "run_id": self._run_id,
            "phase": "start",
            "source": "input" if first else "resume",
        }

    async def _entered(self, port: ProgramPort) -> Outcome:
        program = self._program
        job = Job(
            tool=_BodyTool(program.name, program.body),
            call_id="",
            name=program.name,
            arguments=_input_of(self._recording.view),
            idempotency_key=self._recording.session.id,
            port=port,
        )
        executor = Executor(grace=program.grace, clock=program.clock)
        self._batch = executor.batch([job], BatchHooks())
        if self._cause is not None:
            self._batch.stop(str(self._cause))
        try:
            (outcome,) = await self._batch.run()
        finally:
            await port.close()
        return outcome

    # --- how it ended ----------------------------------------------------------------------------

    async def _ended(self, outcome: Outcome, agents: Mapping[str, Json]) -> RunEnd:
        if program_work(self._recording.view.work).halted_steps:  # whatever it made of that
            return await self._write(self._end("input_required", outcome.error))
        halted = [
            {"kind": CHILD, "name": name, **wait}
            for name, wait in agents.items()
            if wait.get("status") == "halted" or wait.get(CUT)
        ]
        if halted and outcome.status == "returned":
            wait: Json = {**halted[0], "waits": halted}
            return await self._write(self._end("input_required"), wait=wait)
        if outcome.status == "returned" and outcome.result is not None:
            result = text_of(outcome.result.output)
            closed: Json = {"status": "done", "result": Raw(result.encode())}
            try:
                return await self._write(self._end("done"), closed=closed)
            except StopRequested:  # it comes first; the driver takes it up
                return await self._write(self._end("aborted", Aborted("the run was cancelled")))
        error = outcome.error or PerdureError("the program ended without a result")
        if isinstance(error, Suspend):
            return await self._write(self._end("input_required"), wait=dict(error.wait))
        if self._cause is not None:
            return await self._write(self._end("aborted", self._cause))
        if isinstance(error, ToolPanic) and error.__cause__ is not None:
            error = error.__cause__  # what the function raised, as it raised it
        return await self._write(self._end("error", error))

    async def _write(
        self, end: RunEnd, *, wait: Json | None = None, closed: Json | None = None
    ) -> RunEnd:
        """Write how the drive ended; what it returned closes the run in the same append."""
        told: Json = {"run_id": end.run_id, "reason": end.reason}
        if wait is not None:
            told["perdure:wait"] = wait

        def group(view: View) -> Sequence[Draft]:
            drafts = [Draft("perdure:end", told), run_end_draft(end, view)]
            return [*drafts, Draft("perdure:closed", closed)] if closed is not None else drafts

        await self._recording.recorder.appender.add(group)
        return end

    def _end(self, reason: Reason, error: BaseException | None = None) -> RunEnd:
        return RunEnd(run_id=self._run_id, items=(), reason=reason, error=error)


def _input_of(view: View) -> str:
    """The input of a program as JSON text: its run's first item."""
    first = next((item for item in view.folding.items if isinstance(item, Message)), None)
    return first.text if first is not None else "null"
