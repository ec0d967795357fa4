"""The state of a conversation: its text, its accessors, what is saved when."""

from __future__ import annotations

import dataclasses
import json

import pytest

from perdure import call_model
from perdure.compose import (
    AsyncTask,
    ClientTool,
    ConversationState,
    Lifecycle,
    MemoryTexts,
    PartialResponse,
    PendingToolCall,
    StateFunctions,
    StateIn,
    UnsentToolResult,
    append_to_messages,
    client_tool,
    create_initial_state,
    create_rejected_result,
    create_unsent_result,
    deserialize_conversation_state,
    generate_conversation_id,
    manual_tool,
    serialize_conversation_state,
    unsent_results_to_items,
    update_state,
)
from perdure.errors import (
    ConfigError,
    InvalidState,
    RunFailed,
    ServerFailed,
    StateConflict,
    StateNotSaved,
    Truncated,
    UnsupportedStateVersion,
)
from perdure.loop import Retry
from perdure.testing import FakeClock, ScriptedModel, attempts, call, error, fail, turn
from perdure.tools import Effect
from perdure.wire import (
    Item,
    UnknownItem,
    assistant,
    decode_item,
    function_call,
    function_call_output,
    user,
)
from tests.compose.helpers import Counter, CountingIds, Kept, check_requests, outputs

FULL = ConversationState(
    id="conv_1",
    status="awaiting_approval",
    created_at=1,
    updated_at=2.5,
    messages=(
        user("hi"),
        function_call("c1", "pay", '{"cents":1}'),
        decode_item(b'{"type":"web_search_call","id":"ws","odd":[1.5]}'),
        assistant("well"),
    ),
    previous_response_id="resp_1",
    pending_tool_calls=(
        PendingToolCall(id="c1", name="pay", arguments={"cents": 1}),
        PendingToolCall(id="c2", name="pay", arguments="{broken", why="client"),
    ),
    unsent_tool_results=(UnsentToolResult(call_id="c3", name="x", error="no"),),
    partial_response=PartialResponse(text="so far"),
    interrupted_by="ann",
    running_call_ids=("c1",),
    consumed_tool_choice="required",
    tasks=(AsyncTask(task_id="t", call_id="c", name="n", mode="deferred"),),
    extra={"later": {"x": [1]}},
)


# --- text ------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [FULL, create_initial_state(ids=CountingIds())])
def test_a_state_comes_back_as_it_was(state: ConversationState) -> None:
    text = serialize_conversation_state(state)
    assert json.loads(text)["version"] == 1
    again = deserialize_conversation_state(text)
    assert again == state
    assert serialize_conversation_state(again) == text


def without(*names: str, **members: object) -> str:
    given = json.loads(serialize_conversation_state(FULL))
    left = {n: v for n, v in {**given, **members}.items() if n not in names}
    return json.dumps(left, separators=(",", ":"))


def test_a_text_without_a_version_is_version_1() -> None:
    assert deserialize_conversation_state(without("version")) == FULL


@pytest.mark.parametrize("found", [2, 0, 1.5, 99])
def test_another_version_is_said_before_anything_else_is_looked_at(found: float) -> None:
    text = json.dumps({"version": found, "shape": "another"})
    with pytest.raises(UnsupportedStateVersion) as refused:
        deserialize_conversation_state(text)
    assert refused.value.found == found
    assert refused.value.supported == (1,)


@pytest.mark.parametrize(
    ("text", "member"),
    [
        ("{", ""),
        ("[]", ""),
        ("null", ""),
        (without("id"), "id"),
        (without(id=3), "id"),
        (without(status=None), "status"),
        (without(status="odd"), "status"),
        (without("messages"), "messages"),
        (without(messages={}), "messages"),
        (without(messages=[3]), "messages"),
        (without("created_at"), "created_at"),
        (without(created_at=True), "created_at"),
        (without(updated_at="now"), "updated_at"),
        (without(version="1"), "version"),
        (without(version=True), "version"),
        (without(pending_tool_calls=[{"id": 1}]), "pending_tool_calls"),
        (without(tasks="none"), "tasks"),
    ],
)
def test_what_is_no_state_is_refused_by_its_member(text: str, member: str) -> None:
    with pytest.raises(InvalidState) as refused:
        deserialize_conversation_state(text)
    assert refused.value.member == member


