"""What a drive needs to know. One frozen value, read and never written."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Mapping, Sequence
from decimal import Decimal
from typing import Literal, NamedTuple, Protocol, cast

from perdure.clock import Clock, Ids, RandomIds, SystemClock
from perdure.errors import ConfigError
from perdure.loop.account import Account
from perdure.loop.gates import Gates
from perdure.loop.identity import check_identity
from perdure.loop.middleware import Middleware
from perdure.loop.model import Model
from perdure.loop.retry import Retry
from perdure.loop.transcript import Items
from perdure.seconds import check_seconds
from perdure.tools import Call, Elicitor, Tool, ToolResult
from perdure.wire import ABSENT, Item, Request, is_extension

DEFAULT_MAX_PARALLEL = 8
"""How many tools of one batch run at once, unless a configuration says otherwise."""

DEFAULT_GRACE = 5.0
"""Seconds a told tool has to end before it is cancelled."""

DEFAULT_WIND_DOWN = 10.0
"""Seconds a cancelled caller waits for the drive to end."""


PROVIDERS = frozenset({"anthropic", "bedrock", "gemini"})
"""The slugs of the items in which adapters keep what only their provider takes back."""


def visible_to_model(item: Item) -> bool:
    """Whether a request carries the item: all but those of an application's type, `slug:type`.

    What a provider made of a type of its own goes back to it; the adapters of others leave it out,
    and say so.
    """
    return not is_extension(item) or item.type.partition(":")[0] in PROVIDERS


ToolRecorder = Callable[[Call, str, object], Awaitable[None]]
"""Takes a tool's record: the call, the namespace, any JSON value. Returns when it is durable."""

OnUnknown = Literal["tell", "halt"]
"""`tell`: the model reads that the outcome is unknown. `halt`: the call stays without an output
until somebody says what came of it (LOG 5.10)."""

LateSink = Callable[[str, ToolResult], None]
"""Takes the id of a call and what its abandoned tool gave."""

OnFailure = Literal["tell", "trip"]
"""What becomes of a drive of which a call entered its tool and failed: the model is `tell`-ed, or
it `trip`s the drive, which is then aborted. Nested calls are the business of their tool."""


class Nested(NamedTuple):
    """What a nested call gave, and what its tool got for it."""

    result: ToolResult
    arguments: str


RunNested = Callable[[str, str], Awaitable[Nested]]
"""Runs a nested call under a key and an id; empty ones are made up."""

NestedMemo = Callable[[Call, Tool, str, RunNested], Awaitable[ToolResult]]
"""Stands around a nested call: the call that makes it, its tool, its arguments, what runs it. With
a record it is a step of the call, so that a call that is entered again does not make it again."""

ToolProvider = Callable[[], Sequence[Tool]] | Callable[[], Awaitable[Sequence[Tool]]]


class Limits(NamedTuple):
    """What a run may take; None is no limit. Tokens and money are a tree's, turns a run's own."""

    turns: int | None = None
    seconds: float | None = None
    tokens: int | None = None
    usd: Decimal | None = None
    output: int | None = None
    """Tokens of output that a request reserves which sets no limit of its own."""
    prices: tuple[Mapping[str, object], ...] = ()
    """What tokens cost, by model, as a record holds it."""


NO_LIMITS = Limits()


