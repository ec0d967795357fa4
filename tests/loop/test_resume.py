"""Pending calls: why they have no output, who may answer them, and what runs again."""

from __future__ import annotations

import asyncio
import random

import pytest

from perdure.agent import Agent
from perdure.errors import (
    AmbiguousCall,
    CallAnswered,
    ConfigError,
    InputRequired,
    NotPending,
    RunFailed,
)
from perdure.loop import (
    RUN_AGAIN,
    RUN_AGAIN_KEYED,
    RUN_AGAIN_SAFE,
    Answer,
    Config,
    ItemEnd,
    Middleware,
    PendingCall,
    PendingReason,
    RunEnd,
    RunInfo,
    RunStart,
    ToolCallInfo,
    ToolDecision,
    ToolDispatch,
    ToolEnd,
    ToolStart,
    Trigger,
    TurnStart,
    answer_with,
    approve,
    deny,
    outcome_unknown,
    refuse,
    run,
)
from perdure.middleware import StandingApprovals, always, never
from perdure.session import Session
from perdure.testing import FakeClock, ScriptedModel, call, turn
from perdure.testing.clock import settle
from perdure.tools import Call
from perdure.wire import FunctionCall, Item, function_call, function_call_output, user
from tests.loop.fakes import (
    Ear,
    Tool,
    fails,
    listening,
    never as never_ends,
    outputs,
    pending,
    ran,
    texts,
)


class Holds(Middleware):
    """Holds the calls of tools by name."""

    def __init__(self, *names: str, **decisions: ToolDecision) -> None:
        self.decisions = {name: ToolDecision(action="hold", reason="ask") for name in names}
        self.decisions.update(decisions)
        self.asked: list[str] = []

    async def before_tool_call(self, info: ToolCallInfo) -> ToolDecision | None:
        self.asked.append(info.call.call_id)
        return self.decisions.get(info.call.name)


def called(*names: str) -> list[Item]:
    """A transcript that ends with a call of each tool."""
    calls = [function_call(f"c{n}", name, '{"n": 1}') for n, name in enumerate(names, 1)]
    return [user("go"), *calls]


def waiting(
    reason: PendingReason,
    *names: str,
    key: str = "",
    arguments: str | None = None,
    dispatched: bool = False,
) -> list[PendingCall]:
    return [
        PendingCall(
            call=one,
            reason=reason,
            idempotency_key=key,
            arguments=arguments,
            dispatched=dispatched,
        )
        for one in called(*names)
        if isinstance(one, FunctionCall)
    ]


def seeded(
    tools: list[Tool],
    reason: PendingReason = "aborted",
    *,
    key: str = "",
    arguments: str | None = None,
    dispatched: bool = False,
    middleware: list[Middleware] | None = None,
) -> tuple[Session, Ear, ScriptedModel]:
    """A session whose last batch, one call of each tool, has no outputs."""
    names = [one.name for one in tools]
    model = ScriptedModel(["done"], after=1)
    agent = Agent(model, tools=tools, middleware=middleware or [])
    known = waiting(reason, *names, key=key, arguments=arguments, dispatched=dispatched)
    session, ear = listening(agent, transcript=called(*names), pending=known)
    return session, ear, model


# --- answers ------------------------------------------------------------------------------


async def test_a_held_call_is_resumed_by_an_output() -> None:
    model = ScriptedModel([call("a", {}, "c1"), "done"])
    one = Tool("a")
    session, ear = listening(Agent(model, tools=[one], middleware=[Holds("a")]))
    assert (await session.send("go")).status == "input_required"
    result = await session.resume(answer_with("c1", "by hand", by="human"))
    assert (result.status, one.entered) == ("done", [])
    assert outputs(model.requests[-1].input) == [("c1", "by hand")]
    [end] = [event for event in ear.of(ItemEnd) if event.answer]
    assert end.answer is not None
    assert end.answer.by == "human"
    assert [event.source for event in ear.of(RunStart)] == ["input", "resume"]
    ear.check()


