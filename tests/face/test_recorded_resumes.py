"""What an agent's session takes up from its record, and what it refuses to do with it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import cast

import pytest

from perdure import (
    Agent,
    ConfigError,
    Guard,
    Hidden,
    RunFailed,
    ToolDecision,
    Trigger,
    approve,
    elicit,
    invoke,
    outcome_unknown,
    tool,
    user,
)
from perdure.clock import RandomIds, SystemClock
from perdure.errors import AmbiguousCall, CallAnswered, CorruptLog, EntryRefused, InputRequired
from perdure.log import AnyEntry, go_on
from perdure.log.branching import fork
from perdure.log.header import Origin, new_header
from perdure.loop import (
    Event,
    ItemEnd,
    Middleware,
    ModelRequest,
    ToolCallInfo,
    ToolStart,
)
from perdure.loop.middleware import TurnStartInfo
from perdure.stores.memory import MemoryStore
from perdure.testing import ScriptedModel, call, text as say, turn
from perdure.testing.scripted import item
from perdure.tools import Call, Elicitor, Question, Reply, Tool
from perdure.wire import (
    FunctionCall,
    Item,
    Request,
    StreamEvent,
    decode_item,
)
from tests.face.recorded import NAME, crashed, outputs, paired, session_in, types
from tests.log.building import Built
from tests.log.driving import Counted, config_of, drive


def counted(name: str = "act", effect: str = "once") -> tuple[Counted, Tool]:
    one = Counted(name, effect)  # type: ignore[arg-type]
    return one, cast("Tool", one)


class Decides(Middleware):
    """Decides about the first calls."""

    def __init__(self, *decisions: ToolDecision | None) -> None:
        self._decisions = list(decisions)

    async def before_tool_call(self, info: ToolCallInfo) -> ToolDecision | None:
        return self._decisions.pop(0) if self._decisions else None


HOLD = ToolDecision(action="hold", reason="ask ann")


def one_call(*, effect: str = "", key: str = "k", arguments: str = '{"n":1}') -> Built:
    """A session that stands behind the answer that made a call."""
    built = Built(new_header("s1", "2026-10-01T12:00:00Z"))
    built.config(model="m")
    built.start()
    built.user()
    built.call("c", arguments=arguments)
    built.response()
    if effect:
        built.dispatch("c", key, **{"perdure:effect": effect})
    return built


async def stored(built: Built) -> MemoryStore:
    store = MemoryStore()
    await store.create(built.header, name=NAME, batch=built.session.entries)
    return store


def agent_on(store: MemoryStore, *tools: Tool, **members: object) -> Agent:
    model = ScriptedModel(lambda _: say("fine"))
    return Agent(model, model_name="m", tools=tools, store=store, **members)  # type: ignore[arg-type]


# --- model calls -------------------------------------------------------------------------------


class Cuts:
    """A model whose stream breaks off, perhaps before it named its response."""

    def __init__(self, script: Sequence[object], *, after: str, nameless: bool = False) -> None:
        self._model = ScriptedModel(script)  # type: ignore[arg-type]
        self._after, self._nameless = after, nameless

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        async for event in self._model.stream(request):
            if self._nameless and event.type in ("response.created", "response.in_progress"):
                continue
            yield event
            if event.type == self._after:
                raise ConnectionError("the line broke")


@pytest.mark.parametrize("nameless", [False, True])
async def test_what_a_cut_stream_had_finished_is_output_and_not_input(nameless: bool) -> None:
    store = MemoryStore()
    act, tool_ = counted()
    script = [turn(say("Let me look."), call("act", {"n": 1}))]
    model = Cuts(script, after="response.output_item.done", nameless=nameless)
    agent = Agent(model, tools=[tool_], store=store)
    async with agent.session(NAME) as chat:
        with pytest.raises(RunFailed):
            await chat.send("go")
    session = await session_in(store)
    (response,) = [e for e in session.entries if e.type == "response"]
    assert response.members["status"] == "failed"
    owners = {e.members.get("response", "") for e in session.entries if e.type == "item"}
    assert owners <= {"", response.members["response_id"]}
    assert act.entered == []
    async with agent_on(store).session(NAME) as chat:
        assert (await chat.send("again")).text == "fine"
    await session_in(store)


async def test_a_call_id_of_another_branch_is_not_given_again() -> None:
    built = Built(new_header("s1", "2026-10-01T12:00:00Z"))
    built.config(model="m")
    root = built.user()
    built.call("call_1")
    built.response()
    built.rewind(root)
    store = await stored(built)
    act, tool_ = counted()
    model = ScriptedModel([call("act", {"n": 1}, call_id="call_1"), say("Done.")])
    async with Agent(model, model_name="m", tools=[tool_], store=store).session(NAME) as chat:
        await chat.send("go")
    assert act.entered != ["call_1"]
    session = await session_in(store)
    (renamed,) = [e for e in session.entries if "perdure:model_call_id" in e.members]
    assert renamed.members["perdure:model_call_id"] == "call_1"


async def test_an_item_no_model_is_shown_keeps_its_place_and_the_hashes() -> None:
    store = MemoryStore()
    note = decode_item(b'{"type":"acme:note","id":"n1","text":"aside"}')
    model = ScriptedModel([turn(item(note), call("act", {"n": 1})), say("Done.")])
    _, tool_ = counted(effect="none")
    async with Agent(model, tools=[tool_], store=store).session(NAME) as chat:
        await chat.send("go")
        before = list(chat.state.transcript)
    session = await session_in(store)
    (kept,) = [e for e in session.entries if e.members.get("ns") == "acme:note"]
    (first, *_) = [e for e in session.entries if e.type == "response"]
    assert kept.members["perdure:response_id"] == first.members["response_id"]
    assert all(e.members.get("request_hash") for e in session.entries if e.type == "response")
    async with agent_on(store, tool_).session(NAME) as chat:
        assert list(chat.state.transcript) == before


async def test_a_withheld_answer_ends_as_aborted_and_is_nowhere() -> None:
    class Trips(Middleware):
        async def on_message(self, message: object, info: object) -> None:
            raise Guard("the policy")

    store = MemoryStore()
    agent = Agent(ScriptedModel([say("forbidden")]), store=store, middleware=[Trips()])
    async with agent.session(NAME) as chat:
        assert (await chat.send("go")).status == "stopped"
    session = await session_in(store)
    assert types(session)[-1] == "run end aborted"
    lines = b"".join(entry.line for entry in session.entries)
    assert b"forbidden" not in lines
    assert b"the policy" not in lines


# --- settings ------------------------------------------------------------------------------------


async def test_settings_spelled_in_another_order_are_the_same_after_a_restart() -> None:
    store = MemoryStore()
    for metadata in ({"a": "1", "b": "2"}, {"b": "2", "a": "1"}):
        async with agent_on(store, settings=Request(metadata=metadata)).session(NAME) as chat:
            await chat.send("go")
    assert types(await session_in(store)).count("config") == 1


async def test_settings_that_a_hook_changes_each_turn_are_written_once() -> None:
    class Warms(Middleware):
        async def before_model_call(self, request: ModelRequest) -> ModelRequest | None:
            import msgspec

            settings = msgspec.structs.replace(request.settings, temperature=0.9)
            return ModelRequest(settings=settings, input=request.input)

    store = MemoryStore()
    for _ in range(3):
        async with agent_on(store, middleware=[Warms()]).session(NAME) as chat:
            await chat.send("go")
            await chat.send("on")
    session = await session_in(store)
    assert types(session).count("config") == 2  # the agent's own, and what the hook made of them
    assert session.context().settings.extra["temperature"] == 0.9


async def test_another_agent_s_settings_stand_before_what_its_hooks_bring_in() -> None:
    class Reminds(Middleware):
        async def before_turn(self, info: TurnStartInfo) -> Sequence[Item | Hidden]:
            return [user("it is noon")] if len(info.transcript) < 4 else ()

    store = MemoryStore()
    async with agent_on(store).session(NAME) as chat:
        await chat.send("go")
        chat.use(agent_on(store, instructions="Be brief.", middleware=[Reminds()]))
        await chat.send("on")
        await chat.send("and on")
    session = await session_in(store)
    configs = [at for at, entry in enumerate(session.entries) if entry.type == "config"]
    reminder = next(at for at, e in enumerate(session.entries) if b"it is noon" in e.line)
    assert len(configs) == 2
    assert configs[1] < reminder
    assert all(e.members.get("request_hash") for e in session.entries if e.type == "response")


# --- queues ------------------------------------------------------------------------------------


async def test_what_a_drive_did_not_take_is_owed_once_and_taken_once() -> None:
    store = MemoryStore()
    async with agent_on(store).session(NAME) as chat:
        await chat.send("go")
        chat.follow_up("later")
    for _ in range(2):  # nobody says anything; nothing is written again
        async with agent_on(store).session(NAME) as chat:
            assert len(chat.state.follow_ups) == 1
    assert types(await session_in(store)).count("queued") == 1
    async with agent_on(store).session(NAME) as chat:
        await chat.send("now")
    session = await session_in(store)
    assert session.queued() == ()
    said = [getattr(one, "text", "") for one in session.context().items]
    assert said == ["go", "fine", "now", "fine", "later", "fine"]


async def test_what_nobody_took_up_after_a_restart_is_closed_by_the_next_end() -> None:
    store = MemoryStore()
    async with agent_on(store).session(NAME) as chat:
        chat.follow_up("later")
    again = await go_on(store, (await session_in(store)).id)
    await drive(again, config_of(["fine"]), "go")  # without `again.waiting()`
    await again.close()
    session = await session_in(store)
    assert session.queued() == ()
    assert types(session).count("queued") == 1


# --- calls that a crash left ---------------------------------------------------------------------


@pytest.mark.parametrize(("verdict", "said"), [("reject", "not today"), ("answer", "unknown")])
async def test_a_crash_before_an_output_that_was_decided_owes_it(verdict: str, said: str) -> None:
    built = one_call(effect="once" if verdict == "answer" else "")
    built.decide("c", verdict, reason="not today")
    store = await stored(built)
    act, tool_ = counted("t")
    async with agent_on(store, tool_).session(NAME) as chat:
        with pytest.raises(CallAnswered):
            await chat.resume(approve("c"))
        await chat.send("go on")
    assert act.entered == []
    [(_, text)] = outputs((await session_in(store)).context().items)
    assert said in text


async def test_a_call_held_after_its_dispatch_waits_and_may_have_run() -> None:
    built = one_call(effect="idempotent")
    built.decide("c", "hold", reason="look first")
    store = await stored(built)
    act, tool_ = counted("t", "idempotent")
    async with agent_on(store, tool_).session(NAME) as chat:
        (waiting,) = chat.state.pending
        assert (waiting.reason, waiting.may_have_run) == ("held", True)
        await chat.resume(approve("c", by="human"))
    assert act.entered == ["c"]
    kinds = types(await session_in(store))
    assert [k for k in kinds if k.startswith(("decision", "dispatch"))] == [
        "dispatch",
        "decision hold",
        "decision proceed",
        "dispatch",
    ]


async def test_the_output_of_a_call_held_after_its_dispatch_is_an_answer() -> None:
    built = one_call(effect="once")
    built.decide("c", "hold", reason="look first")
    store = await stored(built)
    async with agent_on(store, counted("t")[1]).session(NAME) as chat:
        await chat.resume(outcome_unknown("c", by="human"))
    assert "decision answer" in types(await session_in(store))


async def test_a_second_run_has_the_arguments_its_key_was_used_with() -> None:
    built = one_call(effect="keyed")
    built.decide("c", "proceed", args={"n": 2})  # and the process died before it entered
    store = await stored(built)
    seen: list[str] = []

    def does(one: Call) -> str:
        seen.append(one.arguments)
        return "ok"

    act = Counted("t", "keyed", does)
    tool_ = cast("Tool", act)
    async with agent_on(store, tool_).session(NAME) as chat:
        await chat.continue_()
    assert (seen, act.keys) == (['{"n":1}'], ["k"])


@pytest.mark.parametrize("effect", ["keyed", "once"])
async def test_a_dispatch_above_a_rewind_counts(effect: str) -> None:
    built = one_call()
    back = built.session.leaf
    assert back is not None
    built.dispatch("c", "first", **{"perdure:effect": effect})
    built.rewind(back)
    store = await stored(built)
    act, tool_ = counted("t", effect)
    async with agent_on(store, tool_).session(NAME) as chat:
        (waiting,) = chat.state.pending
        assert waiting.may_have_run
        await chat.continue_()
    assert act.keys == (["first"] if effect == "keyed" else [])


async def test_an_output_above_a_rewind_is_used_again() -> None:
    built = one_call()
    back = built.session.leaf
    assert back is not None
    built.dispatch("c", "first", **{"perdure:effect": "once"})
    built.output("c", "it ran")
    built.rewind(back)
    store = await stored(built)
    act, tool_ = counted("t")
    async with agent_on(store, tool_).session(NAME) as chat:
        await chat.continue_()
    assert act.entered == []
    session = await session_in(store)
    assert outputs(session.context().items) == [("c", "it ran")]
    assert "decision answer" in types(session)


async def test_a_fork_knows_what_was_dispatched_where_it_comes_from() -> None:
    built = one_call()
    base = built.session.leaf
    assert base is not None
    built.dispatch("c", "first", **{"perdure:effect": "keyed"})
    made = fork(built.session, base, clock=SystemClock(), ids=RandomIds())
    store = MemoryStore()
    await store.create(built.header, batch=built.session.entries)
    await store.create(made.header, name=NAME, batch=made.entries)
    act, tool_ = counted("t", "keyed")
    async with agent_on(store, tool_).session(NAME) as chat:
        (waiting,) = chat.state.pending
        assert (waiting.may_have_run, waiting.idempotency_key) == (True, "first")
        with pytest.raises(InputRequired):  # the fork has to decide for itself (LOG 5.8)
            await chat.continue_()
        await chat.resume(approve("c"))
    assert act.keys == ["first"]


async def test_forks_that_lead_in_a_circle_are_refused() -> None:
    store = MemoryStore()
    base = Built().user()
    entries = Built()
    entries.user()
    for name, origin in (("a", "b"), ("b", "a")):
        header = new_header(name, "2026-10-01T12:00:00Z", origin=Origin(origin, base))
        await store.create(header, name=name, batch=entries.session.entries)
    with pytest.raises(CorruptLog, match="without an end"):
        await go_on(store, "a")


async def test_one_answer_that_may_not_stand_keeps_all_from_running() -> None:
    built = Built(new_header("s1", "2026-10-01T12:00:00Z"))
    built.config(model="m")
    built.start()
    built.user()
    built.call("c1")
    built.call("c2")
    built.response()
    built.dispatch("c2", "k", **{"perdure:effect": "once"})
    store = await stored(built)
    act, tool_ = counted("t")
    async with agent_on(store, tool_).session(NAME) as chat:
        with pytest.raises(AmbiguousCall):
            await chat.resume(approve("c1"), approve("c2"))
        assert len(chat.state.pending) == 2
    assert act.entered == []


async def test_a_person_who_lets_a_call_run_again_is_on_record_without_a_reason() -> None:
    store = await stored(one_call(effect="idempotent"))
    act, tool_ = counted("t", "idempotent")
    async with agent_on(store, tool_).session(NAME) as chat:
        await chat.resume(approve("c", by="human"))
    assert act.entered == ["c"]
    session = await session_in(store)
    (decision,) = [e for e in session.entries if e.type == "decision"]
    assert decision.members["verdict"] == "proceed"
    assert decision.members["by"] == "human"
    assert decision.members["reason"]


async def test_an_approval_that_names_nobody_stays_anonymous() -> None:
    store = MemoryStore()
    model = ScriptedModel([call("act", {"n": 1}), say("Done.")])
    agent = Agent(model, tools=[counted()[1]], store=store, middleware=[Decides(HOLD)])
    async with agent.session(NAME) as chat:
        (waiting,) = (await chat.send("go")).pending
        await chat.resume(approve(waiting.call.call_id))
    session = await session_in(store)
    held, proceed = [e.members for e in session.entries if e.type == "decision"]
    assert (held["verdict"], held["reason"]) == ("hold", "ask ann")
    assert "by" not in proceed


async def test_nothing_is_decided_about_a_call_that_has_its_output() -> None:
    store = MemoryStore()
    model = ScriptedModel([call("act", {"n": 1}, call_id="c"), say("Done.")])
    async with Agent(model, tools=[counted()[1]], store=store).session(NAME) as chat:
        await chat.send("go")
        recording = chat._recording
        assert recording is not None
        decided = ToolStart(
            run_id="r",
            turn=1,
            call_id="c",
            name="act",
            arguments="{}",
            decision=ToolDecision(action="hold", reason="too late"),
        )
        with pytest.raises(EntryRefused, match="has an output"):
            _ = recording.recorder.note(decided)
    assert "decision hold" not in types(await session_in(store))


async def test_outputs_of_a_resume_do_not_carry_its_trigger() -> None:
    store = MemoryStore()
    model = ScriptedModel([call("act", {"n": 1}), say("Done.")])
    agent = Agent(model, tools=[counted()[1]], store=store, middleware=[Decides(HOLD)])
    async with agent.session(NAME) as chat:
        (waiting,) = (await chat.send("go")).pending
        trigger = Trigger(kind="webhook", ref="w1")
        await chat.resume(outcome_unknown(waiting.call.call_id, by="human"), trigger=trigger)
    session = await session_in(store)
    (output,) = [e for e in session.entries if b'"function_call_output"' in e.line]
    assert "source" not in output.members
    start = [e for e in session.entries if e.members.get("phase") == "start"][-1]
    assert start.members["ref"] == "webhook:w1"


async def test_the_answers_of_a_record_are_those_of_its_pending_calls() -> None:
    built = Built(new_header("s1", "2026-10-01T12:00:00Z"))
    built.config(model="m")
    built.start()
    built.user()
    built.call("c1")
    built.call("c2")
    built.response()
    built.dispatch("c1", "k", **{"perdure:effect": "once"})
    store = await stored(built)
    act, tool_ = counted("t")
    async with agent_on(store, tool_).session(NAME) as chat:
        await chat.send("well?")
        assert paired(list(chat.state.transcript))
    assert act.entered == ["c2"]


async def test_a_recorded_session_takes_no_other_transcript() -> None:
    async with agent_on(MemoryStore()).session(NAME) as chat:
        await chat.send("go")
        with pytest.raises(ConfigError, match="goes on from its record"):
            chat.set_transcript([user("another")])


def test_a_resume_that_found_nothing_to_do_is_a_whole_drive() -> None:
    built = one_call()
    built.decide("c", "hold")
    built.end()
    built.start("run_2", "resume")
    built.end("run_2")
    assert built.faults == ()


async def test_what_stands_between_items_of_an_answer_does_not_hide_its_request() -> None:
    recorded: list[AnyEntry] = []

    class Notes(Middleware):
        async def on_event(self, event: Event) -> None:
            if isinstance(event, ItemEnd) and isinstance(event.item, FunctionCall):
                assert chat._recording is not None
                await chat._recording.recorder.write_record("", "acme:mark", {"seen": 1})

    store = MemoryStore()
    model = ScriptedModel([turn(call("act", {"n": 1}), call("act", {"n": 2})), say("Done.")])
    _, tool_ = counted(effect="none")
    agent = Agent(model, tools=[tool_], store=store, middleware=[Notes()])
    async with agent.session(NAME) as chat:
        await chat.send("go")
    session = await session_in(store)
    recorded += [e for e in session.entries if e.type == "response"]
    for entry in recorded:
        session.check_request(entry.id)


# --- questions ---------------------------------------------------------------------------


class Person:
    """Answers, and notes what was on record when it was asked."""

    def __init__(self, store: MemoryStore, reply: Reply | Exception) -> None:
        self._store, self._reply = store, reply
        self.saw: list[str] = []

    async def ask(self, question: Question) -> Reply:
        self.saw = types(await session_in(self._store))
        if isinstance(self._reply, Exception):
            raise self._reply
        return self._reply


def asking(store: MemoryStore, person: Elicitor) -> Agent:
    @tool(effect="none")
    async def book() -> str:
        """Book a table."""
        reply = await elicit("For how many?", schema={"type": "object"})
        return f"{reply.action} {reply.content}"

    model = ScriptedModel([call("book", call_id="c1"), say("Done.")])
    return Agent(model, tools=[book], store=store, elicitor=person)


async def questions(store: MemoryStore) -> list[AnyEntry]:
    session = await session_in(store)
    return [e for e in session.entries if e.members.get("ns") == "perdure:elicitation"]


async def test_a_question_is_on_record_before_it_is_put_and_its_answer_behind_it() -> None:
    store = MemoryStore()
    person = Person(store, Reply(action="accept", content={"people": 4}, note="by the window"))
    async with asking(store, person).session(NAME) as chat:
        await chat.send("go")
    assert person.saw[-1] == "custom perdure:elicitation"
    ask, answer = await questions(store)
    assert ask.members["call_id"] == answer.members["call_id"] == "c1"
    assert ask.members["data"] == {
        "phase": "ask",
        "call_id": "c1",
        "message": "For how many?",
        "schema": {"type": "object"},
    }
    assert answer.members["data"] == {
        "phase": "answer",
        "ask": ask.id,
        "action": "accept",
        "content": {"people": 4},
        "note": "by the window",
    }


async def test_a_question_that_could_not_be_put_has_the_failure_for_its_answer() -> None:
    store = MemoryStore()
    async with asking(store, Person(store, ValueError("offline"))).session(NAME) as chat:
        await chat.send("go")
    ask, answer = await questions(store)
    assert answer.members["data"] == {"phase": "answer", "ask": ask.id, "error": "offline"}


async def test_a_question_of_a_process_that_died_is_on_record_without_an_answer() -> None:
    store = MemoryStore()
    found: list[MemoryStore] = []

    class Dies:
        async def ask(self, question: Question) -> Reply:
            found.append(await crashed(store))
            return Reply(action="cancel")

    async with asking(store, Dies()).session(NAME) as chat:
        await chat.send("go")
    (ask,) = await questions(found[0])
    assert cast("dict[str, object]", ask.members["data"])["phase"] == "ask"


async def test_a_question_about_a_nested_call_names_it_and_stands_with_its_parent() -> None:
    @tool(effect="none")
    async def inner(n: int) -> str:
        """Do it."""
        return "inside"

    @tool(effect="none")
    async def outer() -> str:
        """Do it through another."""
        return str((await invoke("inner", {"n": 1})).output)

    class HoldsInner(Middleware):
        async def before_tool_call(self, info: ToolCallInfo) -> ToolDecision | None:
            return HOLD if info.parent else None

    store = MemoryStore()
    person = Person(store, Reply(action="accept"))
    model = ScriptedModel([call("outer", call_id="c1"), say("Done.")])
    agent = Agent(
        model, tools=[inner, outer], store=store, elicitor=person, middleware=[HoldsInner()]
    )
    async with agent.session(NAME) as chat:
        assert (await chat.send("go")).text == "Done."
    ask, _ = await questions(store)
    data = cast("dict[str, object]", ask.members["data"])
    assert ask.members["call_id"] == "c1"
    assert (data["name"], data["arguments"], data["parent"]) == ("inner", '{"n":1}', "c1")
    assert data["reason"] == "ask ann"
