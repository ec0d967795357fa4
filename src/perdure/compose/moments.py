"""The moments of a run, told to its hooks: its beginning, its prompt, its model calls, its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.compose.lifecycle import EndReason, ModelCalled, SessionConfig, TurnType
from perdure.compose.openings import Opened, replace_prompt, said_prompt
from perdure.compose.stops import cost_of
from perdure.errors import Aborted, LoopDetected, PromptRefused
from perdure.wire import Request, Response

if TYPE_CHECKING:
    from perdure.compose.run import Run


class Moments:
    """Tells the hooks of one run, and each moment once."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._began = False
        self._told = 0
        """How many model calls the hooks know of."""

    async def begin(self) -> None:
        """The run begins, and is none that goes on with decisions."""
        run, spec = self._run, self._run.spec
        await spec.lifecycle.session_start(
            run.session_id,
            SessionConfig(
                has_tools=bool(spec.tools),
                has_approval=spec.require_approval is not None
                or any(tool.require_approval for tool in spec.clients),
                has_state=spec.conversation.is_kept,
            ),
        )
        self._began = True

    async def prompted(self, opened: Opened) -> Opened:
        """Put the prompt to the hooks: a text, or the last message of the user that is one.

        Raises:
            PromptRefused: One refused it.
        """
        said = said_prompt(opened)
        if said is None:
            return opened
        run = self._run
        verdict = await run.spec.lifecycle.user_prompt(run.session_id, said)
        if verdict.rejected is not None:
            raise PromptRefused(verdict.rejected)
        return opened if verdict.text is None else replace_prompt(opened, verdict.text)

    async def model_call(self, response: Response) -> None:
        """A response came."""
        run, ledger = self._run, self._run.ledger
        if self._told >= ledger.model_calls:
            return
        self._told = ledger.model_calls
        usage = response.usage or None
        await run.spec.lifecycle.post_model_call(
            ModelCalled(
                session_id=run.session_id,
                response_id=response.id,
                model=str(response.model or (ledger.request or Request()).model or ""),
                seconds=ledger.seconds,
                turn_type=self._turn_type(),
                turn_number=ledger.requests - 1,
                usage=usage,
                cost=cost_of(usage),
            )
        )

    async def end(self, error: Exception | None) -> None:
        """The run ends, with what ended it in error."""
        run, life = self._run, self._run.spec.lifecycle
        try:
            response = run.ledger.response
            if response is not None:
                await self.model_call(response)
            if self._began:
                self._began = False
                await life.session_end(run.session_id, self._end_reason(error), run.totals())
        finally:
            await life.drain()

    def _turn_type(self) -> TurnType:
        run = self._run
        if run.retrying:
            return "retry"
        if run.final:
            return "final"
        if run.ledger.requests > 1:
            return "tool_round"
        return "resume" if run.spec.conversation.decides else "initial"

    def _end_reason(self, error: Exception | None) -> EndReason:
        run = self._run
        if error is not None:
            return "user" if isinstance(error, Aborted) else "error"
        if run.interrupted_by:
            return "user"
        if run.end is not None and isinstance(run.end.error, LoopDetected):
            return "doom_loop"
        return "max_turns" if run.stopped or run.halted else "complete"
