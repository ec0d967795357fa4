"""Typed answers of runs by id: what the record shows is the answer, however often they crash."""

from __future__ import annotations

import pytest

from perdure import Agent, RunFailed, tool
from perdure.errors import NoOutput, OutputInvalid
from perdure.log import Filters, read_lines
from perdure.output import FINAL_TOOL, Output
from perdure.stores.memory import MemoryStore
from perdure.testing import ScriptedModel, call, turn
from tests.face.recorded import crashed
from tests.output.forms import INVOICE, Invoice
from tests.output.test_agents import VALUE, WRONG, Able, native, said


@tool(effect="none")
async def look(what: str) -> str:
    """Look something up."""
    return f"{what} was found"


def by_tool() -> ScriptedModel:
    return ScriptedModel([call("look", {"what": "it"}), *([call(FINAL_TOOL, INVOICE)] * 4)])


async def size_of(store: MemoryStore) -> int:
    return (await store.list(Filters())).sessions[0].version


@pytest.mark.parametrize("natively", [False, True])
async def test_a_run_that_crashed_anywhere_has_the_answer_that_its_record_shows(
    natively: bool,
) -> None:
    def fresh() -> tuple[object, object]:
        model = native(INVOICE, INVOICE, INVOICE) if natively else by_tool()
        return model, model.requests

    store = MemoryStore()
    model, _ = fresh()
    agent = Agent(model, output=Invoice, tools=[look], store=store)  # type: ignore[arg-type]
    first = await agent.run("x", run_id="r")
    assert (first.status, first.output) == ("done", VALUE)
    asked: list[int] = []
    for keep in range(1, await size_of(store) + 1):
        model, requests = fresh()
        again = agent.with_(model=model, store=await crashed(store, keep))
        result = await again.run("x", run_id="r")
        assert (result.status, result.output) == ("done", VALUE), keep
        asked.append(len(requests))  # type: ignore[arg-type]
    assert asked == sorted(asked, reverse=True)
    assert asked[-1] == 0


@pytest.mark.parametrize("natively", [False, True])
async def test_a_correction_is_given_once_wherever_the_run_crashed(natively: bool) -> None:
    def fresh() -> Able | ScriptedModel:
        if natively:
            return native(WRONG, INVOICE, INVOICE, INVOICE)
        return ScriptedModel(["It is 42 euros.", *([call(FINAL_TOOL, INVOICE)] * 4)])

    store = MemoryStore()
    agent = Agent(fresh(), output=Invoice, store=store)
    assert (await agent.run("x", run_id="r")).output == VALUE
    for keep in range(1, await size_of(store) + 1):
        model = fresh()
        again = agent.with_(model=model, store=await crashed(store, keep))
        result = await again.run("x", run_id="r")
        assert (result.status, result.output) == ("done", VALUE), keep
        for request in model.requests:
            corrections = [text for text in said(request) if "was not taken" in text]
            assert len(corrections) <= 1, keep


async def test_asking_again_for_a_run_that_is_done_gives_its_answer() -> None:
    agent = Agent(by_tool(), output=Invoice, tools=[look], store=MemoryStore())
    await agent.run("x", run_id="r")
    again = agent.with_(model=ScriptedModel([]))
    assert (await again.run("x", run_id="r")).output == VALUE
    async with again.stream("x", run_id="r") as stream:
        assert (await stream.result()).output == VALUE


async def test_a_cut_answer_is_no_output_of_a_run_either() -> None:
    model = native(turn(INVOICE, incomplete="max_output_tokens"))
    agent = Agent(model, output=Invoice, store=MemoryStore())
    result = await agent.run("x", run_id="r")
    assert (result.status, result.cause) == ("stopped", "length")
    with pytest.raises(NoOutput):
        _ = result.output


async def test_a_run_whose_model_does_not_learn_fails_with_what_was_wrong() -> None:
    model = native(WRONG, WRONG)
    agent = Agent(model, output=Output(Invoice, retries=1), store=MemoryStore())
    with pytest.raises(RunFailed) as failed:
        await agent.run("x", run_id="r")
    assert isinstance(failed.value.cause, OutputInvalid)


async def test_an_answer_is_shown_as_it_comes_in_a_run_by_id_too() -> None:
    agent = Agent(by_tool(), output=Invoice, tools=[look], store=MemoryStore())
    async with agent.stream("x", run_id="r") as stream:
        values = [value async for value in stream.partial_output()]
        result = await stream.result()
    assert result.output == VALUE
    assert values[-1] == {"number": "A-1", "total": 4200}


async def test_a_run_that_answered_by_the_tool_is_done_in_the_record_too() -> None:
    store = MemoryStore()
    await Agent(by_tool(), output=Invoice, tools=[look], store=store).run("x", run_id="r")
    (listed,) = (await store.list(Filters(statuses=frozenset({"done"})))).sessions
    stored = await store.read(listed.id)
    reading = read_lines(stored.header, stored.lines)
    assert reading.faults == ()
    assert reading.session.status == "done"


async def test_an_answer_beside_another_call_ends_the_run_wherever_it_crashed() -> None:
    both = turn(call(FINAL_TOOL, INVOICE), call("look", {"what": "it"}))
    store = MemoryStore()
    agent = Agent(ScriptedModel([both]), output=Invoice, tools=[look], store=store)
    assert (await agent.run("x", run_id="r")).output == VALUE
    asked: list[int] = []
    for keep in range(1, await size_of(store) + 1):
        model = ScriptedModel([both, both])
        again = agent.with_(model=model, store=await crashed(store, keep))
        result = await again.run("x", run_id="r")
        assert (result.status, result.output) == ("done", VALUE), keep
        asked.append(len(model.requests))
    assert asked[-1] == 0
    assert asked == sorted(asked, reverse=True)
