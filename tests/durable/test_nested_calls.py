"""Calls that a tool makes at once, and in another order when it is entered again (LOG 5.5)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from perdure import Agent, Runs, current_call, invoke, sleep, step, tool
from perdure.errors import NotHalted, OutcomeUnknown
from perdure.log import Draft, Filters, Store, go_on
from perdure.log.entries import StepEntry
from perdure.loop import ModelRequest
from perdure.stores.memory import MemoryStore
from perdure.testing import FakeClock, ScriptedModel, call
from perdure.tools import Effect, Tool, unwrap
from perdure.wire import Message, text_of
from tests.durable.test_siblings import together
from tests.durable.test_work import CALL
from tests.durable.world import RUN, cut_behind, entries_of, outputs, session_of

WAYS = ("gather", "group", "tasks")


class Siblings:
    """An agent whose tool makes calls at once beside a wait: in one order, and then in another."""

    def __init__(
        self, how: str, *asked: object, called: Tool, orders: Sequence[Sequence[int]]
    ) -> None:
        self.clock, self.store = FakeClock(), MemoryStore()
        self.entries = 0
        self.gave: dict[int, object] = {}
        name = unwrap(called).name

        @tool(effect="idempotent")
        async def both() -> str:
            """Make calls."""
            order = orders[min(self.entries, len(orders) - 1)]
            self.entries += 1
            turns = [asyncio.Event() for _ in range(len(asked) + 1)]
            turns[0].set()

            async def one(number: int) -> None:
                place = order.index(number)
                await turns[place].wait()
                made = asyncio.ensure_future(invoke(name, {"task": asked[number]}))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                turns[place + 1].set()
                self.gave[number] = (await made).output

            async def gate() -> None:
                await turns[-1].wait()
                await step("s", lambda: None, effect="idempotent")
                await sleep("pause", 60)

            await together(how, *(one(number) for number in range(len(asked))), gate())
            return "both"

        model = ScriptedModel([call("both"), "Done."])
        self.agent: Agent = Agent(model, tools=[both, called], store=self.store, clock=self.clock)

    async def run_twice(self) -> None:
        """Run until the wait, and once more when it is over."""
        assert (await self.agent.run("Go.", run_id=RUN)).status == "suspended"
        await self.clock.advance(61)
        result = await self.agent.run("Go.", run_id=RUN)
        assert (result.status, outputs(result)[CALL]) == ("done", "both")
        assert self.entries == 2


def paying(effect: Effect, paid: list[tuple[str, str]]) -> Tool:
    @tool(effect=effect)
    async def pay(task: object) -> str:
        """Pay."""
        paid.append((str(task), current_call().idempotency_key))
        return f"receipt {len(paid)} for {task}"

    return pay


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("effect", ["none", "idempotent", "keyed", "once"])
async def test_siblings_that_call_in_another_order_when_entered_again_each_get_their_own(
    effect: Effect, how: str
) -> None:
    paid: list[tuple[str, str]] = []
    pay = paying(effect, paid)
    siblings = Siblings(how, "A", "B", "C", called=pay, orders=[(1, 0, 2), (0, 2, 1)])
    await siblings.run_twice()
    assert [task for task, _ in paid] == ["B", "A", "C"]
    assert len({key for _, key in paid}) == 3
    assert siblings.gave == {
        0: "receipt 2 for A",
        1: "receipt 1 for B",
        2: "receipt 3 for C",
    }


@pytest.mark.parametrize("how", WAYS)
async def test_equal_calls_are_each_made_once_in_whatever_order_and_spelling(how: str) -> None:
    paid: list[tuple[str, str]] = []
    asked = ({"a": 1, "b": 2}, {"b": 2, "a": 1.0}, "other")
    orders = [(0, 1, 2), (2, 1, 0)]
    siblings = Siblings(how, *asked, called=paying("once", paid), orders=orders)
    await siblings.run_twice()
    assert len(paid) == len({key for _, key in paid}) == 3
    gave = [str(siblings.gave[number]).split(" for ")[0] for number in range(3)]
    assert (sorted(gave), gave[2]) == (["receipt 1", "receipt 2", "receipt 3"], "receipt 3")


def _about(request: ModelRequest) -> str:
    asked = [one for one in request.input if isinstance(one, Message) and one.role == "user"]
    return f"about {text_of(asked[-1].content)}"


@pytest.mark.parametrize("how", WAYS)
async def test_agents_that_are_asked_in_another_order_each_give_their_own(how: str) -> None:
    model = ScriptedModel([_about])
    clerk = Agent(model, name="clerk").as_tool(description="Answers.")
    siblings = Siblings(how, "A", "B", "B", called=clerk, orders=[(1, 0, 2), (0, 2, 1)])
    await siblings.run_twice()
    assert siblings.gave == {0: "about A", 1: "about B", 2: "about B"}
    assert len(model.requests) == 3
    assert len((await siblings.store.list(Filters())).sessions) == 4


# --- what people are told, and say ---------------------------------------------------------------


def unsure(store: Store, paid: list[object]) -> Agent:
    @tool(effect="once")
    async def pay(to: str) -> str:
        """Pay."""
        paid.append(to)
        if to == "B":
            raise OutcomeUnknown("the line dropped")
        return f"paid {to}"

    @tool(effect="idempotent")
    async def both() -> list[object]:
        """Pay two."""
        return [(await invoke("pay", {"to": to})).output for to in ("A", "B")]

    return Agent(ScriptedModel([call("both"), "Done."]), tools=[pay, both], store=store)


async def test_the_start_of_a_call_that_may_have_run_says_what_was_called_with_what() -> None:
    store, paid = MemoryStore(), list[object]()
    agent = unsure(store, paid)
    assert (await agent.run("Go.", run_id=RUN)).status == "halted"
    steps = [one for one in await entries_of(store) if isinstance(one, StepEntry)]
    starts = [one for one in steps if one.phase == "start"]
    assert [one.arguments for one in starts] == ['{"to":"A"}', '{"to":"B"}']
    with pytest.raises(NotHalted, match=starts[1].name):
        await Runs(store).resolve(RUN, CALL, step="pay", value="paid B")
    await Runs(store).resolve(RUN, CALL, step=starts[1].name, value="paid B")
    result = await agent.run("Go.", run_id=RUN)
    assert (outputs(result)[CALL], paid) == ('["paid A","paid B"]', ["A", "B"])


async def test_an_open_step_of_a_name_that_no_call_has_any_more_halts() -> None:
    store, paid = MemoryStore(), list[object]()
    agent = unsure(store, paid)
    _ = await agent.run("Go.", run_id=RUN)
    cut = await cut_behind(store, "dispatch")
    session = await session_of(cut)
    made = session.view().calls.named(CALL)
    assert made is not None
    start = {"phase": "start", "name": "perdure:invoke/pay/1", "effect": "once"}
    recording = await go_on(cut, session.id)
    await recording.append(Draft("perdure:step", {"call_id": CALL, "target": made.entry, **start}))
    await recording.close()
    paid.clear()
    assert (await agent.with_(store=cut).run("Go.", run_id=RUN)).status == "halted"
    assert paid == []
