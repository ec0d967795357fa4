"""What holds for every run, whatever the model, the tools and the people do.

The numbers are those of the reference's list of invariants: 1 pairs in every request, 2 at every
save, 3 no call twice, 4 the order of events, 5 and 6 sessions and usage, 7 states survive and runs
go on from each of them, 8 nothing of the engine on the wire, 9 outputs in the order of calls, 10 no
gated call without an approval.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Mapping, Sequence

from hypothesis import given, settings, strategies as st

from perdure import call_model
from perdure.compose import (
    ClientTool,
    ConversationState,
    EndReason,
    Lifecycle,
    LogState,
    ModelCalled,
    PermissionVerdict,
    Risk,
    SessionConfig,
    StateAccessor,
    StopCondition,
    UsageTotals,
    client_tool,
    human_tool,
    manual_tool,
    step_count_is,
)
from perdure.errors import StateNotSaved
from perdure.loop import ModelRequest
from perdure.stores.memory import MemoryStore
from perdure.testing import ScriptedModel, Turn, call, turn
from perdure.wire import FunctionCallOutput, Item, Request, function_call_output
from tests.compose.helpers import Kept, body, calls_of, check_pairs
from tests.compose.test_streams import check_order

KINDS = ("free", "gated", "ask", "mine", "elsewhere", "broken")
BODY = frozenset(Request.__struct_fields__) - {"kept"} | {"models"}


@dataclasses.dataclass
class World:
    """What a generated case is made of."""

    script: list[list[str]]
    delays: list[int]
    answers: list[bool]
    decisions: list[str]
    stop: int | None
    final: bool | str
    permits: list[str]
    ran: list[str] = dataclasses.field(default_factory=list)
    approved: set[str] = dataclasses.field(default_factory=set)
    violations: list[str] = dataclasses.field(default_factory=list)
    """Gated calls that ran without an approval."""

    def turn_of(self, number: int) -> Turn | str:
        if number >= len(self.script):
            return f"answer {number}"
        calls = [
            call(
                "free" if kind == "broken" else kind,
                "{broken" if kind == "broken" else {"x": f"{number}.{place}"},
                f"c_{number}_{place}",
            )
            for place, kind in enumerate(self.script[number])
        ]
        return turn(*calls) if calls else f"answer {number}"


class Watches(Lifecycle):
    """Counts sessions and usage, and answers permission requests."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.sessions = [0, 0]
        self.tokens = 0
        self.calls = 0
        self.totals: UsageTotals | None = None
        self.asked: list[str] = []

    async def session_start(self, session_id: str, config: SessionConfig) -> None:
        self.sessions[0] += 1

    async def session_end(self, session_id: str, reason: EndReason, totals: UsageTotals) -> None:
        self.sessions[1] += 1
        self.totals = totals

    async def post_model_call(self, called: ModelCalled) -> None:
        self.calls += 1
        self.tokens += called.usage.total_tokens if called.usage else 0

    async def permission_request(
        self, session_id: str, tool: str, arguments: Mapping[str, object], risk: Risk
    ) -> PermissionVerdict:
        self.asked.append(str(arguments["x"]))
        verdict = self._world.permits.pop(0) if self._world.permits else "ask_user"
        if verdict == "allow":
            self._world.approved.add(str(arguments["x"]))
        return PermissionVerdict(verdict)  # type: ignore[arg-type]


def tools_of(world: World) -> list[ClientTool]:
    async def work(x: str) -> str:
        delay = world.delays[len(world.ran) % len(world.delays)] if world.delays else 0
        world.ran.append(x)
        for _ in range(delay):
            await asyncio.sleep(0)
        return f"did {x}"

    @client_tool(effect="idempotent")
    async def free(x: str) -> str:
        """Work."""
        return await work(x)

    @client_tool(effect="idempotent", require_approval=True)
    async def gated(x: str) -> str:
        """Work, if somebody says so."""
        if x not in world.approved:
            world.violations.append(x)
        return await work(x)

    @human_tool(output=str)
    async def ask(x: str) -> str | None:
        """Ask a person."""
        world.ran.append(x)
        return "yes" if world.answers and world.answers.pop(0) else None

    return [free, gated, ask, manual_tool("mine")]