class Answering(Protocol):
    """Judges what one drive is to answer with. What it raises ends the drive in error."""

    def given(self, items: Items) -> bool:
        """Whether a transcript ends in an answer that was given by calls.

        Asked after each batch, and before a drive first asks the model. The drive is `done` then,
        unless something is queued.
        """
        ...

    def judge(self, items: Items, *, final: bool) -> Item | None:
        """Judge a turn that gave no answer by calls.

        Args:
            items: The transcript, with the turn at its end.
            final: The turn made no calls, so its text is to be the answer.

        Returns:
            What the model is told because its text will not do; None if it will. Nobody is told
            anything after a turn with calls.
        """
        ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What one drive runs with.

    Raises:
        ConfigError: A limit is not positive, or the settings name a conversation of a server.
    """

    model: Model
    model_name: str = ""
    """The `model` member of every request."""
    instructions: str = ""
    tools: Sequence[Tool] = ()
    """In the order the request shows them."""
    tool_provider: ToolProvider | None = None
    """Gives the tools of each turn, in place of `tools`; asked once a turn, before the request."""
    settings: Request = dataclasses.field(default_factory=Request)
    """The base of every request; `input`, `tools`, `store` and `stream` belong to the loop."""
    max_turns: int | None = None
    """Stop after this many turns; the batch of the last one still runs."""
    max_seconds: float | None = None
    """Stop when a turn ends after this many seconds. What runs then is not cut short."""
    left: Limits = NO_LIMITS
    """What turns and seconds the run of this drive has left, if drives before it took some; 0 lets
    a batch run, and no model call follow."""
    account: Account | None = None
    """What its requests are charged to; without one they have no limit in tokens or money."""
    max_parallel: int = DEFAULT_MAX_PARALLEL
    sequential: bool = False
    """Run every batch one call at a time."""
    retry: Retry = dataclasses.field(default_factory=Retry)
    middleware: Sequence[Middleware] = ()
    """The first is the outermost."""
    elicitor: Elicitor | None = None
    """Asks the user what a tool wants to know; without one, nobody is asked."""
    recorder: ToolRecorder | None = None
    """Takes the records that tools write."""
    on_unknown: OnUnknown = "tell"
    """What becomes of a call whose outcome nobody knows."""
    on_failure: OnFailure = "tell"
    """What becomes of a drive of which a call failed."""
    on_late: LateSink | None = None
    """Hears of a result that an abandoned tool gave after its call had ended."""
    memo: NestedMemo | None = None
    """Stands around the calls that tools make."""
    gates: Gates | None = None
    """What the record says of approvals; without it, no call that needs one is let in."""
    deployment: str = ""
    """Who runs it: the identity of the deployment."""
    principal: str = ""
    """For whom it runs."""
    fence: str = ""
    """What tells the driver in force from all others, for tools to hand on (LOG 2.2)."""
    keep: Callable[[Item], bool] = visible_to_model
    """Which items of the transcript the model sees; asked once for each."""
    answering: Answering | None = None
    """Judges the answers of the drive; without it, the text of a turn without calls is one."""
    grace: float = DEFAULT_GRACE
    """Seconds a told tool has to end before it is cancelled."""
    wind_down: float = DEFAULT_WIND_DOWN
    """Seconds a cancelled caller waits for the drive to end."""
    clock: Clock = dataclasses.field(default_factory=SystemClock)
    ids: Ids = dataclasses.field(default_factory=RandomIds)

    def __post_init__(self) -> None:
        for one in cast("Sequence[object]", self.middleware):
            if not isinstance(one, Middleware):
                raise ConfigError(f"middleware holds {one!r}; derive it from perdure.Middleware")
        check_identity(self.deployment, "identity")
        check_identity(self.principal, "principal")
        if self.max_turns is not None and self.max_turns < 1:
            raise ConfigError(f"max_turns must be at least 1, got {self.max_turns}")
        if self.max_seconds is not None:
            check_seconds("max_seconds", self.max_seconds)
        if self.left.turns is not None and self.left.turns < 0:
            raise ConfigError(f"a run cannot have {self.left.turns} turns left")
        if self.max_parallel < 1:
            raise ConfigError(f"max_parallel must be at least 1, got {self.max_parallel}")
        if self.settings.previous_response_id or "conversation" in self.settings.unknown:
            raise ConfigError(
                "a conversation that a server holds cannot be continued; "
                "the history is always sent whole"
            )
        if self.settings.input is not ABSENT:
            raise ConfigError("settings must not hold an input; give it as the prompt")