async def test_a_held_call_is_resumed_by_an_approval_without_asking_again() -> None:
    model = ScriptedModel([call("a", {}, "c1"), "done"])
    one, hook = Tool("a"), Holds("a")
    session, ear = listening(Agent(model, tools=[one], middleware=[hook]))
    await session.send("go")
    result = await session.resume(approve("c1", by="human", reason="looks fine"))
    assert (result.status, one.entered, hook.asked) == ("done", ["c1"], ["c1"])
    start = ear.of(ToolStart)[-1]
    assert start.turn == 0
    assert start.decision is not None
    assert (start.decision.by, start.decision.reason) == ("human", "looks fine")
    assert all(event.turn == 0 for event in ear.of(ToolDispatch))
    ear.check()


async def test_an_approval_runs_what_the_hook_that_held_the_call_rewrote() -> None:
    hook = Holds(a=ToolDecision(action="hold", arguments='{"n":2}'))
    model = ScriptedModel([call("a", {"n": 1}, "c1"), "done"])
    one = Tool("a")
    session, ear = listening(Agent(model, tools=[one], middleware=[hook]))
    await session.send("go")
    assert session.state.pending[0].arguments == '{"n":2}'
    await session.resume(approve("c1"))
    assert one.calls[0].arguments == '{"n":2}'
    ear.check()


async def test_an_approval_with_arguments_runs_those() -> None:
    session, ear, _ = seeded([one := Tool("a")], "held")
    await session.resume(approve("c1", arguments='{"n":3}'))
    assert one.calls[0].arguments == '{"n":3}'
    ear.check()


@pytest.mark.parametrize("arguments", ["[1]", "{", "null"])
async def test_an_approval_whose_arguments_are_no_object_is_refused_before_anything_happens(
    arguments: str,
) -> None:
    session, ear, _ = seeded([one := Tool("a")], "held")
    with pytest.raises(ConfigError):
        await session.resume(approve("c1", arguments=arguments))
    assert (one.entered, ear.events) == ([], [])


async def test_denied_and_approved_calls_of_one_batch_both_have_their_output() -> None:
    one, two = Tool("a"), Tool("b")
    session, ear, model = seeded([one, two], "held")
    await session.resume(approve("c2"), deny("c1", "not that one"))
    assert outputs(model.requests[-1].input) == [("c1", "Error: not that one"), ("c2", "ok")]
    assert (one.entered, two.entered) == ([], ["c2"])
    ear.check()


async def test_a_refusal_ends_the_drive_when_every_answer_is_in() -> None:
    one, two = Tool("a"), Tool("b")
    session, ear, model = seeded([one, two], "held")
    result = await session.resume(refuse("c1"), approve("c2"))
    assert (result.status, result.cause) == ("stopped", "refused")
    assert dict(outputs(session.state.transcript)) == {"c1": "Error: denied", "c2": "ok"}
    assert model.requests == []
    assert ear.end.pending == ()
    ear.check()


async def test_notes_of_answers_follow_the_outputs_as_the_user_s_words() -> None:
    session, ear, model = seeded([Tool("a"), Tool("b")], "held")
    await session.resume(approve("c1", note="go on"), answer_with("c2", "x", note="by hand"))
    assert texts(model.requests[-1].input)[3:] == [
        "output c2: x",
        "user: by hand",
        "output c1: ok",
        "user: go on",
    ]
    ear.check()


async def test_an_approved_batch_runs_in_transcript_order_whatever_the_order_of_answers() -> None:
    order: list[str] = []

    async def notes(call: Call) -> str:
        order.append(call.id)
        return "ok"

    tools = [Tool(name, notes, sequential=True) for name in "abc"]
    session, ear, _ = seeded(tools, "held")
    await session.resume(approve("c3"), approve("c1"), approve("c2"))
    assert order == ["c1", "c2", "c3"]
    assert [event.call_id for event in ear.of(ToolStart)] == ["c1", "c2", "c3"]
    ear.check()


async def test_every_answer_goes_to_its_own_call() -> None:
    async def once(seed: int) -> None:
        chance = random.Random(seed)

        async def slow(call: Call) -> str:
            for _ in range(chance.randrange(6)):
                await asyncio.sleep(0)
            return call.arguments

        session, _, _ = seeded([Tool("a", slow), Tool("b", slow)], "held")
        answers = [approve("c1", arguments='{"x":"A"}'), approve("c2", arguments='{"x":"B"}')]
        chance.shuffle(answers)
        result = await session.resume(*answers)
        assert dict(outputs(result.items)) == {"c1": '{"x":"A"}', "c2": '{"x":"B"}'}

    for seed in range(200):
        await once(seed)


