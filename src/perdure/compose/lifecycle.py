"""The moments of a run that lifecycle hooks are told of.

A `Lifecycle` has a method for each; every one does nothing until it is overridden. They stand
beside middleware for what only `call_model` knows: the session, the prompt, a stop, an approval.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal, NamedTuple

from perdure.wire import Usage

TurnType = Literal["initial", "resume", "tool_round", "final", "retry"]
"""What a model call is: the first, the one after decisions, one after a round, the forced answer,
that answer asked for again."""

EndReason = Literal["complete", "error", "max_turns", "user", "doom_loop"]
Risk = Literal["low", "medium", "high"]
Permission = Literal["allow", "deny", "ask_user"]


class SessionConfig(NamedTuple):
    """What a run has."""

    has_tools: bool
    has_approval: bool
    has_state: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelCalled:
    """One response that was read to its end. `seconds` is from its request to its last byte."""

    session_id: str
    response_id: str
    model: str
    seconds: float
    turn_type: TurnType
    turn_number: int
    usage: Usage | None
    cost: float | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class UsageTotals:
    """What all model calls of a run used. `cost` is None if no server said."""

    usage: Usage
    model_calls: int
    cost: float | None = None


class PromptVerdict(NamedTuple):
    """What becomes of a prompt: another text, or a refusal with its reason."""

    text: str | None = None
    rejected: str | None = None


class ToolVerdict(NamedTuple):
    """What becomes of a call about to run: other arguments, or why it must not."""

    arguments: Mapping[str, object] | None = None
    blocked: str | None = None


class PermissionVerdict(NamedTuple):
    """What is said about a call that needs approval."""

    decision: Permission = "ask_user"
    reason: str = ""


class StopVerdict(NamedTuple):
    """Whether a run that is to stop goes on, and what the user says then."""

    resume: bool = False
    prompt: str = ""


class Lifecycle:
    """Hears the moments of a run. What a method raises ends the run in error."""

    async def session_start(self, session_id: str, config: SessionConfig) -> None:
        """A run begins; not one that goes on with decisions."""

    async def user_prompt(self, session_id: str, prompt: str) -> PromptVerdict:
        """The prompt, before the first request: a text, or the last user message that is one."""
        del session_id, prompt
        return PromptVerdict()

    async def pre_tool_use(
        self, session_id: str, tool: str, arguments: Mapping[str, object]
    ) -> ToolVerdict:
        """A call is about to run. Not asked for one whose arguments cannot be read."""
        del session_id, tool, arguments
        return ToolVerdict()

    async def post_tool_use(
        self,
        session_id: str,
        tool: str,
        arguments: Mapping[str, object],
        output: object,
        seconds: float,
    ) -> None:
        """A body ran and gave a result."""

    async def post_tool_use_failure(
        self, session_id: str, tool: str, arguments: Mapping[str, object], error: BaseException
    ) -> None:
        """A body ran and failed."""

    async def permission_request(
        self, session_id: str, tool: str, arguments: Mapping[str, object], risk: Risk
    ) -> PermissionVerdict:
        """A call needs approval. It is asked once for each, and not for one that cannot be read."""
        del session_id, tool, arguments, risk
        return PermissionVerdict()

    async def stop(self, session_id: str) -> StopVerdict:
        """A condition or the limit stops the run."""
        del session_id
        return StopVerdict()

    async def post_model_call(self, called: ModelCalled) -> None:
        """A response was read to its end."""

    async def session_end(self, session_id: str, reason: EndReason, totals: UsageTotals) -> None:
        """A run that began is over."""

    async def drain(self) -> None:
        """The run is over, however it went: wait for work that hooks left behind."""
