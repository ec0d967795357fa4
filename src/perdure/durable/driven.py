"""What the durable layer needs of an agent: the port through which it drives the loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from perdure.clock import Clock, Ids
from perdure.durable.voting import OnReminder
from perdure.log import Recording
from perdure.log.environment import EnvSource
from perdure.loop import (
    Broadcast,
    CallIds,
    Items,
    Limits,
    Opening,
    PendingCall,
    RunEnd,
    Transcript,
    Trigger,
)
from perdure.loop.account import NOTHING, Account, Spent
from perdure.tools import KeySource, Tool, ToolSet
from perdure.wire import Item


class Handle(Protocol):
    """A drive that was started. `perdure.loop.DriveHandle` is one."""

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        ...

    def abort(self, cause: BaseException | str = ...) -> None:
        """Ask it to stop. The first cause stands."""
        ...

    async def wait(self) -> RunEnd:
        """Wait for it to end; a waiter that is cancelled aborts it."""
        ...


class Driven(Protocol):
    """An agent, as far as its runs by id go. `perdure.Agent` is one."""

    @property
    def name(self) -> str:
        """What the agent is called; recovery knows its runs by it."""
        ...

    @property
    def limits(self) -> Limits:
        """What a run may take. What it waits for people is not counted."""
        ...

    @property
    def lease(self) -> float:
        """Seconds that the lease of a run holds after its driver died."""
        ...

    @property
    def max_stall(self) -> float:
        """Seconds for which the event loop may be blocked and still keep the lease."""
        ...

    @property
    def wind_down(self) -> float:
        """Seconds that a cancelled caller waits for its run to end."""
        ...

    @property
    def env(self) -> EnvSource | None:
        """Says where its work happens; None if nobody does."""
        ...

    @property
    def key_source(self) -> KeySource | None:
        """Says with what the signatures of approvers are checked; None if nobody does."""
        ...

    @property
    def on_reminder(self) -> OnReminder | None:
        """Tells people that a call waits for their votes; None if nobody does."""
        ...

    @property
    def clock(self) -> Clock: ...

    @property
    def ids(self) -> Ids: ...

    @property
    def keep(self) -> Callable[[Item], bool]:
        """Which items the model sees."""
        ...

    async def tools_now(self) -> ToolSet:
        """The tools of the moment."""
        ...

    @property
    def own_limits(self) -> Limits | None:
        """What one run of it was given, over its own limits; None if nothing was."""
        ...

    def limited(self, limits: Limits) -> Driven:
        """The same for a run that was given limits of its own before."""
        ...

    def account(self, parent: Account | None = None, *, spent: Spent = NOTHING) -> Account:
        """An account with its limits, for one drive.

        Args:
            parent: That of whoever started the run.
            spent: What the record says was spent before.
        """
        ...

    def correction(self, items: Items) -> Item | None:
        """What the model is told of an answer that a transcript ends with and that will not do."""
        ...

    async def begin(
        self,
        transcript: Transcript,
        opening: Opening,
        *,
        consumers: Broadcast | None = None,
        call_ids: CallIds | None = None,
        trigger: Trigger | None = None,
        pending: Sequence[PendingCall] = (),
        recording: Recording | None = None,
        limits: Limits | None = None,
        account: Account | None = None,
    ) -> Handle:
        """Start a drive.

        Raises:
            ConfigError: It could not send a request; nothing has happened.
        """
        ...


@runtime_checkable
class SubAgent(Tool, Protocol):
    """A tool behind which an agent works in a session of its own."""

    @property
    def driven(self) -> Driven:
        """The agent."""
        ...
