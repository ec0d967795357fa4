"""Every request is counted once, whatever came of it: in memory, in a chat, in a run by id."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from decimal import Decimal
from typing import Literal, TypeAlias

import pytest
from hypothesis import given, strategies as st

from perdure import Agent, Cost, Fallback, Hedge, Middleware, ModelRequest, Rates, RunFailed, Runs
from perdure.errors import Guard
from perdure.log import Spend
from perdure.loop import Items, NextModel, Retry
from perdure.loop.spend import Tokens
from perdure.models import Resolved
from perdure.stores.memory import MemoryStore
from perdure.testing import ScriptedModel, call, fail, turn
from perdure.testing.scripted import TurnLike
from perdure.tools import tool
from perdure.wire import InputTokensDetails, Message, Request, StreamEvent, Usage, user
from tests.budgets.counting import INPUT, OUTPUT, Counting, Fate, in_turn

A_TURN = INPUT + OUTPUT
ANSWER = "It is all done now."
Kind: TypeAlias = Literal["memory", "chat", "run"]
KINDS: tuple[Kind, ...] = ("memory", "chat", "run")
AGAIN = Retry(max_attempts=9, backoff=lambda _attempt, _error: 0.0)


@tool(effect="none")
async def look(n: int) -> str:
    """Look something up."""
    return f"seen {n}"


async def spend_of(agent: Agent, kind: Kind) -> Spend:
    """What a run of an agent spent, by its result, and by its record if it has one."""
    store = MemoryStore()
    recorded = agent if kind == "memory" else agent.with_(store=store)
    spend = (await recorded.run("Go.", run_id="r" if kind == "run" else None)).spend
    if kind == "run":
        assert (await Runs(store).get("r")).spend == spend
    return spend


def told(spend: Spend) -> int:
    return spend.tokens.total - spend.estimated.total


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("fates", "discarded", "responses"),
    [
        ((), False, 2),
        (("refused", "refused"), False, 2),
        (("lost",), True, 2),
        (("ok", "lost", "refused", "lost"), True, 2),
        (("silent",), False, 2),
        (("absurd", "negative"), False, 2),
    ],
)
async def test_every_request_has_its_place(
    kind: Kind, fates: tuple[Fate, ...], *, discarded: bool, responses: int
) -> None:
    model = Counting([call("look", {"n": 1}), ANSWER], in_turn(*fates))
    spend = await spend_of(Agent(model, tools=[look], retry=AGAIN), kind)
    assert spend.requests == model.requests == 2 + len([f for f in fates if f in UNANSWERED])
    assert spend.responses == responses
    assert told(spend) == model.told
    assert spend.uncounted == model.untold
    assert bool(spend.discarded.total) == discarded
    assert sum((one.total for one in spend.by_model.values()), 0) == spend.tokens.total


UNANSWERED = {"refused", "lost"}


@pytest.mark.parametrize("kind", KINDS)
async def test_an_answer_that_was_cut_is_estimated_by_what_came(kind: Kind) -> None:
    model = Counting([ANSWER], in_turn("cut"))
    store = MemoryStore()
    agent = Agent(model, store="" if kind == "memory" else store)
    with pytest.raises(RunFailed) as failed:
        await agent.run("Go.", run_id="r" if kind == "run" else None)
    spend = failed.value.result.spend
    assert (spend.requests, spend.responses, spend.uncounted) == (1, 0, 1)
    assert 0 < spend.tokens.output < 100
    assert spend.tokens == spend.estimated == spend.discarded
    if kind == "run":
        again = await agent.run("Go.", run_id="r")
        assert (again.status, again.spend.requests, again.spend.responses) == ("done", 2, 1)
        assert again.spend.discarded == spend.discarded
        assert told(again.spend) == model.told


@pytest.mark.parametrize("kind", KINDS)
async def test_an_aborted_answer_is_estimated(kind: Kind) -> None:
    began, store = asyncio.Event(), MemoryStore()

    class Stalls(Counting):
        async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
            pieces = 0
            async for event in super().stream(request):
                yield event
                pieces += event.type == "response.output_text.delta"
                if pieces == 3:
                    began.set()
                    await asyncio.sleep(3600)

    agent = Agent(Stalls([ANSWER]), store="" if kind == "memory" else store)
    async with agent.session("c" if kind != "memory" else "") as chat:
        sending = asyncio.get_running_loop().create_task(chat.send("Go."))
        await began.wait()
        chat.abort("enough")
        result = await sending
    assert result.status == "aborted"
    assert (result.spend.requests, result.spend.uncounted) == (1, 1)
    assert result.spend.tokens == result.spend.estimated == result.spend.discarded
    assert result.spend.tokens.output >= 2


@pytest.mark.parametrize("kind", KINDS)
async def test_the_losers_of_a_hedge_are_counted(kind: Kind) -> None:
    slow = Counting([ANSWER])
    fast = ScriptedModel([turn(ANSWER, usage=_usage(70, 7))])

    class Slow(Counting):
        async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
            slow.requests += 1
            await asyncio.sleep(3600)
            async for event in super().stream(request):
                yield event

    hedge = Hedge(0.0, Resolved(fast, "fast"))
    agent = Agent(Slow([ANSWER]), model_name="slow", middleware=[hedge])
    spend = await spend_of(agent, kind)
    assert (spend.requests, spend.responses, spend.uncounted) == (2, 1, 1)
    assert told(spend) == 77
    assert spend.discarded == spend.estimated
    assert spend.discarded.total > 0


@pytest.mark.parametrize("kind", KINDS)
async def test_fallbacks_are_counted_under_their_own_names(kind: Kind) -> None:
    first, second = Counting([ANSWER], in_turn("lost")), Counting([ANSWER])
    retry = Fallback(Resolved(second, "second"))
    agent = Agent(first, model_name="first", retry=retry)
    spend = await spend_of(agent, kind)
    assert (first.requests, second.requests, spend.requests) == (1, 1, 2)
    assert told(spend) == A_TURN
    assert spend.by_model["first"] == spend.estimated


class Twice(Middleware):
    """Asks twice, and takes the second answer."""

    async def wrap_model_call(
        self,
        request: ModelRequest,
        next: NextModel,  # noqa: A002 - the hook's own name
    ) -> AsyncIterator[StreamEvent]:
        async for _ in next(request):
            pass
        async for event in next(request):
            yield event


@pytest.mark.parametrize("kind", KINDS)
async def test_what_a_middleware_asks_for_itself_is_counted(kind: Kind) -> None:
    model = Counting([ANSWER])
    spend = await spend_of(Agent(model, middleware=[Twice()]), kind)
    assert (spend.requests, spend.responses) == (2, 1)
    assert spend.discarded.total == A_TURN
    assert spend.tokens.total == model.told == 2 * A_TURN


@pytest.mark.parametrize("kind", KINDS)
async def test_a_middleware_that_sends_nothing_takes_nothing(kind: Kind) -> None:
    cached = [event async for event in ScriptedModel([ANSWER]).stream(_request())]

    class Cached(Middleware):
        async def wrap_model_call(
            self,
            request: ModelRequest,
            next: NextModel,  # noqa: A002 - the hook's own name
        ) -> AsyncIterator[StreamEvent]:
            del request, next
            for event in cached:
                yield event

    model = Counting([ANSWER])
    spend = await spend_of(Agent(model, middleware=[Cached()]), kind)
    assert (model.requests, spend.requests, spend.tokens) == (0, 0, Tokens())


@pytest.mark.parametrize("kind", KINDS)
async def test_a_response_that_says_it_failed_is_counted(kind: Kind) -> None:
    turns: list[TurnLike] = [fail("no"), ANSWER]
    model = ScriptedModel(lambda _: turns.pop(0))
    spend = await spend_of(Agent(model, retry=AGAIN), kind)
    assert (spend.requests, spend.responses) == (2, 1)
    assert spend.discarded.total > 0


@pytest.mark.parametrize("kind", KINDS)
async def test_a_withheld_answer_was_paid_for(kind: Kind) -> None:
    class Strict(Middleware):
        async def on_message(self, message: Message, info: object) -> Message | None:
            del message, info
            raise Guard("no")

    model = Counting([ANSWER])
    spend = await spend_of(Agent(model, middleware=[Strict()]), kind)
    assert (spend.requests, spend.tokens.total) == (1, model.told)


@pytest.mark.parametrize("kind", KINDS)
async def test_what_a_cost_middleware_prices_stands_in_the_spend(kind: Kind) -> None:
    model = Counting([ANSWER])
    cost = Cost(prices=Rates(input="1", output="10"))
    spend = await spend_of(Agent(model, middleware=[cost]), kind)
    if kind == "run":
        assert spend.usd == cost.meter.spend.usd == Decimal("0.0002")


async def test_cached_tokens_count_once() -> None:
    usage = Usage(
        input_tokens=100,
        output_tokens=10,
        total_tokens=110,
        input_tokens_details=InputTokensDetails(cached_tokens=60),
    )
    spend = await spend_of(Agent(ScriptedModel([turn(ANSWER, usage=usage)])), "run")
    assert spend.tokens == Tokens(input=100, output=10, total=110, cached=60)


def _usage(ins: int, outs: int) -> Usage:
    return Usage(input_tokens=ins, output_tokens=outs, total_tokens=ins + outs)


def _request() -> ModelRequest:
    return ModelRequest(settings=Request(), input=Items.of([user("Go.")]))


# --- trees ------------------------------------------------------------------------------------

FATES = st.sampled_from(["ok", "ok", "ok", "refused", "lost", "cut", "silent", "negative"])
TREES = st.recursive(
    st.just(()), lambda below: st.lists(below, max_size=2).map(tuple), max_leaves=5
)
Tree: TypeAlias = "tuple[Tree, ...]"


@given(tree=TREES, fates=st.lists(FATES, max_size=12))
def test_a_tree_spent_what_its_server_served(tree: Tree, fates: list[Fate]) -> None:
    asyncio.run(_check_tree(tree, fates))


async def _check_tree(tree: Tree, fates: list[Fate]) -> None:
    models: list[Counting] = []
    store = MemoryStore()
    draw = in_turn(*fates)

    def agent_for(below: Tree, name: str) -> Agent:
        kids = [agent_for(one, f"{name}{place}") for place, one in enumerate(below)]
        asks = [call(kid.name, {"task": "go"}) for kid in kids]
        model = Counting([*([turn(*asks)] if asks else []), ANSWER], draw)
        models.append(model)
        return Agent(
            model,
            name=name,
            description="Works.",
            tools=[kid.as_tool() for kid in kids],
            retry=AGAIN,
        )

    agent = agent_for(tree, "a").with_(store=store)
    while True:
        try:
            result = await agent.run("Go.", run_id="r")
        except RunFailed:  # an answer was cut; the run goes on where it is
            continue
        break
    spend = result.spend
    assert spend == (await Runs(store).get("r")).spend
    assert spend.requests == sum(model.requests for model in models)
    assert told(spend) == sum(model.told for model in models)
    assert spend.uncounted == sum(model.untold for model in models)