WORLDS = st.builds(
    World,
    script=st.lists(st.lists(st.sampled_from(KINDS), max_size=4), max_size=4),
    delays=st.lists(st.integers(0, 4), max_size=5),
    answers=st.lists(st.booleans(), max_size=4),
    decisions=st.lists(st.sampled_from(["approve", "reject", "later"]), max_size=12),
    stop=st.one_of(st.none(), st.integers(0, 3)),
    final=st.sampled_from([True, False, "Answer."]),
    permits=st.lists(st.sampled_from(["allow", "deny", "ask_user"]), max_size=6),
)


class Conversation:
    """A conversation that is driven until nobody waits any more."""

    def __init__(self, world: World, state: StateAccessor | None = None) -> None:
        self.world = world
        self.accessor: StateAccessor = state or Kept()
        self.last: ConversationState | None = None
        self.model = ScriptedModel(world.turn_of)
        self.tools = tools_of(world)
        self.stop: StopCondition | None = None if world.stop is None else step_count_is(world.stop)

    async def run(self, given: str | Sequence[Item] | None, **options: object) -> ConversationState:
        watches = Watches(self.world)
        result = call_model(
            self.model,
            given,
            tools=self.tools,
            state=self.accessor,
            stop_when=self.stop,
            final_response=self.world.final,
            hooks=watches,
            temperature=lambda turn: turn.number_of_turns / 10,
            **options,  # type: ignore[arg-type]
        )
        await result.text()
        events = [event async for event in result.full_responses_stream()]
        check_order(list(events))  # 4
        started, ended = watches.sessions
        assert started == ended <= 1  # 5
        usage = await result.usage()
        assert watches.tokens == usage.usage.total_tokens  # 6
        assert watches.calls == usage.model_calls
        assert watches.totals in (None, usage)
        assert len(watches.asked) == len(set(watches.asked))
        self.last = await result.state()
        return self.last

    async def to_the_end(self, given: str | None = "go") -> ConversationState:
        state = await self.run(given)
        for _ in range(30):
            if not state.pending_tool_calls:
                break
            state = await self.run(*self._moves(state))
        self.check()
        return state

    def _moves(self, state: ConversationState) -> tuple[Sequence[Item] | None]:
        waiting = state.pending_tool_calls
        answers = [one for one in waiting if one.why != "approval"]
        if answers:
            return ([function_call_output(one.id, '"yes"') for one in answers],)
        return (None,)

    async def decide(self, state: ConversationState) -> ConversationState:
        approve: list[str] = []
        reject: list[str] = []
        for one in state.pending_tool_calls:
            word = self.world.decisions.pop(0) if self.world.decisions else "approve"
            if word == "later" and self.world.decisions:
                continue
            (reject if word == "reject" else approve).append(one.id)
            if word != "reject":
                self.world.approved.add(str(one.arguments["x"]))  # type: ignore[index]
        if not (approve or reject):
            approve = [state.pending_tool_calls[0].id]
            self.world.approved.add(str(state.pending_tool_calls[0].arguments["x"]))  # type: ignore[index]
        return await self.run(None, approve=approve, reject=reject)

    def check(self) -> None:
        """What holds at the end of any conversation."""
        for request in self.model.requests:
            assert check_pairs(request.input) == []  # 1
            assert set(body(request)) <= BODY  # 8
            assert "previous_response_id" not in body(request)
            check_outputs_in_order(request)  # 9
        assert len(self.world.ran) == len(set(self.world.ran))  # 3
        assert self.world.violations == []  # 10
        state = self.last
        assert state is not None
        assert check_pairs(state.messages) == [one.id for one in state.pending_tool_calls]


def check_outputs_in_order(request: ModelRequest) -> None:
    """Outputs stand in the order of their calls.

    Those of calls that waited come behind the others of their round, with each step of the
    decisions in order again; so a request of a run without pauses has no output out of place.
    """
    order = {name: place for place, name in enumerate(calls_of(request.input))}
    outputs = [one for one in request.input if isinstance(one, FunctionCallOutput)]
    places = [order[one.call_id] for one in outputs]
    waited = {name for name in order if name in WAITED}
    at_once = [order[one.call_id] for one in outputs if one.call_id not in waited]
    assert at_once == sorted(at_once)
    assert sorted(places) == list(range(len(order)))