async def test_every_held_call_is_pending_in_the_model_s_order() -> None:
    names = ["c", "a", "b"]
    model = ScriptedModel([turn(*(call(n, {}, f"id_{n}") for n in names))])
    agent = Agent(model, tools=[Tool(n) for n in names], middleware=[Holds(*names)])
    session, ear = listening(agent)
    result = await session.send("go")
    assert [one.call.call_id for one in result.pending] == ["id_c", "id_a", "id_b"]
    assert {one.reason for one in result.pending} == {"held"}
    ear.check()


async def test_an_approval_runs_once_however_the_resume_is_called() -> None:
    session, ear, _ = seeded([one := Tool("a")], "held")
    trigger = Trigger(kind="web", extra={"context": {}})
    result = await session.resume(approve("c1"), trigger=trigger)
    assert (result.status, one.entered) == ("done", ["c1"])
    assert ear.of(RunStart)[0].trigger == trigger
    with pytest.raises(NotPending):
        await session.resume(approve("c1"))
    assert one.entered == ["c1"]
    ear.check()


async def test_settled_calls_of_the_batch_are_not_repeated_when_the_held_one_is_approved() -> None:
    model = ScriptedModel(
        [turn(call("a", "[1]", "c1"), call("b", {}, "c2"), call("c", {}, "c3")), "."]
    )
    tools = [Tool("a"), Tool("b"), Tool("c")]
    session, ear = listening(Agent(model, tools=tools, middleware=[Holds("c")]))
    await session.send("go")
    assert pending(ear.end) == {"c3": "held"}
    result = await session.resume(approve("c3"))
    assert result.status == "done"
    assert [one.entered for one in tools] == [[], ["c2"], ["c3"]]
    ear.check()


async def test_a_decision_for_the_exact_call_wins_over_a_standing_approval() -> None:
    policy = StandingApprovals(Holds("a", "b"), [always("a")])
    model = ScriptedModel([call("a", {}, "c1"), call("a", {}, "c2"), "done"])
    one = Tool("a")
    session, ear = listening(Agent(model, tools=[one], middleware=[policy]))
    ear.on("turn_end", lambda event: policy.remove(policy.rules[0]))
    assert (await session.send("go")).status == "input_required"
    policy.add(always("a"))
    await session.resume(deny("c2", "no"))
    assert one.entered == ["c1"]
    assert dict(outputs(model.requests[-1].input))["c2"] == "Error: no"
    ear.check()


async def test_a_standing_refusal_stands_over_everything_but_is_not_asked_on_approval() -> None:
    policy = StandingApprovals(Holds(), [never("a"), always("*")])
    model = ScriptedModel([call("a", {}, "c1"), "done"])
    one = Tool("a")
    session, ear = listening(Agent(model, tools=[one], middleware=[policy]))
    await session.send("go")
    assert one.entered == []
    assert ear.of(ToolEnd)[0].rejected
    ear.check()


@pytest.mark.parametrize(
    "answers",
    [
        (),
        (approve("c1"),),
        (approve("c1"), approve("c1"), approve("c2")),
        (approve("c1"), approve("c2"), approve("c3")),
        (approve("c1"), approve("x")),
    ],
    ids=["none", "one missing", "twice", "one too many", "strange"],
)
async def test_every_pending_call_needs_exactly_one_answer(answers: tuple[Answer, ...]) -> None:
    tools = [Tool("a"), Tool("b")]
    session, ear, model = seeded(tools, "held")
    with pytest.raises(NotPending):
        await session.resume(*answers)
    assert (ear.events, model.requests) == ([], [])
    assert [one.entered for one in tools] == [[], []]


async def test_an_output_that_names_another_call_is_refused() -> None:
    session, _, _ = seeded([Tool("a")], "held")
    with pytest.raises(ConfigError):
        await session.resume(Answer(call_id="c1", output=function_call_output("c9", "x")))