def test_states_of_others_are_read_in_their_spelling() -> None:
    theirs = {
        "id": "conv_x",
        "messages": [{"role": "user", "content": "hi"}],
        "status": "awaiting_approval",
        "createdAt": 1,
        "updatedAt": 2,
        "previousResponseId": "r",
        "pendingToolCalls": [{"id": "c", "name": "pay", "arguments": {"a": 1}}],
        "unsentToolResults": [{"callId": "d", "name": "x", "output": 3}],
    }
    state = deserialize_conversation_state(json.dumps(theirs))
    assert state.pending_tool_calls[0].arguments == {"a": 1}
    assert state.unsent_tool_results[0].call_id == "d"
    assert state.previous_response_id == "r"


def test_unknown_items_and_members_survive() -> None:
    exact = decode_item(b'{"type":"web_search_call","id":"ws","odd":[1.50]}')
    state = dataclasses.replace(FULL, messages=(exact,))
    again = deserialize_conversation_state(serialize_conversation_state(state))
    odd = again.messages[0]
    assert isinstance(odd, UnknownItem)
    assert b"1.50" in odd.source.raw
    assert again.extra == {"later": {"x": [1]}}


# --- changing a state ------------------------------------------------------------------------


def test_an_update_is_newer_and_leaves_the_one_before_alone() -> None:
    clock = FakeClock()
    state = create_initial_state(clock=clock)
    later = append_to_messages(state, [user("a")], clock=FakeClock(wall=clock.wall() + 10**9))
    assert state.messages == ()
    assert later.messages == (user("a"),)
    assert later.updated_at == state.updated_at + 1000
    assert later.created_at == state.created_at
    assert state.version == 1


@pytest.mark.parametrize("member", ["id", "version", "created_at"])
def test_what_a_state_is_cannot_be_changed(member: str) -> None:
    with pytest.raises(ConfigError, match=member):
        update_state(FULL, **{member: "x"})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="cannot be changed"):
        update_state(FULL, lambda state: dataclasses.replace(state, id="other"))


def test_ids_are_fresh() -> None:
    assert generate_conversation_id().startswith("conv_")
    assert generate_conversation_id() != generate_conversation_id()
    assert create_initial_state("mine").id == "mine"


def test_results_that_nobody_sent_become_items() -> None:
    waiting = PendingToolCall(id="c", name="pay", arguments={})
    content = [{"type": "input_text", "text": "a"}]
    items = unsent_results_to_items(
        [
            create_unsent_result(waiting, {"a": 1}),
            create_rejected_result(waiting),
            create_unsent_result(waiting, content),
        ]
    )
    assert items[0] == function_call_output("c", '{"a":1}')
    assert items[1].output == "Error: rejected by the user"
    assert not isinstance(items[2].output, str)


# --- what is saved when ----------------------------------------------------------------------


async def test_a_run_saves_before_its_requests_and_at_its_end() -> None:
    counter, kept = Counter(), Kept()
    model = ScriptedModel([call("work", {"x": "a"}), "done"])
    await call_model(model, "go", tools=[counter.tool()], state=kept).text()
    assert kept.statuses == ["in_progress", "in_progress", "complete"]
    assert [len(state.messages) for state in kept.saves] == [0, 3, 4]
    assert kept.now.previous_response_id == "resp_t1"


async def test_a_call_with_an_effect_is_saved_as_running_before_it_is_entered() -> None:
    kept = Kept()
    seen: list[tuple[str, ...]] = []

    @client_tool(effect="once")
    async def pay() -> str:
        """Pay."""
        seen.append(kept.now.running_call_ids)
        return "paid"

    model = ScriptedModel([turn(call("pay", call_id="c1"), call("pay", call_id="c2")), "done"])
    await call_model(model, "go", tools=[pay], state=kept).text()
    assert seen == [("c1", "c2"), ("c1", "c2")]
    assert kept.now.running_call_ids == ()
    assert len(kept.saves) == 4, "one save for the whole round"


