"""What one `call_model` was asked for, checked and complete."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal, TypeAlias

from perdure.clock import Clock, Ids
from perdure.compose.asking import Asking
from perdure.compose.conversation import Conversation
from perdure.compose.kinds import ApprovalCheck, ClientTool, ServerTool
from perdure.compose.lifecycle import Lifecycle
from perdure.compose.shapes import Checker
from perdure.compose.signals import RunSignal
from perdure.compose.stops import StopCondition
from perdure.compose.turns import TurnContext
from perdure.loop import Middleware, Retry
from perdure.prompts import Input
from perdure.tools import Elicitor
from perdure.wire import Item, Response

TurnStarts: TypeAlias = Callable[[TurnContext], object]
"""Called before a round's tools run, sync or async. What it raises ends the run in error."""

TurnEnds: TypeAlias = Callable[[TurnContext, Response], object]
"""Called with the response that followed a round. What it raises ends the run in error."""

Context: TypeAlias = (
    Mapping[str, Mapping[str, object]]
    | Callable[[TurnContext], Mapping[str, Mapping[str, object]]]
    | Callable[[TurnContext], Awaitable[Mapping[str, Mapping[str, object]]]]
)
"""The slots of the tools' context, or a function that gives them once."""

OnRunEnd = Literal["drain", "detach", "cancel"]
"""What becomes of background tasks when the run would end: they are waited for, let go, stopped."""

AnyInput: TypeAlias = (
    Input | Callable[[TurnContext], Input] | Callable[[TurnContext], Awaitable[Input]]
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One run, as it was asked for."""

    asking: Asking
    conversation: Conversation
    additional_instructions: str
    input: AnyInput | None
    tools: tuple[ClientTool | ServerTool, ...]
    stop_when: tuple[StopCondition, ...]
    max_rounds: int | None
    final_response: bool | str
    strict_final_response: bool
    require_approval: ApprovalCheck | None
    context: Context | None
    shared_context: Checker | None
    on_turn_start: TurnStarts | None
    on_turn_end: TurnEnds | None
    lifecycle: Lifecycle
    middleware: Sequence[Middleware]
    max_parallel: int
    background_concurrency: int
    on_run_end: OnRunEnd
    signal: RunSignal | None
    retry: Retry
    elicitor: Elicitor | None
    keep: Callable[[Item], bool]
    grace: float
    wind_down: float
    clock: Clock
    ids: Ids

    @property
    def clients(self) -> tuple[ClientTool, ...]:
        """The tools that do not run at the provider's."""
        return tuple(tool for tool in self.tools if isinstance(tool, ClientTool))