async def test_nothing_pending_is_nothing_to_resume() -> None:
    session, _ = listening(Agent(ScriptedModel(["hi"])))
    with pytest.raises(NotPending):
        await session.resume(approve("c1"))


# --- what may have run -----------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["aborted", "unknown"])
async def test_a_call_that_may_have_run_is_not_run_again(reason: PendingReason) -> None:
    session, ear, model = seeded([one := Tool("a", effect="once")], reason, key="k1")
    with pytest.raises(AmbiguousCall) as refused:
        await session.resume(approve("c1"))
    assert refused.value.call_id == "c1"
    assert (one.entered, ear.events, model.requests) == ([], [], [])
    result = await session.resume(outcome_unknown("c1"))
    assert result.status == "done"


@pytest.mark.parametrize("effect", ["none", "idempotent"])
async def test_a_call_that_may_run_twice_runs_again_with_the_reason(effect: str) -> None:
    session, ear, _ = seeded([one := Tool("a", effect=effect)], "aborted", key="k1")
    await session.resume(approve("c1"))
    assert one.calls[0].idempotency_key == "k1"
    decision = ear.of(ToolStart)[0].decision
    assert decision is not None
    assert decision.reason == RUN_AGAIN_SAFE


async def test_a_reason_that_was_given_stands() -> None:
    session, ear, _ = seeded([Tool("a", effect="none")], "aborted")
    await session.resume(approve("c1", reason="I looked"))
    decision = ear.of(ToolStart)[0].decision
    assert decision is not None
    assert decision.reason == "I looked"


@pytest.mark.parametrize(
    ("known_key", "answer", "allowed"),
    [
        ("k1", approve("c1"), True),
        ("k1", approve("c1", idempotency_key="k1"), True),
        ("k1", approve("c1", idempotency_key="k2"), False),
        ("k1", approve("c1", arguments='{ "n":1 }'), True),
        ("k1", approve("c1", arguments='{"n": 2}'), False),
        ("k1", approve("c1", arguments='{"n": 2}', idempotency_key="k1"), False),
        ("k1", approve("c1", arguments='{"n": 2}', idempotency_key="k2"), True),
        ("", approve("c1"), False),
        ("", approve("c1", idempotency_key="k1"), False),
        ("", approve("c1", arguments='{"n": 2}', idempotency_key="k2"), True),
    ],
)
async def test_a_keyed_call_runs_again_as_the_same_or_as_another_operation(
    known_key: str, answer: Answer, allowed: bool
) -> None:
    session, ear, _ = seeded([one := Tool("a", effect="keyed")], "aborted", key=known_key)
    if not allowed:
        with pytest.raises(AmbiguousCall):
            await session.resume(answer)
        assert (one.entered, ear.events) == ([], [])
        return
    await session.resume(answer)
    assert one.calls[0].idempotency_key == (answer.idempotency_key or known_key)
    decision = ear.of(ToolStart)[0].decision
    assert decision is not None
    assert decision.reason == RUN_AGAIN_KEYED


@pytest.mark.parametrize(
    ("dispatched", "given", "same"),
    [
        ('{"a": 1, "b": [1, 2]}', '{"b":[1,2],"a":1}', True),
        ('{"a": 9007199254740993}', '{"a": 9007199254740992}', False),
        ('{"a": "x"}', '{"a": "\\u0078"}', True),
        ('{"a": [1, 2]}', '{"a": [2, 1]}', False),
    ],
)
async def test_arguments_are_the_same_by_value(dispatched: str, given: str, same: bool) -> None:
    one = Tool("a", effect="keyed")
    session, _, _ = seeded([one], "aborted", key="k1", arguments=dispatched)
    if same:
        await session.resume(approve("c1", arguments=given))
        assert one.entered == ["c1"]
    else:
        with pytest.raises(AmbiguousCall):
            await session.resume(approve("c1", arguments=given))


async def test_a_re_run_has_the_arguments_of_the_last_dispatch() -> None:
    one = Tool("a", effect="keyed")
    session, _, _ = seeded([one], "aborted", key="k1", arguments='{"n": 7}')
    await session.resume(approve("c1"))
    assert one.calls[0].arguments == '{"n": 7}'


