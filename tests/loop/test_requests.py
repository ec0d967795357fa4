"""What a request carries: all the history, and each thought for the model that made it."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest

from perdure import wire
from perdure.agent import Agent
from perdure.errors import ConfigError
from perdure.loop import Config, Items, Middleware, ModelRequest, Retry, RunInfo, TurnStart
from perdure.models.openresponses import request_body
from perdure.testing import ScriptedModel, call, turn
from perdure.testing.scripted import reasoning
from perdure.wire import FunctionCall, Item, Reasoning, function_call_output, user
from tests.loop.fakes import Stream, Tool, answer, completed, created, done, listening, ran, texts


def sent_types(request: ModelRequest) -> list[str]:
    return [one.type for one in request.input]


# --- thoughts -------------------------------------------------------------------------------


async def test_a_thought_of_another_model_is_left_out_of_requests_and_kept_in_the_transcript() -> (
    None
):
    first = ScriptedModel([turn(reasoning("hm"), "one")], after=1)
    second = ScriptedModel([turn(reasoning("ah"), "two")], after=2)
    third = ScriptedModel(["three"], after=3)
    foreign = wire.reasoning("who?")
    session, ear = listening(Agent(first, model_name="a"), transcript=[user("hi"), foreign])
    await session.send("go")
    session.use(Agent(second, model_name="b"))
    await session.send("on")
    session.use(Agent(third, model_name="a"))
    await session.send("back")
    thoughts = [
        [one for one in model.requests[0].input if isinstance(one, Reasoning)]
        for model in (first, second, third)
    ]
    assert thoughts[0] == thoughts[1] == [foreign]  # nobody is known to have made that one
    assert len(thoughts[2]) == 2  # the foreign one and the model's own
    kept = [one for one in session.state.transcript if isinstance(one, Reasoning)]
    assert len(kept) == 3
    ear.check()


async def test_who_made_a_thought_survives_a_change_of_the_transcript() -> None:
    first = ScriptedModel([turn(reasoning("hm"), "one")])
    second = ScriptedModel(["two"], after=1)
    session, _ = listening(Agent(first, model_name="a"))
    await session.send("go")
    session.set_transcript(list(session.state.transcript))
    session.use(Agent(second, model_name="b"))
    await session.send("on")
    assert "reasoning" not in sent_types(second.requests[0])


async def test_a_model_without_a_name_gets_every_thought() -> None:
    first = ScriptedModel([turn(reasoning("hm"), "one")])
    second = ScriptedModel(["two"], after=1)
    session, _ = listening(Agent(first, model_name="a"))
    await session.send("go")
    session.use(Agent(second))
    await session.send("on")
    assert sent_types(second.requests[0]).count("reasoning") == 1


async def test_a_fallback_to_another_model_is_not_sent_the_thoughts_of_the_first() -> None:
    from perdure.errors import rejection
    from perdure.testing import attempts, error

    def fall_back(attempt: int, request: ModelRequest, error: Exception) -> ModelRequest:
        return ModelRequest(settings=wire.Request(model="b"), input=request.input)

    retry = Retry(max_attempts=2, backoff=lambda attempt, error: 0, revise=fall_back)
    model = ScriptedModel(
        [
            turn(reasoning("hm"), call("a", {}, "c1")),
            attempts(error(rejection("busy", status=503)), "ok"),
        ]
    )
    told = await ran(Config(model=model, model_name="a", tools=[Tool("a")], retry=retry), "go")
    assert told.end.reason == "done"
    assert "reasoning" in sent_types(model.requests[1])
    assert "reasoning" not in sent_types(model.requests[2])


# --- the body ---------------------------------------------------------------------------------


async def test_a_request_asks_for_sealed_thoughts_and_stores_nothing() -> None:
    model = ScriptedModel([turn(reasoning("hm"), call("a", {}, "c1")), "done"])
    session, _ = listening(Agent(model, model_name="a", tools=[Tool("a")]))
    await session.send("go")
    for request in model.requests:
        body = request_body(request).value()
        assert isinstance(body, dict)
        assert body["store"] is False
        assert "reasoning.encrypted_content" in body["include"]
        assert "previous_response_id" not in body
        assert [one["type"] for one in body["input"]].count("item_reference") == 0
        assert all(len(one) > 2 for one in body["input"])  # more than a type and an id


@pytest.mark.parametrize(
    "settings",
    [
        wire.Request(previous_response_id="resp_1"),
        wire.decode_request(b'{"model":"m","input":"x","conversation":"conv_1"}'),
        wire.Request(input="x"),
    ],
    ids=["previous", "conversation", "input"],
)
def test_a_conversation_that_a_server_holds_is_refused(settings: wire.Request) -> None:
    with pytest.raises(ConfigError):
        Config(model=ScriptedModel([]), settings=settings)
    with pytest.raises(ConfigError):
        Agent(ScriptedModel([]), settings=settings)


async def test_a_reference_to_an_item_that_a_server_holds_is_refused() -> None:
    reference = wire.ItemReference(id="msg_1")
    model = ScriptedModel(["hi"])
    with pytest.raises(ConfigError):
        await Agent(model).run([reference, user("go")])
    session, _ = listening(Agent(model))
    with pytest.raises(ConfigError):
        session.steer(reference)
    told = await ran(Config(model=model), reference, "go")
    assert told.names == ["run_end"]
    assert model.requests == []


async def test_the_last_answer_is_sent_again_byte_for_byte() -> None:
    said = [
        wire.decode_item(
            b'{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"sig==","x":1}'
        ),
        wire.decode_item(
            b'{"type":"message","id":"msg_1","role":"assistant","status":"completed",'
            b'"content":[{"type":"output_text","text":" a ","annotations":[],"y":{"b":1,"a":2}}]}'
        ),
        wire.decode_item(
            b'{"type":"function_call","id":"fc_1","call_id":"c1","name":"a",'
            b'"arguments":"{ \\"n\\": 1.0 }","status":"completed"}'
        ),
    ]
    model = Stream(
        [created(), *(done(n, one) for n, one in enumerate(said)), completed(*said)], answer()
    )
    session, ear = listening(Agent(model, model_name="a", tools=[Tool("a")]))
    await session.send("go")
    body = b"".join(request_body(model.requests[1]).fragments)
    assert b",".join(wire.encode(one) for one in said) in body
    ear.check()


async def test_the_same_tools_in_any_order_give_the_same_bytes() -> None:
    names = ["b", "a", "d", "c"]
    bodies: set[bytes] = set()
    for order in itertools.islice(itertools.permutations(names), 20):
        model = ScriptedModel(["hi"])
        await Agent(model, model_name="m", tools=[Tool(name) for name in order]).run("go")
        bodies.add(b"".join(request_body(model.requests[0]).fragments))
    assert len(bodies) == 1


async def test_the_low_level_loop_keeps_the_order_of_tools() -> None:
    model = ScriptedModel(["hi"])
    await ran(Config(model=model, tools=[Tool("b"), Tool("a")]), "go")
    definitions = model.requests[0].settings.tools
    assert definitions
    assert [getattr(one, "name", "") for one in definitions] == ["b", "a"]


async def test_two_drives_over_the_same_input_send_the_same_bytes() -> None:
    bodies: list[list[bytes]] = []
    for _ in range(2):
        model = ScriptedModel([turn(reasoning("hm"), "so", call("a", {"n": 1}, "c1")), "done"])
        session, _ear = listening(Agent(model, model_name="m", tools=[Tool("a")]))
        await session.send("go")
        bodies.append([b"".join(request_body(one).fragments) for one in model.requests])
    assert bodies[0] == bodies[1]


async def test_a_request_shows_the_transcript_as_it_was_when_it_was_sent() -> None:
    model = ScriptedModel([call("a", {}, "c1"), "done"])
    told = await ran(Config(model=model, tools=[Tool("a")]), "go")
    assert [len(event.request.input) for event in told.of(TurnStart)] == [1, 3]
    assert isinstance(model.requests[0].input, Items)


async def test_items_of_extension_types_are_not_sent_unless_asked_for() -> None:
    note = wire.decode_item(b'{"type":"acme:note","text":"x"}')
    model = ScriptedModel(["hi"])
    told = await ran(Config(model=model), "go", note)
    assert sent_types(model.requests[0]) == ["message"]
    assert note in told.end.items
    other = ScriptedModel(["hi"])
    await ran(Config(model=other, keep=lambda item: True), "go", note)
    assert "acme:note" in sent_types(other.requests[0])


async def test_tools_are_resolved_once_a_turn_and_a_call_against_what_was_offered() -> None:
    asked = 0
    old, new = Tool("old"), Tool("new")

    async def provider() -> list[Tool]:
        nonlocal asked
        asked += 1
        return [old] if asked == 1 else [new]

    model = ScriptedModel([call("old", {}, "c1"), call("old", {}, "c2"), "done"])
    told = await ran(Config(model=model, tool_provider=provider), "go")
    assert asked == 3
    assert old.entered == ["c1"]
    assert 'Error: unknown tool "old"' in " ".join(texts(told.end.items))


async def test_instructions_from_a_function_are_asked_for_once_a_drive() -> None:
    asked = 0

    async def instructions() -> str:
        nonlocal asked
        asked += 1
        return f"number {asked}"

    model = ScriptedModel([call("a", {}, "c1"), "done", "again"])
    session, ear = listening(Agent(model, instructions=instructions, tools=[Tool("a")]))
    await session.send("go")
    await session.send("on")
    said = [request.settings.instructions for request in model.requests]
    assert said == ["number 1", "number 1", "number 2"]
    ear.check()


async def test_what_a_hook_sees_of_the_transcript_costs_no_copy_and_does_not_grow() -> None:
    seen: list[Items] = []

    class Looks(Middleware):
        async def before_run(self, info: RunInfo) -> None:
            seen.append(info.transcript)

    session, _ = listening(Agent(ScriptedModel(["one"]), middleware=[Looks()]))
    await session.send("go")
    assert len(seen[0]) == 0
    assert len(session.state.transcript) == 2


# --- orphans -----------------------------------------------------------------------------------


def sent_items(*items: Item, model: str = "m") -> list[dict[str, object]]:
    """The items of the body of a request."""
    request = ModelRequest(settings=wire.Request(model=model), input=Items.of(items))
    body = request_body(request).value()
    assert isinstance(body, dict)
    return list(body["input"])


def test_a_whole_response_is_sent_with_its_thought() -> None:
    thought = Reasoning(id="rs_1", summary=(), encrypted_content="sig")
    asked = FunctionCall(id="fc_1", call_id="c1", name="a", arguments="{}")
    sent = sent_items(user("go"), thought, asked, function_call_output("c1", "x"))
    assert [one["type"] for one in sent] == [
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
    ]


# --- the import -----------------------------------------------------------------------------------

HEAVY = ("aiohttp", "pydantic", "starlette", "opentelemetry", "sqlite3")


def printed(code: str) -> str:
    """What a fresh interpreter prints."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_importing_perdure_loads_no_client_no_server_no_database() -> None:
    code = "import sys, perdure; print('\\n'.join(sorted(sys.modules)))"
    said = printed(code)
    modules = set(said.split())
    assert "perdure" in modules
    assert [name for name in modules if name.split(".")[0] in HEAVY] == []
    ours = {name for name in modules if name.startswith("perdure.")}
    assert ours == set()


def test_every_public_name_imports_and_none_of_them_reaches_the_network() -> None:
    code = (
        "import socket, perdure\n"
        "def refuse(*args): raise OSError('no network')\n"
        "socket.socket.connect = refuse\n"
        "for name in perdure.__all__: getattr(perdure, name)\n"
        "print(perdure.__all__ == sorted(perdure.__all__))"
    )
    said = printed(code)
    assert said.strip() == "True"
