"""The face: an agent is a definition; running it is a method call."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, Self, TypeVar, cast, overload

from perdure import background
from perdure.clock import Clock, Ids, RandomIds, SystemClock
from perdure.definition import (
    DEFAULT_MAX_TURNS,
    check_approvals,
    check_budget,
    check_env,
    check_instructions,
    check_members,
    planned,
    resolved,
)
from perdure.driving import charged, recorded, with_sealed_reasoning
from perdure.errors import ConfigError
from perdure.loop import (
    DEFAULT_GRACE,
    DEFAULT_MAX_PARALLEL,
    DEFAULT_WIND_DOWN,
    Broadcast,
    CallIds,
    Config,
    DriveHandle,
    Hidden,
    Items,
    Limits,
    Middleware,
    Model,
    Opening,
    PendingCall,
    Queues,
    Retry,
    Settings,
    Subscriber,
    ToolProvider,
    ToolRecorder,
    Transcript,
    Trigger,
    begin,
    check_opening,
    request_settings,
    resolve_tools,
    visible_to_model,
)
from perdure.loop.account import NOTHING, Account, Spent
from perdure.loop.context import identified
from perdure.loop.model import check as check_model
from perdure.models import Resolved
from perdure.output import Output, Plan
from perdure.output.contract import OutputT
from perdure.prompts import Input, prompt_items
from perdure.result import RunResult, read_result, result_of_run
from perdure.session import Session
from perdure.stream import RunStream, WholeRun
from perdure.tools import (
    Approval,
    Elicitor,
    KeySource,
    Tool,
    ToolSet,
    as_tool,
    check_transactional,
)
from perdure.tools.approval import as_approval, as_key_source
from perdure.wire import Item, Request

if TYPE_CHECKING:
    from perdure.durable import OnReminder
    from perdure.log import Recording, Store
    from perdure.log.environment import EnvSource
    from perdure.middleware.budget import Budget
    from perdure.stores.kept import KeptStores

NewT = TypeVar("NewT")

Instructions = str | Callable[[], str] | Callable[[], Awaitable[str]]
"""What the model is told first; a function is asked once for each drive."""

PROCESS_STORE = "memory:sessions"
"""Where the named sessions of agents without a store are."""

DEFAULT_LEASE = 30.0
"""Seconds that a run stays with a process that has died, unless its agent says otherwise."""

DEFAULT_MAX_STALL = 60.0
"""Seconds for which something may block the event loop of a recorded run, likewise."""

DEFAULT_ATTEMPTS = 3
"""How often a model call is made at most, unless its agent says otherwise."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Agent(Generic[OutputT]):
    """A model with instructions and tools. It is a definition: it holds no conversation.

    Args:
        model: A model string, as `openai:gpt-5-mini`, or a `Model`.
        name: What the agent is called.
        description: What it is for, in a sentence or two.
        instructions: What the model is told first, or a function that says it.
        tools: Typed functions or tools. The request shows them sorted by name.
        model_name: What requests call the model, if not what the model string says.
        settings: How the model should answer, as `Settings(temperature=0)`; or other members of
            every request, as `Request(truncation="auto")`.
        output: The type that a run answers with, or an `Output` that says more; text if None.
        max_turns: How many turns a run may take; None for no limit.
        max_seconds: How long a run may take; None for no limit. A run that has an id is charged
            for what it is driven, not for what it waits; a turn that began is not cut short.
        budget: What a run may take, in tokens and money as well. `max_turns` and `max_seconds` are
            short for those of a budget.
        max_parallel: How many tools of one batch run at once.
        sequential: Run every batch one call at a time.
        tool_provider: Gives the tools of each turn in place of `tools`.
        middleware: What stands around the loop; the first is the outermost.
        retry: When a model call that failed before its answer began is made again.
        elicitor: Asks the user what a tool wants to know.
        store: Where runs and sessions are recorded: a store, or its URL; nowhere if empty.
        approvers: The public keys of those whose votes are signed: by name, a `Keyring`, or a
            function that gives what checks the signatures of a name.
        on_reminder: Tells people that a call waits for their votes, as `Approval(remind=...)` asks;
            called at most once for each reminder, also after a crash.
        identity: Who runs it: the deployment, as `payments@eu-1`. Tools see it, and the record has
            it with each decision and dispatch.
        env: Where the work happens, for the record: members of an `env` entry, as
            `{"cwd": "/work"}`, or a function that is asked before every recorded drive, also about
            a sub-agent's that has none of its own; it is written when it changes.
        recorder: Takes the records that tools write, in place of the store.
        keep: Which items of the transcript the model sees.
        grace: Seconds that a told tool has to end before it is cancelled.
        wind_down: Seconds that a cancelled caller waits for its run to end.
        lease: Seconds that a recorded run stays with a process that has died, on stores whose
            leases lapse; while the process lives, it renews them.
        max_stall: Seconds for which something may block the event loop of a recorded run. One that
            is blocked for longer is taken to hang, and its lease is not renewed.

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
    settings: Settings | Request = dataclasses.field(default_factory=Request)
    output: type[OutputT] | Output[OutputT] | None = None
    max_turns: int | None = DEFAULT_MAX_TURNS
    max_seconds: float | None = None
    budget: Budget | None = None
    max_parallel: int = DEFAULT_MAX_PARALLEL
    sequential: bool = False
    tool_provider: ToolProvider | None = None
    middleware: Sequence[Middleware] = ()
    retry: Retry = dataclasses.field(default_factory=lambda: Retry(max_attempts=DEFAULT_ATTEMPTS))
    elicitor: Elicitor | None = None
    store: str | Store = ""
    approvers: KeySource | Mapping[str, str] | None = None
    on_reminder: OnReminder | None = None
    identity: str = ""
    env: EnvSource | None = None
    recorder: ToolRecorder | None = None
    keep: Callable[[Item], bool] = visible_to_model
    grace: float = DEFAULT_GRACE
    wind_down: float = DEFAULT_WIND_DOWN
    lease: float = DEFAULT_LEASE
    max_stall: float = DEFAULT_MAX_STALL
    clock: Clock = dataclasses.field(default_factory=SystemClock, repr=False)
    ids: Ids = dataclasses.field(default_factory=RandomIds, repr=False)
    _keys: KeySource | None = dataclasses.field(init=False, repr=False, compare=False)
    _tools: tuple[Tool, ...] = dataclasses.field(init=False, repr=False, compare=False)
    _resolved: Resolved = dataclasses.field(init=False, repr=False, compare=False)
    _plan: Plan[OutputT] | None = dataclasses.field(init=False, repr=False, compare=False)
    _run_budget: Budget | None = dataclasses.field(
        init=False, default=None, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        check_members(self)
        check_instructions(self.instructions)
        check_env(self.env)
        check_budget(self.budget, max_turns=self.max_turns, max_seconds=self.max_seconds)
        tools: list[Tool] = [as_tool(thing) for thing in self.tools]
        by_name: list[Tool] = sorted(tools, key=lambda tool: tool.name)
        object.__setattr__(self, "_tools", tuple(ToolSet(by_name)))
        object.__setattr__(self, "_keys", as_key_source(self.approvers))
        self._check_approvals(self._tools)
        object.__setattr__(self, "_resolved", resolved(self.model, self.model_name))
        object.__setattr__(self, "_plan", self._planned())
        self._config("")

    @overload
    def with_(self, *, output: type[NewT] | Output[NewT], **changes: object) -> Agent[NewT]: ...
    @overload
    def with_(self, **changes: object) -> Agent[OutputT]: ...
    def with_(self, **changes: object) -> object:
        """A variant of this agent; `changes` are the arguments of `Agent`."""
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]

    async def run(
        self,
        input: Input,  # noqa: A002 - the natural word
        *,
        run_id: str | None = None,
        saga: bool = False,
        wait: bool = True,
        trigger: Trigger | None = None,
        budget: Budget | None = None,
        principal: str = "",
    ) -> RunResult[OutputT]:
        """Run to the end.

        A caller that is cancelled aborts the run and waits for it to wind down.

        A run with an id finishes once, whatever dies: called again, it goes on where the record
        ends, waits for whoever drives it, or gives the recorded result. The id is bound to the
        input.

        Args:
            input: What the run is to do.
            run_id: What it is called in the store.
            saga: With an id: all or nothing. If a call fails, what ran is undone by the
                compensators of its tools, through all sub-agents, the last first.
            wait: With an id: wait while another process drives the run; else it is refused.
            trigger: What caused it.
            budget: What this run may take, over the agent's own.
            principal: For whom it runs, as `user:42`. Tools see it, sub-agents inherit it, and the
                record has it with each decision and dispatch. A run with an id keeps it.

        Raises:
            RunFailed: The run ended in error; the error carries what it had done.
            SagaRolledBack: A call of the saga failed, and what ran was undone; so it is each time.
            ConfigError: The run could not begin.
            RunMismatch: The id is bound to another input or principal, or is the name of a
                session; or it is a saga, and this is not, or the other way round.
            RunBusy: Another driver has the run, and `wait` is false.
            LogError: The store refuses.
        """
        items = prompt_items(input)
        if budget is not None:
            return await self._budgeted(budget).run(
                items, run_id=run_id, saga=saga, wait=wait, trigger=trigger, principal=principal
            )
        if run_id is not None:
            return await self._run_by_id(items, run_id, trigger, principal, saga=saga, wait=wait)
        _refuse_saga(saga=saga)
        if self.store:
            async with self.session(principal=principal) as session:
                return await session.send(items, trigger=trigger)
        handle = await self._begin(items, trigger, principal)
        await handle.wait()
        return read_result(handle, self._plan)

    def run_sync(
        self,
        input: Input,  # noqa: A002
        *,
        run_id: str | None = None,
        saga: bool = False,
        wait: bool = True,
        trigger: Trigger | None = None,
        budget: Budget | None = None,
        principal: str = "",
    ) -> RunResult[OutputT]:
        """`run`, for scripts. Ctrl-C aborts the run and raises KeyboardInterrupt.

        Raises:
            InsideEventLoop: An event loop is running in this thread; await `run` instead.
        """
        return background.run_sync(
            lambda: self.run(
                input,
                run_id=run_id,
                saga=saga,
                wait=wait,
                trigger=trigger,
                budget=budget,
                principal=principal,
            ),
            name="Agent.run_sync",
            instead="Agent.run",
        )

    def stream(
        self,
        input: Input,  # noqa: A002
        *,
        run_id: str | None = None,
        saga: bool = False,
        trigger: Trigger | None = None,
        budget: Budget | None = None,
        principal: str = "",
    ) -> RunStream[OutputT]:
        """Run, and show what happens: `async with agent.stream("Hello") as stream: ...`.

        With an id, what is recorded of the run is shown first, its events marked as `replayed`,
        then what happens now. A finished run shows its record, makes no model call and writes
        nothing. While another process drives the run, its entries are shown as they land, as
        replayed too: whole items and turns, and no deltas. The stream ends when the run rests, and
        may have shown several drives by then. Leaving it aborts the drive if it is ours; one of
        another process goes on.

        What `run` refuses, entering the stream raises.

        Args:
            input: What the run is to do.
            run_id: What it is called in the store; see `run`.
            saga: With an id: all or nothing; see `run`.
            trigger: What caused it.
            budget: What this run may take, over the agent's own.
            principal: For whom it runs; see `run`.
        """
        items = prompt_items(input)
        if budget is not None:
            return self._budgeted(budget).stream(
                items, run_id=run_id, saga=saga, trigger=trigger, principal=principal
            )
        if run_id is not None:
            return self._stream_by_id(items, run_id, trigger, principal, saga=saga)
        _refuse_saga(saga=saga)
        if self.store:
            chat = self.session(principal=principal)
            return chat.stream(items, trigger=trigger, owned=True)
        return RunStream(
            lambda broadcast: self._begin(items, trigger, principal, broadcast), plan=self._plan
        )

    def session(
        self,
        name: str = "",
        *,
        transcript: Transcript | Iterable[Item] = (),
        pending: Sequence[PendingCall] = (),
        wait: float = 0.0,
        principal: str = "",
    ) -> Session[OutputT]:
        """A live conversation: `async with agent.session() as chat: await chat.send("hi")`.

        With a store it is recorded, and entering it takes up what the store has under its name.
        A name without a store is one in this process's memory.

        Args:
            name: What the session is called in the store; without one it is a new session.
            transcript: What was said before. A `Transcript` is taken as it is, with what it knows
                of which model made its thoughts, and grows with the session.
            pending: What is known of the calls in it that have no output; one that is not listed
                is taken for a call that may have run.
            wait: Seconds to wait on entering, while another process drives the session or one that
                was killed still has its lease, before `Leased` is raised.
            principal: For whom its drives run, as `run` says.

        Raises:
            ConfigError: It has a transcript and would be recorded.
        """
        if (self.store or name) and (transcript or pending):
            raise ConfigError("a recorded session begins from its record, not from a transcript")
        store = self.store or (PROCESS_STORE if name else "")
        return Session(
            self,
            transcript=transcript,
            pending=pending,
            name=name,
            store=store,
            wait=wait,
            principal=principal,
        )

    def as_tool(
        self,
        name: str = "",
        description: str = "",
        *,
        approval: Approval | bool | None = None,
    ) -> Tool:
        """This agent as a tool of another: it gets a task and gives its answer.

        In a recorded run its work is a session of its own, under the run of whoever calls it: it
        survives a crash with it, and what it waits for is shown on the run's `pending`, with the
        path that leads to it.

        Args:
            name: The tool's name; the agent's unless given.
            description: What the model reads of it; the agent's unless given.
            approval: Who has to agree before it gets to work; True for anybody who gives a name.

        Raises:
            ConfigError: No tool can have the name.
        """
        from perdure.durable import AgentTool

        asks = as_approval(approval, name or self.name)
        return AgentTool(self, name or self.name, description or self.description, asks)

    def opened(self, store: str | Store) -> Store:
        """A store, by itself or by its URL; one that a URL names is opened once and kept.

        It is kept for the running event loop, but for one in memory, which outlives it.

        Raises:
            ConfigError: No store has the scheme of the URL, or it is no store.
            NoTransactions: A tool is transactional, and the store does not commit what it does.
        """
        from perdure.log.store import Transactions, check_store

        if not isinstance(store, str):
            check_store(store)
        opened = self._kept.get(store) if isinstance(store, str) else store
        check_transactional(self._tools, transacts=isinstance(opened, Transactions))
        return opened

    @functools.cached_property
    def _kept(self) -> KeptStores:
        from perdure.stores.kept import KeptStores

        return KeptStores()

    async def aclose(self) -> None:
        """Close the stores that were opened on the running event loop. Using them opens others."""
        await self._kept.aclose()

    # --- what its drivers ask (`durable.driven.Driven`) ------------------------------------------

    async def begin(
        self,
        transcript: Transcript,
        opening: Opening,
        *,
        consumers: Broadcast | None = None,
        subscribers: Sequence[Subscriber] = (),
        queues: Queues | None = None,
        call_ids: CallIds | None = None,
        trigger: Trigger | None = None,
        pending: Sequence[PendingCall] = (),
        recording: Recording | None = None,
        limits: Limits | None = None,
        account: Account | None = None,
        principal: str = "",
    ) -> DriveHandle:
        """Start a drive over a transcript that somebody else keeps; see `perdure.loop.begin`.

        The caller has checked that the drive may begin.

        Raises:
            ConfigError: The model could not send a request, for want of a key, say.
        """
        await check_model(self._resolved.model)
        config = self._config(await self._instructions())
        config = charged(config, account or self.account(), limits)
        if config.account is not None:
            self._check_prices(config.account)
        known = recording.session.header.principal if recording is not None else ""
        config = identified(config, known or principal)
        if recording is not None:
            config = recorded(config, recording)
            if config.account is not None and config.account.is_limited:
                recording.recorder.spend.reserves = True
            recording.recorder.limits = self.own_limits
            recording.host = recording.host if self.env is None else self.env
            await recording.ask_environment()
            recording.recorder.use(request_settings(config, await resolve_tools(config)))
        if self._plan is not None:
            config = dataclasses.replace(config, answering=self._plan.judge())
        return begin(
            transcript,
            opening,
            config,
            consumers=consumers,
            ledger=recording.recorder if recording is not None else None,
            subscribers=subscribers,
            queues=queues,
            call_ids=call_ids,
            trigger=trigger,
            pending=pending,
        )

    @property
    def limits(self) -> Limits:
        """What a run may take."""
        if self.budget is None:
            return Limits(self.max_turns, self.max_seconds)
        return self.budget.limits(turns=self.max_turns, seconds=self.max_seconds)

    @property
    def own_limits(self) -> Limits | None:
        """What one run was given over the limits of this agent; None if nothing was."""
        given = self._run_budget
        return None if given is None else given.limits(turns=None, seconds=None)

    def limited(self, limits: Limits) -> Self:
        """This agent for a run that was given limits of its own before."""
        from perdure.middleware.budget import Budget

        return self._budgeted(Budget.of(limits))

    def account(self, parent: Account | None = None, *, spent: Spent = NOTHING) -> Account:
        """An account with the limits of this agent, for one drive.

        Args:
            parent: That of whoever started the run.
            spent: What the record says was spent before.

        Raises:
            ConfigError: Money is limited, and there are no prices.
        """
        if self.budget is None:
            return Account(parent)
        return self.budget.account(parent, spent=spent, clock=self.clock)

    async def tools_now(self) -> ToolSet:
        """The tools of the moment: what the provider gives, else the agent's own.

        Raises:
            ConfigError: A tool of the provider's has an approval that nobody could give.
        """
        tools = await resolve_tools(self._config(""))
        if self.tool_provider is not None:
            self._check_approvals(tools)
        return tools

    @property
    def key_source(self) -> KeySource | None:
        """Says with what the signatures of approvers are checked; None if nobody does."""
        return self._keys

    def correction(self, items: Items) -> Item | None:
        """What the model is told of an answer that a transcript ends with and that does not fit."""
        return None if self._plan is None else self._plan.correction(items)

    @property
    def plan(self) -> Plan[OutputT] | None:
        """How typed answers are had from the model; None if answers are text."""
        return self._plan

    # --- what is behind it ---------------------------------------------------------------------

    async def _run_by_id(
        self,
        items: tuple[Item | Hidden, ...],
        run_id: str,
        trigger: Trigger | None,
        principal: str,
        *,
        saga: bool,
        wait: bool,
    ) -> RunResult[OutputT]:
        from perdure.durable import Driving, run_by_id

        ran = await run_by_id(
            self,
            self.opened(self.store or PROCESS_STORE),
            run_id,
            items,
            saga=saga,
            wait=wait,
            driving=Driving(trigger=trigger, principal=principal),
        )
        return result_of_run(ran.state, ran.error, self._plan)

    def _stream_by_id(
        self,
        items: tuple[Item | Hidden, ...],
        run_id: str,
        trigger: Trigger | None,
        principal: str,
        *,
        saga: bool,
    ) -> RunStream[OutputT]:
        from perdure.durable import RunEvents, follow

        events = RunEvents()

        async def start(_: Broadcast) -> WholeRun[OutputT]:
            store = self.opened(self.store or PROCESS_STORE)
            following = await follow(
                self,
                store,
                run_id,
                items,
                events,
                saga=saga,
                trigger=trigger,
                principal=principal,
            )
            return WholeRun(following, self._plan)

        return RunStream(start, plan=self._plan, events=events)

    async def _begin(
        self,
        items: tuple[Item | Hidden, ...],
        trigger: Trigger | None,
        principal: str,
        consumers: Broadcast | None = None,
    ) -> DriveHandle:
        transcript = Transcript()
        check_opening(transcript.snapshot(), items)
        opening = Opening(prompts=items)
        return await self.begin(
            transcript, opening, consumers=consumers, trigger=trigger, principal=principal
        )

    async def _instructions(self) -> str:
        if isinstance(self.instructions, str):
            return self.instructions
        said = self.instructions()
        return await said if inspect.isawaitable(said) else said

    def _budgeted(self, budget: Budget) -> Self:
        """This agent for a run that has a budget of its own."""
        if self.store:
            _ = self._kept  # the copy uses the stores that this one opened
        made = copy.copy(self)
        object.__setattr__(made, "budget", budget.over(self.budget))
        object.__setattr__(made, "_run_budget", budget)
        return made

    def _check_prices(self, account: Account, seen: frozenset[int] = frozenset()) -> None:
        """See that the prices of its model and of those of its sub-agents are known.

        Args:
            account: What its requests are charged to.
            seen: The agents that were looked at.

        Raises:
            ConfigError: Money is limited, and nobody knows what one of them costs.
        """
        account.check(self._resolved.name or with_sealed_reasoning(self.settings).model or "")
        for tool in self._tools:
            driven: object = getattr(tool, "driven", None)
            below = cast("Agent[object]", driven) if isinstance(driven, Agent) else None
            if below is not None and id(below) not in seen:
                below._check_prices(below.account(account), seen | {id(below)})

    def _check_approvals(self, tools: Iterable[Tool]) -> None:
        check_approvals(tools, self._keys, reminds=self.on_reminder is not None)

    def _planned(self) -> Plan[OutputT] | None:
        has_tools = bool(self.tools) or self.tool_provider is not None
        return planned(self.output, self.model, self._resolved, has_tools=has_tools)

    def _config(self, instructions: str) -> Config:
        config = Config(
            model=self._resolved.model,
            model_name=self._resolved.name,
            instructions=instructions,
            tools=self._tools,
            settings=with_sealed_reasoning(self.settings),
            max_turns=self.limits.turns,
            max_seconds=self.limits.seconds,
            max_parallel=self.max_parallel,
            sequential=self.sequential,
            tool_provider=self.tool_provider,
            middleware=tuple(self.middleware),
            deployment=self.identity,
            retry=self.retry,
            elicitor=self.elicitor,
            recorder=self.recorder,
            keep=self.keep,
            grace=self.grace,
            wind_down=self.wind_down,
            clock=self.clock,
            ids=self.ids,
        )
        return config if self._plan is None else self._plan.configured(config)


def _refuse_saga(*, saga: bool) -> None:
    if saga:
        raise ConfigError("a saga survives its process: give it a run_id=..., and a store")