async def test_accepting_the_risk_runs_a_call_again_under_its_key() -> None:
    session, ear, _ = seeded([one := Tool("a")], "aborted", key="k1")
    await session.resume(approve("c1", run_again=True, by="human"))
    assert one.calls[0].idempotency_key == "k1"
    decision = ear.of(ToolStart)[0].decision
    assert decision is not None
    assert (decision.reason, decision.by) == (RUN_AGAIN, "human")


async def test_a_call_held_after_its_dispatch_may_have_run() -> None:
    session, _, _ = seeded([one := Tool("a")], "held", key="k1", dispatched=True)
    with pytest.raises(AmbiguousCall):
        await session.resume(approve("c1"))
    assert one.entered == []


async def test_of_several_answers_one_that_may_not_stand_keeps_all_from_running() -> None:
    tools = [Tool("a", effect="none"), Tool("b")]
    session, ear, _ = seeded(tools, "aborted")
    with pytest.raises(AmbiguousCall):
        await session.resume(approve("c1"), approve("c2"))
    assert [one.entered for one in tools] == [[], []]
    assert ear.events == []


@pytest.mark.parametrize("reason", ["answered", "rejected"])
async def test_a_call_that_a_record_answered_is_owed_its_output_alone(
    reason: PendingReason,
) -> None:
    session, ear, _ = seeded([one := Tool("a", effect="none")], reason)
    with pytest.raises(CallAnswered):
        await session.resume(approve("c1", run_again=True))
    result = await session.resume(answer_with("c1", "as recorded"))
    assert (result.status, one.entered) == ("done", [])
    ear.check()


async def test_a_call_whose_tool_is_gone_is_not_run_again() -> None:
    session, _, _ = seeded([Tool("a", effect="none")], "aborted")
    session.use(Agent(ScriptedModel(["done"], after=1)))
    with pytest.raises(AmbiguousCall, match="gone"):
        await session.resume(approve("c1"))


async def test_the_effect_at_dispatch_counts_as_much_as_today_s() -> None:
    model = ScriptedModel([call("a", {}, "c1"), "done"])
    clock = FakeClock()
    session, _ = listening(
        Agent(model, tools=[Tool("a", never_ends, effect="once")], clock=clock, grace=0)
    )
    sending = asyncio.create_task(session.send("go"))
    await settle()
    session.abort()
    await clock.advance(0)
    await sending
    session.use(Agent(model, tools=[safe := Tool("a", effect="idempotent")]))
    with pytest.raises(AmbiguousCall):
        await session.resume(approve("c1"))
    assert safe.entered == []


async def test_a_new_operation_that_never_began_leaves_the_last_one_as_it_was() -> None:
    tools = [Tool("a", effect="keyed", sequential=True), Tool("b", effect="keyed")]
    session, ear, _ = seeded(tools, "aborted", key="k1")
    ear.on("tool_end", lambda event: session.abort(), call_id="c1")
    other = approve("c2", arguments='{"n": 2}', idempotency_key="k2")
    await session.resume(approve("c1"), other)
    [left] = session.state.pending
    assert (left.reason, left.idempotency_key, left.arguments) == ("aborted", "k1", None)
    with pytest.raises(AmbiguousCall):
        await session.resume(approve("c2", idempotency_key="k3"))
    ear.check()


# --- what never ran ----------------------------------------------------------------------------


async def test_an_undispatched_call_that_is_approved_is_put_to_the_hooks() -> None:
    hook = Holds(a=ToolDecision(action="reject", reason="no longer"))
    tools = [Tool("a"), Tool("b")]
    session, ear, model = seeded(tools, "undispatched", middleware=[hook])
    await session.resume(approve("c1"), approve("c2"))
    assert hook.asked == ["c1", "c2"]
    assert outputs(model.requests[-1].input) == [("c1", "Error: no longer"), ("c2", "ok")]
    ear.check()


async def test_an_undispatched_call_that_a_hook_holds_waits_again() -> None:
    session, ear, model = seeded([one := Tool("a")], "undispatched", middleware=[Holds("a")])
    result = await session.resume(approve("c1"))
    assert (result.status, pending(ear.end)) == ("input_required", {"c1": "held"})
    assert (one.entered, model.requests) == ([], [])
    await session.resume(approve("c1"))
    assert one.entered == ["c1"]
    ear.check()