WAITED: set[str] = set()
"""The calls of the case that waited for somebody."""


@settings(max_examples=80)
@given(WORLDS)
def test_every_run_keeps_the_invariants(world: World) -> None:
    asyncio.run(finished(Conversation(world)))


@settings(max_examples=25)
@given(WORLDS)
def test_every_recorded_run_keeps_them_too(world: World) -> None:
    async def whole() -> None:
        store = MemoryStore()
        one = Conversation(world, LogState(store, "c"))
        await finished(one)
        assert await LogState(store, "c").load() == one.last

    asyncio.run(whole())


async def finished(one: Conversation) -> None:
    """Drive a conversation until nobody waits, and check it."""
    WAITED.clear()
    state = await one.run("go")
    for _ in range(40):
        WAITED.update(call.id for call in state.pending_tool_calls)
        if not state.pending_tool_calls:
            break
        if any(call.why == "approval" for call in state.pending_tool_calls):
            gated = [call for call in state.pending_tool_calls if call.why == "approval"]
            only = dataclasses.replace(state, pending_tool_calls=tuple(gated))
            state = await one.decide(only)
        else:
            state = await one.run(*one._moves(state))
    assert state.pending_tool_calls == ()
    one.check()


# --- 7: from every state that was saved, the run ends the same ---------------------------------


class Crashes(Kept):
    """An accessor whose process dies right behind one of its saves."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self._left = at

    async def save(self, state: ConversationState) -> None:
        if self._left < 0:
            raise Crashed
        await super().save(state)
        self._left -= 1
        if self._left < 0:
            raise Crashed


class Crashed(Exception):
    """The process died."""


@settings(max_examples=40)
@given(
    script=st.lists(
        st.lists(st.sampled_from(("free", "broken")), min_size=1, max_size=3), max_size=3
    ),
    at=st.integers(0, 8),
)
def test_a_run_killed_behind_any_save_comes_to_the_same_history(
    script: list[list[str]], at: int
) -> None:
    def world() -> World:
        return World(script, [], [], [], None, True, [])

    async def whole() -> None:
        straight = await Conversation(world()).to_the_end()
        kept = Crashes(at)
        killed = Conversation(world(), kept)
        with contextlib.suppress(StateNotSaved):
            await killed.run("go")
        survived = kept.state
        again = Conversation(world(), Kept(survived))
        fresh = survived is None or not survived.messages
        if survived is not None and survived.status == "complete":
            assert survived.messages == straight.messages
            return
        state = await again.to_the_end("go" if fresh else None)
        assert state.messages == straight.messages
        again.check()

    asyncio.run(whole())


@settings(max_examples=40)
@given(calls=st.integers(1, 3), at=st.integers(0, 6))
def test_a_call_with_an_effect_runs_once_at_most_wherever_its_run_is_killed(
    calls: int, at: int
) -> None:
    ran: list[str] = []

    @client_tool(effect="once")
    async def pay(x: str) -> str:
        """Pay."""
        ran.append(x)
        return f"paid {x}"

    def model() -> ScriptedModel:
        asked = [call("pay", {"x": str(number)}, f"c_{number}") for number in range(calls)]
        return ScriptedModel([turn(*asked), "done"])

    async def whole() -> None:
        kept = Crashes(at)
        with contextlib.suppress(StateNotSaved):
            await call_model(model(), "go", tools=[pay], state=kept).text()
        survived = kept.state
        if survived is not None and survived.status == "complete":
            assert sorted(ran) == sorted(set(ran))
            return
        fresh = survived is None or not survived.messages
        assert not (fresh and ran), "a call ran that no save knows of"
        again = call_model(model(), "go" if fresh else None, tools=[pay], state=Kept(survived))
        state = await again.state()
        assert check_pairs(state.messages) == []
        assert sorted(ran) == sorted(set(ran))

    asyncio.run(whole())