@pytest.mark.parametrize("broken", [fail("no"), turn("half", error(Truncated()))])
async def test_a_request_that_fails_saves_nothing_of_the_user_and_can_be_made_again(
    broken: object,
) -> None:
    kept = Kept()
    model = ScriptedModel([attempts(broken, "hello")])  # type: ignore[arg-type]
    with pytest.raises((ServerFailed, Truncated)):
        await call_model(model, "hi", state=kept, retry=Retry()).text()
    assert kept.now.messages == ()
    assert kept.status() == "in_progress"
    assert await call_model(model, "hi", state=kept, retry=Retry()).text() == "hello"
    assert messages_of(kept).count(user("hi")) == 1


def messages_of(kept: Kept) -> list[Item]:
    return list(kept.now.messages)


async def test_a_failure_later_keeps_the_rounds_that_were_done() -> None:
    counter, kept = Counter(), Kept()
    model = ScriptedModel([call("work", {"x": "a"}), attempts(fail("no"), "done")])
    with pytest.raises(ServerFailed):
        await call_model(model, "go", tools=[counter.tool()], state=kept, retry=Retry()).text()
    assert len(kept.now.messages) == 3
    assert kept.status() == "in_progress"
    assert await call_model(model, tools=[counter.tool()], state=kept).text() == "done"
    assert counter.ran == ["a"]
    check_requests(model)


async def test_the_loaded_state_is_never_changed() -> None:
    kept = Kept()
    model = ScriptedModel([call("mine", call_id="c1"), "done"])
    await call_model(model, "go", tools=[manual_tool("mine")], state=kept).text()
    loaded = kept.now
    text = serialize_conversation_state(loaded)
    answer = function_call_output("c1", "x")
    await call_model(model, answer, tools=[manual_tool("mine")], state=kept).text()
    assert serialize_conversation_state(loaded) == text


async def test_a_text_joins_the_history_as_an_item() -> None:
    kept = Kept()
    model = ScriptedModel(["one", "two"])
    await call_model(model, "first", state=kept).text()
    await call_model(model, "second", state=kept).text()
    assert [item.type for item in model.requests[1].input] == ["message"] * 3
    assert model.requests[1].input[-1] == user("second")


async def test_a_save_that_fails_stops_the_run_before_the_tool() -> None:
    class Full(Kept):
        async def save(self, state: ConversationState) -> None:
            if state.running_call_ids:
                raise OSError("disk full")
            await super().save(state)

    ran: list[int] = []

    @client_tool(effect="once")
    async def pay() -> str:
        """Pay."""
        ran.append(1)
        return "paid"

    model = ScriptedModel([call("pay"), "done"])
    with pytest.raises(StateNotSaved, match="disk full"):
        await call_model(model, "go", tools=[pay], state=Full()).text()
    assert ran == []


# --- a process that dies ---------------------------------------------------------------------


async def test_a_call_that_may_have_run_is_not_run_again_unless_its_effect_allows_it() -> None:
    cases: list[tuple[Effect, bool]] = [("once", False), ("idempotent", True)]
    for effect, again in cases:
        ran: list[str] = []
        dangling = dataclasses.replace(
            create_initial_state(),
            messages=(user("go"), function_call("c1", "pay", '{"x":"a"}')),
            running_call_ids=("c1",),
        )
        kept = Kept(dangling)
        model = ScriptedModel(["done"], after=1)
        assert await call_model(model, tools=[pay_tool(effect, ran)], state=kept).text() == "done"
        said = outputs(model.requests[0])["c1"]
        assert ran == (["a"] if again else [])
        assert said == ("paid" if again else said)
        assert again or "outcome of this call is unknown" in said


def pay_tool(effect: Effect, ran: list[str]) -> ClientTool:
    @client_tool(name="pay", effect=effect)
    async def pay(x: str) -> str:
        """Pay."""
        ran.append(x)
        return "paid"

    return pay