async def test_an_approved_call_that_an_abort_cuts_before_entry_never_ran() -> None:
    tools = [Tool("a", sequential=True), Tool("b")]
    session, ear, _ = seeded(tools, "held")
    ear.on("tool_end", lambda event: session.abort(), call_id="c1")
    await session.resume(approve("c1"), approve("c2"))
    assert pending(ear.end) == {"c2": "undispatched"}
    assert outputs(session.state.transcript) == [("c1", "ok")]
    ear.check()


async def test_a_call_that_ran_before_and_is_cut_before_it_enters_again_may_have_run() -> None:
    tools = [Tool("a", effect="none", sequential=True), Tool("b", effect="none")]
    session, ear, _ = seeded(tools, "aborted", key="k1")
    ear.on("tool_end", lambda event: session.abort(), call_id="c1")
    await session.resume(approve("c1"), approve("c2"))
    [left] = ear.end.pending
    assert (left.reason, left.idempotency_key) == ("aborted", "k1")
    ear.check()


@pytest.mark.parametrize("kind", ["item_start", "tool_start", "run_start"])
async def test_a_held_call_stays_held_when_its_answer_could_not_be_taken(kind: str) -> None:
    session, ear, _ = seeded([one := Tool("a"), Tool("b")], "held")
    ear.on(kind, fails())
    with pytest.raises(RunFailed):
        await session.resume(
            answer_with("c1", "x") if kind == "item_start" else approve("c1"), approve("c2")
        )
    assert one.entered == []
    assert all(left.reason in {"held", "undispatched"} for left in session.state.pending)
    assert not any(left.may_have_run for left in session.state.pending)
    await session.resume(*(answer_with(left.call.call_id, "y") for left in session.state.pending))
    ear.check()


# --- prompts that answer --------------------------------------------------------------------------


async def test_an_input_that_opens_with_the_outputs_answers_and_carries_a_message() -> None:
    session, ear, model = seeded([Tool("a"), Tool("b")], "held")
    cron = Trigger(kind="cron")
    result = await session.send(
        [function_call_output("c1", "x"), function_call_output("c2", "y"), user("and?")],
        trigger=cron,
    )
    assert result.status == "done"
    assert texts(model.requests[0].input)[3:] == ["output c1: x", "output c2: y", "user: and?"]
    assert ear.of(RunStart)[0].source == "resume"
    [start] = ear.of(TurnStart)
    assert [(one.mode, one.trigger) for one in start.inputs] == [
        ("resume", None),
        ("resume", None),
        ("prompt", cron),
    ]
    ends = [event for event in ear.of(ItemEnd) if not event.response_id]
    assert [event.trigger for event in ends] == [None, None, cron]
    ear.check()


async def test_an_input_that_leaves_a_call_unanswered_is_refused_before_anything_happens() -> None:
    session, ear, model = seeded([Tool("a"), Tool("b")], "held")
    with pytest.raises(InputRequired) as refused:
        await session.send([function_call_output("c1", "x"), user("and?")])
    assert refused.value.call_ids == ("c2",)
    with pytest.raises(InputRequired):
        await session.continue_()
    assert (ear.events, model.requests) == ([], [])


@pytest.mark.parametrize(
    "strange",
    [
        [function_call_output("c9", "x"), function_call_output("c1", "x")],
        [function_call_output("c1", "x"), function_call_output("c1", "y")],
    ],
    ids=["another call", "twice"],
)
async def test_a_leading_output_that_answers_nothing_is_refused(strange: list[Item]) -> None:
    session, ear, _ = seeded([Tool("a")], "held")
    with pytest.raises(NotPending):
        await session.send([*strange, user("and?")])
    assert ear.events == []


async def test_a_resume_tells_its_hooks_what_it_is() -> None:
    seen: list[str] = []

    class Sees(Middleware):
        async def before_run(self, info: RunInfo) -> None:
            seen.append(info.source)

    session, _, _ = seeded([Tool("a")], "held", middleware=[Sees()])
    await session.resume(answer_with("c1", "x"))
    assert seen == ["resume"]


# --- transcripts that were given ------------------------------------------------------------------


