"""The face: an agent is a definition; running it is a method call."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Awaitable, Callable, Sequence

from perdure import background
from perdure.clock import Clock, Ids, RandomIds, SystemClock
from perdure.errors import ConfigError
from perdure.loop import (
    Broadcast,
    Config,
    DriveHandle,
    Model,
    Opening,
    Transcript,
    begin,
    check_opening,
)
from perdure.models import Resolved, resolve
from perdure.result import RunResult, result_of
from perdure.stream import RunStream
from perdure.tools import Tool, ToolSet, as_tool
from perdure.wire import Item, Part, Request, user

Input = str | Part | Item | Sequence[Item]
"""What a run begins from: a text or a part that the user says, an item, or items."""

Instructions = str | Callable[[], str] | Callable[[], Awaitable[str]]
"""What the model is told first; a function is asked once for each drive."""

DEFAULT_MAX_TURNS = 50
"""How many turns a run may take, unless its agent says otherwise."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Agent:
    """A model with instructions and tools. It is a definition: it holds no conversation.

    Args:
        model: A model string, as `openai:gpt-5-mini`, or a `Model`.
        name: What the agent is called.
        description: What it is for, in a sentence or two.
        instructions: What the model is told first, or a function that says it.
        tools: Typed functions or tools. The request shows them sorted by name.
        settings: Other members of every request, as `Request(temperature=0)`.
        max_turns: How many turns a run may take; None for no limit.

    Raises:
        ConfigError: A limit or a tool is wrong.
        DuplicateTool: Two tools share a name.
    """

    model: str | Model = dataclasses.field(kw_only=False)
    name: str = "agent"
    description: str = ""
    model_name: str = ""
    instructions: Instructions = ""
    tools: Sequence[Tool | Callable[..., object]] = ()
    settings: Request = dataclasses.field(default_factory=Request)
    max_turns: int | None = DEFAULT_MAX_TURNS
    clock: Clock = dataclasses.field(default_factory=SystemClock, repr=False)
    ids: Ids = dataclasses.field(default_factory=RandomIds, repr=False)
    _tools: tuple[Tool, ...] = dataclasses.field(init=False, repr=False, compare=False)
    _resolved: Resolved = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        tools = [as_tool(thing) for thing in self.tools]
        by_name = ToolSet(sorted(tools, key=lambda tool: tool.name))
        object.__setattr__(self, "_tools", tuple(by_name))
        object.__setattr__(self, "_resolved", self._resolve())
        self._config("")

    def with_(self, **changes: object) -> Agent:
        """A variant of this agent; `changes` are the arguments of `Agent`."""
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]

    async def run(self, input: Input) -> RunResult[str]:  # noqa: A002 - the natural word
        """Run to the end.

        A caller that is cancelled aborts the run and waits for it to wind down.

        Raises:
            RunFailed: The run ended in error; the error carries what it had done.
            ConfigError: The run could not begin.
        """
        handle = await self._begin(_items(input))
        return result_of(await handle.wait())

    def run_sync(self, input: Input) -> RunResult[str]:  # noqa: A002
        """`run`, for scripts. Ctrl-C aborts the run and raises KeyboardInterrupt.

        Raises:
            InsideEventLoop: An event loop is running in this thread; await `run` instead.
        """
        return background.run_sync(
            lambda: self.run(input), name="Agent.run_sync", instead="Agent.run"
        )

    def stream(self, input: Input) -> RunStream:  # noqa: A002
        """Run, and show what happens: `async with agent.stream("Hello") as stream: ...`."""
        items = _items(input)
        return RunStream(lambda broadcast: self._begin(items, broadcast))

    async def _begin(
        self, items: tuple[Item, ...], consumers: Broadcast | None = None
    ) -> DriveHandle:
        config = self._config(await self._instructions())
        transcript = Transcript()
        check_opening(transcript.snapshot(), items)
        return begin(transcript, Opening(prompts=items), config, consumers=consumers)

    async def _instructions(self) -> str:
        if isinstance(self.instructions, str):
            return self.instructions
        said = self.instructions()
        return await said if inspect.isawaitable(said) else said

    def _resolve(self) -> Resolved:
        if isinstance(self.model, str):
            return resolve(self.model)
        if not isinstance(self.model, Model):
            raise ConfigError(f"a model is a string or has a stream method, got {self.model!r}")
        return Resolved(self.model, self.model_name)

    def _config(self, instructions: str) -> Config:
        return Config(
            model=self._resolved.model,
            model_name=self.model_name or self._resolved.name,
            instructions=instructions,
            tools=self._tools,
            settings=self.settings,
            max_turns=self.max_turns,
            clock=self.clock,
            ids=self.ids,
        )


def _items(given: Input) -> tuple[Item, ...]:
    """The prompt as items."""
    if isinstance(given, str):
        return (user(given),)
    if isinstance(given, Part):
        return (user(given),)
    if isinstance(given, Item):
        return (given,)
    return tuple(given)
