"""Programs without a model: any async function as a run by id, with steps and waits."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Generic, Self, TypeVar, cast

import msgspec

from perdure import background
from perdure.clock import Clock, Ids, RandomIds, SystemClock
from perdure.durable import OnReminder, RunState, run_by_id
from perdure.durable.programs import Body, ProgramDrive
from perdure.errors import ConfigError, RunFailed
from perdure.log.header import PROGRAM
from perdure.loop import (
    DEFAULT_GRACE,
    DEFAULT_WIND_DOWN,
    Broadcast,
    CallIds,
    Items,
    Limits,
    Opening,
    PendingCall,
    Transcript,
    Trigger,
    visible_to_model,
)
from perdure.loop.account import NOTHING, Account, Spent
from perdure.loop.config import NO_LIMITS
from perdure.result import RunResult, Status
from perdure.seconds import check_seconds
from perdure.tools import KeySource, ToolSet
from perdure.tools.records import type_hints
from perdure.tools.result import given_json
from perdure.wire import Item, user

if TYPE_CHECKING:
    from perdure.log import Recording, Store
    from perdure.log.environment import EnvSource
    from perdure.stores.kept import KeptStores

T = TypeVar("T")

DEFAULT_LEASE = 30.0
"""Seconds that a run stays with a process that has died, unless its program says otherwise."""

MAX_NAME = 200
"""How many characters the name of a program may have."""

DEFAULT_MAX_STALL = 60.0
"""Seconds for which something may block the event loop, likewise."""

Function = Callable[..., Awaitable[T]]
"""An async function of one argument, its input, or of none."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program(Generic[T]):
    """An async function whose runs finish once, whatever dies. It is a definition, as an agent is.

    Args:
        function: An async function that takes its input, or nothing. Inside it `step`, `sleep`,
            `wait_for`, `receive` and `interrupt` work as in a tool. It runs from its top whenever
            it is driven, and finds its steps and waits answered.
        name: What its runs know it by; the function's name unless given.
        store: Where its runs are recorded: a store, or its URL.
        grace: Seconds that it has to end when it is told to stop, before it is cancelled.
        wind_down: Seconds that a cancelled caller waits for it to end.
        lease: Seconds that a run stays with a process that has died.
        max_stall: Seconds for which something may block the event loop.

    Raises:
        ConfigError: The function is not async, takes more than one argument, or has no name; or a
            time is no number of seconds.
    """

    function: Function[T] = dataclasses.field(kw_only=False)
    name: str = ""
    store: str | Store = ""
    grace: float = DEFAULT_GRACE
    wind_down: float = DEFAULT_WIND_DOWN
    lease: float = DEFAULT_LEASE
    max_stall: float = DEFAULT_MAX_STALL
    clock: Clock = dataclasses.field(default_factory=SystemClock, repr=False)
    ids: Ids = dataclasses.field(default_factory=RandomIds, repr=False)
    _takes: tuple[type, ...] = dataclasses.field(init=False, repr=False, compare=False)
    """The type of its input; empty if it takes none."""

    _has_default: bool = dataclasses.field(init=False, repr=False, compare=False)
    """Whether it has an input of its own, which stands if none is given."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", _checked(self.name) or _name_of(self.function))
        for name in ("grace", "wind_down", "lease", "max_stall"):
            seconds: object = getattr(self, name)
            check_seconds(f"Program({name}=...)", seconds, zero=name in ("grace", "wind_down"))
        object.__setattr__(self, "_takes", _takes(self.function, self.name))
        object.__setattr__(self, "_has_default", _has_default(self.function))

    async def run(
        self,
        input: object = None,  # noqa: A002 - the natural word
        *,
        run_id: str,
        wait: bool = True,
    ) -> RunResult[T]:
        """Run to the end, or until it waits. Called again, it goes on, or gives what is recorded.

        Args:
            input: Any JSON value; the id is bound to it. Without one, or with None, the function's
                default stands, if it has one.
            run_id: What the run is called in the store.
            wait: Wait while another process drives the run; else it is refused.

        Returns:
            How the run stands. Its `output` is what the function returned, as the plain values of
            its JSON; a run that waits has none yet, and `pending` says what for.

        Raises:
            RunFailed: The function raised; called again, it goes on from its steps.
            ConfigError: The input does not fit, or there is no store.
            RunMismatch: The id is bound to another input, another program, or an agent's run.
            RunBusy: Another driver has the run, and `wait` is false.
            LogError: The store refuses.
        """
        if not self.store:
            raise ConfigError(f"program {self.name!r} has no store; give one, as sqlite:///runs.db")
        text = given_json(input, f"the input of program {self.name!r}")
        self._argument(text)
        ran = await run_by_id(
            self, self.opened(self.store), run_id, (user(text),), kind=PROGRAM, wait=wait
        )
        result = cast("RunResult[T]", _result(ran.state))
        if ran.error is not None:
            raise RunFailed(result, ran.error)
        return result

    def run_sync(
        self,
        input: object = None,  # noqa: A002
        *,
        run_id: str,
        wait: bool = True,
    ) -> RunResult[T]:
        """`run`, for scripts. Raises as `run`, and `InsideEventLoop` where a loop is running."""
        return background.run_sync(
            lambda: self.run(input, run_id=run_id, wait=wait),
            name="Program.run_sync",
            instead="Program.run",
        )

    def opened(self, store: str | Store) -> Store:
        """A store, by itself or by its URL; one that a URL names is opened once and kept.

        Raises:
            ConfigError: No store has the scheme of the URL, or it is no store.
        """
        if isinstance(store, str):
            return self._kept.get(store)
        from perdure.log.store import check_store

        check_store(store)
        return store

    @functools.cached_property
    def _kept(self) -> KeptStores:
        from perdure.stores.kept import KeptStores

        return KeptStores()

    async def aclose(self) -> None:
        """Close the stores that were opened on the running event loop. Using them opens others."""
        await self._kept.aclose()

    # --- as the driver sees it -----------------------------------------------------------------

    @property
    def takes_input(self) -> bool:
        """Whether the function takes an input."""
        return bool(self._takes)

    @property
    def limits(self) -> Limits:
        """None: its agents have theirs, and what may take too long is a step with a timeout."""
        return NO_LIMITS

    @property
    def own_limits(self) -> Limits | None:
        """No run has any."""
        return None

    def limited(self, limits: Limits) -> Self:  # noqa: ARG002 - the port's signature
        """The same: no run has any."""
        return self

    def account(self, parent: Account | None = None, *, spent: Spent = NOTHING) -> Account:
        """An account without limits of its own."""
        del spent
        return Account(parent)

    @property
    def env(self) -> EnvSource | None:
        """Nobody says where its work happens."""
        return None

    @property
    def key_source(self) -> KeySource | None:
        """It has no calls of its own that anybody votes about; its agents have keys of theirs."""
        return None

    @property
    def on_reminder(self) -> OnReminder | None:
        """Likewise."""
        return None

    @property
    def keep(self) -> Callable[[Item], bool]:
        """Which items a model would see."""
        return visible_to_model

    async def tools_now(self) -> ToolSet:
        """No model, no tools."""
        return ToolSet()

    def correction(self, items: Items) -> Item | None:  # noqa: ARG002 - the port's signature
        """No model, nothing to correct."""
        return None

    @property
    def body(self) -> Body:
        """The function, of its input as JSON text."""

        async def body(text: str) -> object:
            return await self.function(*self._argument(text))

        return body

    async def begin(
        self,
        transcript: Transcript,  # noqa: ARG002
        opening: Opening,  # noqa: ARG002
        *,
        consumers: Broadcast | None = None,  # noqa: ARG002
        call_ids: CallIds | None = None,  # noqa: ARG002
        trigger: Trigger | None = None,  # noqa: ARG002
        pending: Sequence[PendingCall] = (),  # noqa: ARG002
        recording: Recording | None = None,
        limits: Limits | None = None,  # noqa: ARG002
        account: Account | None = None,  # noqa: ARG002
    ) -> ProgramDrive:
        """Start a drive. Of what the port has, a program needs its record alone."""
        if recording is None:
            raise ConfigError("a program runs on a record: use Program.run")
        return ProgramDrive(self, recording)

    def _argument(self, text: str) -> tuple[object, ...]:
        """The input as the function takes it.

        Raises:
            ConfigError: It does not fit.
        """
        if text == "null" and self._has_default:
            return ()
        if not self._takes:
            if text != "null":
                raise ConfigError(f"program {self.name!r} takes no input")
            return ()
        try:
            return (msgspec.json.decode(text, type=self._takes[0]),)
        except msgspec.ValidationError as error:
            raise ConfigError(f"the input of program {self.name!r} does not fit: {error}") from None


async def run(
    function: Function[T],
    input: object = None,  # noqa: A002 - the natural word
    *,
    run_id: str,
    store: str | Store,
    wait: bool = True,
) -> RunResult[T]:
    """Run an async function once, whatever dies: `Program(function, store=store).run(...)`.

    A store that a URL names is closed when this returns; a `Program` keeps it.

    Args:
        function: The function.
        input: Any JSON value, which the function gets; the id is bound to it.
        run_id: What the run is called in the store.
        store: Where it is recorded: a store, or its URL. `memory:` is refused, as it would be gone
            with this call; `memory:NAME` lives as long as the process.
        wait: Wait while another process drives the run; else it is refused.

    Raises:
        RunFailed: The function raised; called again, it goes on from its steps.
        ConfigError: The function, its input or the store cannot be used.
        RunMismatch: The id is bound to another input, another program, or an agent's run.
        RunBusy: Another driver has the run, and `wait` is false.
        LogError: The store refuses.
    """
    if store == "memory:":
        raise ConfigError(
            "what 'memory:' keeps is gone when this returns, and the steps would be taken again: "
            "name it, as 'memory:jobs', hand over a MemoryStore, or give a file, as "
            "'sqlite:///runs.db'"
        )
    program = Program(function, store=store)
    try:
        return await program.run(input, run_id=run_id, wait=wait)
    finally:
        await program.aclose()


def _result(state: RunState) -> RunResult[object]:
    done = state.status == "done" and bool(state.text)  # it may have been erased
    return RunResult(
        run_id=state.run_id,
        status=cast("Status", state.status),
        text=state.text,
        items=state.items,
        pending=state.pending,
        turns=0,
        usage=state.usage,
        cause=state.cause,
        _output=(msgspec.json.decode(state.text),) if done else (),
    )


def _checked(name: object) -> str:
    """The name of a program as it was given.

    Raises:
        ConfigError: It cannot be used.
    """
    shown = isinstance(name, str) and name.isprintable() and name.strip() == name
    if shown and isinstance(name, str) and len(name) <= MAX_NAME:
        return name
    raise ConfigError(
        f"a program has a printable name of 1 to {MAX_NAME} characters without space around it, "
        f"not {name!r:.60}"
    )


def _name_of(function: Callable[..., object]) -> str:
    """What a function is called; a program has to be found again by it.

    Raises:
        ConfigError: It has no name of its own.
    """
    name = str(getattr(function, "__name__", ""))
    if not name.isidentifier():
        raise ConfigError(f"{function!r} has no name to find it by again: give name=...")
    return name


def _has_default(function: Callable[..., object]) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return any(
        one.default is not one.empty for one in parameters if one.kind is not one.KEYWORD_ONLY
    )


def _takes(function: Callable[..., object], name: str) -> tuple[type, ...]:
    """The type of a program's input; empty if it takes none.

    Raises:
        ConfigError: The function is not async, or takes more than one argument.
    """
    if not inspect.iscoroutinefunction(function):
        raise ConfigError(f"program {name!r} needs an async function, not {function!r}")
    parameters = inspect.signature(function).parameters.values()
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [one for one in parameters if one.kind in by_place]
    if len(needed) > 1 or any(
        one.kind is one.KEYWORD_ONLY and one.default is one.empty for one in parameters
    ):
        raise ConfigError(f"program {name!r} takes one argument, its input; put more into a dict")
    if not needed:
        return ()
    hints = type_hints(function, {}, f"program {name!r}")
    return (cast("type", hints.get(needed[0].name, object)),)