async def test_a_half_answered_batch_is_never_skipped_in_silence() -> None:
    half: list[Item] = [*called("a", "b"), function_call_output("c1", "x")]
    model = ScriptedModel(["done"], after=1)
    tools = [Tool("a"), Tool("b")]
    told = await ran(Config(model=model, tools=tools), "go on", transcript=half, check=False)
    assert [event.type for event in told.events] == ["run_end"]
    assert isinstance(told.end.error, InputRequired)
    assert told.end.error.call_ids == ("c2",)
    session, ear = listening(Agent(model, tools=tools), transcript=half)
    assert {one.call.call_id: one.reason for one in session.state.pending} == {"c2": "unknown"}
    with pytest.raises(InputRequired):
        await session.send("go on")
    with pytest.raises(AmbiguousCall):
        await session.resume(approve("c2"))
    assert model.requests == []
    session.set_pending(waiting("undispatched", "a", "b"))
    await session.resume(approve("c2"))
    assert [one.entered for one in tools] == [[], ["c2"]]
    assert outputs(model.requests[-1].input) == [("c1", "x"), ("c2", "ok")]
    ear.check()


async def test_a_held_call_stays_held_in_another_transcript_that_has_it() -> None:
    session, ear, _ = seeded([one := Tool("a"), Tool("b")], "held")
    session.set_transcript([user("shorter"), *called("a", "b")[1:], function_call("c7", "a")])
    reasons = {left.call.call_id: left.reason for left in session.state.pending}
    assert reasons == {"c1": "held", "c2": "held", "c7": "unknown"}
    await session.resume(approve("c1"), approve("c2"), outcome_unknown("c7"))
    assert one.entered == ["c1"]
    ear.check()


async def test_a_call_under_the_same_id_that_is_another_call_is_unknown() -> None:
    session, _, _ = seeded([Tool("a")], "held")
    session.set_transcript([user("go"), function_call("c1", "a", '{"n": 2}')])
    assert [left.reason for left in session.state.pending] == ["unknown"]


async def test_ids_of_a_transcript_that_was_left_stay_taken() -> None:
    model = ScriptedModel([call("a", {}, "c1"), "done"], after=0)
    old: list[Item] = [user("go"), function_call("c1", "a"), function_call_output("c1", "x")]
    session, ear = listening(Agent(model, tools=[Tool("a")]), transcript=old)
    session.set_transcript([])
    session.reserve_call_ids(["c1_2"])
    await session.send("go")
    assert [event.call_id for event in ear.of(ToolStart)] == ["c1_3"]
    ear.check()


@pytest.mark.parametrize(
    ("transcript", "prompts"),
    [([], []), ([user("hi"), function_call("c1", "a")], [user("x")])],
    ids=["nothing", "an open call"],
)
async def test_the_low_level_loop_refuses_as_one_end(
    transcript: list[Item], prompts: list[Item]
) -> None:
    model = ScriptedModel(["never"])
    async with run(transcript, prompts, Config(model=model)) as events:
        heard = [event async for event in events]
    [end] = heard
    assert isinstance(end, RunEnd)
    assert (end.reason, end.run_id) == ("error", "")
    assert isinstance(end.error, ConfigError)
    assert model.requests == []


async def test_two_tools_of_one_name_are_refused_as_one_end() -> None:
    config = Config(model=ScriptedModel(["x"]), tools=[Tool("a"), Tool("a")])
    told = await ran(config, "go", check=False)
    assert [event.type for event in told.events] == ["run_end"]


async def test_a_drive_must_be_entered_before_it_is_read() -> None:
    events = run([], [user("go")], Config(model=ScriptedModel(["hi"])))
    with pytest.raises(ConfigError):
        await asyncio.wait_for(anext(events), 1)


async def test_continuing_answers_what_stands_at_the_end_of_the_transcript() -> None:
    model = ScriptedModel(["one"])
    session, ear = listening(Agent(model), transcript=[user("hi")])
    assert (await session.continue_()).text == "one"
    [start] = ear.of(TurnStart)
    assert [one.mode for one in start.inputs] == ["continued"]
    with pytest.raises(ConfigError):
        await session.continue_()
    ear.check()