async def test_a_call_that_never_ran_runs_and_one_that_needs_approval_still_does() -> None:
    counter = Counter()
    dangling = dataclasses.replace(
        create_initial_state(),
        messages=(
            user("go"),
            function_call("c1", "free", '{"x":"a"}'),
            function_call("c2", "gated", '{"x":"b"}'),
        ),
    )
    kept = Kept(dangling)
    model = ScriptedModel(["done"], after=1)
    tools = [counter.tool("free"), counter.tool("gated", require_approval=True)]
    await call_model(model, tools=tools, state=kept).text()
    assert counter.ran == ["a"]
    assert kept.status() == "awaiting_approval"
    await call_model(model, tools=tools, state=kept, approve=["c2"]).text()
    assert counter.ran == ["a", "b"]


# --- interruption ----------------------------------------------------------------------------


async def test_an_interruption_that_comes_while_tools_run_is_seen_and_lost_by_no_save() -> None:
    store = MemoryTexts()
    state, other = StateIn(store, "c"), StateIn(store, "c")

    @client_tool(effect="none")
    async def work() -> str:
        """Work."""
        await other.interrupt("ann")
        return "did it"

    model = ScriptedModel([turn("I work. ", call("work", call_id="c1")), "done"])
    result = call_model(model, "go", tools=[work], state=state)
    assert await result.text() == "I work. "
    ended = await result.state()
    assert (ended.status, ended.interrupted_by) == ("interrupted", "ann")
    assert ended.partial_response is not None
    assert ended.partial_response.text == "I work. "
    assert [one.name for one in ended.partial_response.tool_calls] == ["work"]
    assert len(model.requests) == 1
    assert ended.messages[-1] == function_call_output("c1", "did it")
    again = call_model(model, tools=[work], state=StateIn(store, "c"))
    assert await again.text() == "done"
    assert (await again.state()).interrupted_by == ""


async def test_an_interruption_before_tools_run_answers_the_calls() -> None:
    kept, counter = Kept(), Counter()

    class Interrupts(Lifecycle):
        async def post_model_call(self, called: object) -> None:
            await kept.interrupt("bo")

    model = ScriptedModel([call("work", {"x": "a"}, "c1"), "done"])
    await call_model(model, "go", tools=[counter.tool()], state=kept, hooks=Interrupts()).text()
    assert counter.ran == []
    assert kept.status() == "interrupted"
    assert kept.now.messages[-1] == function_call_output("c1", "Error: not run: interrupted")


# --- accessors -------------------------------------------------------------------------------


async def test_two_runs_of_one_conversation_do_not_overwrite_each_other() -> None:
    store = MemoryTexts()
    one, two = StateIn(store, "c"), StateIn(store, "c")
    await one.load()
    await two.load()
    await one.save(create_initial_state("a"))
    with pytest.raises(StateConflict):
        await two.save(create_initial_state("b"))
    loaded = await two.load()
    assert loaded is not None
    assert loaded.id == "a"
    await two.save(append_to_messages(loaded, [user("b")]))
    with pytest.raises(StateConflict):
        await call_model(ScriptedModel(["x"]), "hi", state=_Stale(one)).text()


class _Stale:
    """An accessor whose load does not look."""

    def __init__(self, inner: StateIn) -> None:
        self._inner = inner

    async def load(self) -> ConversationState | None:
        return None

    async def save(self, state: ConversationState) -> None:
        await self._inner.save(state)


async def test_two_functions_are_an_accessor() -> None:
    files: dict[str, str] = {}

    async def write(text: str) -> None:
        files["c"] = text

    state = StateFunctions(read=lambda: files.get("c"), write=write)
    model = ScriptedModel(["one", "two"])
    await call_model(model, "a", state=state).text()
    await call_model(model, "b", state=state).text()
    assert len(deserialize_conversation_state(files["c"]).messages) == 4


def test_a_run_error_is_what_a_run_of_an_agent_raises_and_not_this() -> None:
    assert not issubclass(StateNotSaved, RunFailed)
