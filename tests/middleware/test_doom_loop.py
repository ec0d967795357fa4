"""What repeats itself is noticed, told, blocked and stopped; what does not is left alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from perdure import Agent, tool, user
from perdure.errors import LoopDetected, NotIJson
from perdure.loop import Middleware, ToolCallInfo, ToolDecision
from perdure.middleware import DoomLoop, Escalation, Ladder
from perdure.middleware.doom_detector import (
    ACTIONS,
    Action,
    CallPrint,
    LoopState,
    after_round,
    after_text,
    repeats_at_end,
    streak_of,
)
from perdure.middleware.doom_fingerprint import LoopKey, call_fingerprint, fingerprint
from perdure.middleware.doom_loop import BLOCKED, SEALED, STEER, Detection
from perdure.testing import ScriptedModel, call, item, turn
from perdure.wire import FunctionCallOutput, Item, Message, canonical_json, decode_item

# --- fingerprints --------------------------------------------------------------------------


def vectors(shared: Path) -> Any:
    path = shared / "fixtures/openrouter-agent/doom-loop-fingerprints.json"
    return json.loads(path.read_bytes())


def test_fingerprints_are_those_of_other_ports(shared: Path) -> None:
    found = vectors(shared)
    for one in found["toolCallVectors"]:
        assert fingerprint(one["keyMaterial"], one["toolName"]) == one["fingerprint"], one["name"]
    for one in found["keyMaterialVectors"]:
        assert fingerprint(one["keyMaterial"]) == one["fingerprint"], one["name"]
    assert (len(found["toolCallVectors"]), len(found["keyMaterialVectors"])) == (10, 2)
    assert len(found["rejected"]) == len(REJECTED)


def nested(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


def circular() -> object:
    value: list[object] = []
    value.append(value)
    return value


REJECTED = [2**53 + 1, float("nan"), circular(), nested(65)]


@pytest.mark.parametrize(
    "value", [*REJECTED, float("inf"), 10**400, {1: 2}, {"a": object()}, b"x"], ids=repr
)
def test_what_canonical_json_cannot_write_has_no_fingerprint(value: object) -> None:
    with pytest.raises(NotIJson):
        fingerprint(value)


json_values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**53), 2**53),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(json_values)
def test_a_fingerprint_is_over_canonical_json(value: Any) -> None:
    import hashlib

    raw = canonical_json(value)
    assert fingerprint(value) == hashlib.sha256(raw).hexdigest()
    assert fingerprint(value, "t") == hashlib.sha256(b"t\n" + raw).hexdigest()
    assert fingerprint(nested(64)) == fingerprint(nested(64))


KEYS: list[tuple[LoopKey | None, str, object]] = [
    (None, '{"b": 1, "a": 2}', {"a": 2, "b": 1}),
    (None, "", {}),
    (None, "{}", {}),
    (None, '{"n": 123456789012345678901}', {"n": 123456789012345680000.0}),
    (None, '{"a":', '{"a":'),
    (None, "[1]", "[1]"),
    (None, '{"a": NaN}', '{"a": NaN}'),
    (("a", "z"), '{"a": 1, "b": 2}', {"a": 1}),
    (lambda given: [given["a"]], '{"a": 1, "b": 2}', [1]),
    (lambda given: "same", '{"a": 1}', "same"),
]


@pytest.mark.parametrize(("key", "arguments", "material"), KEYS)
def test_what_stands_for_a_call(key: LoopKey | None, arguments: str, material: object) -> None:
    warned: list[str] = []
    assert call_fingerprint("t", arguments, key, warned.append) == fingerprint(material, "t")
    assert warned == []


@pytest.mark.parametrize("key", [False, lambda given: None])
def test_a_call_may_be_exempt(key: LoopKey) -> None:
    assert call_fingerprint("t", '{"a": 1}', key, lambda text: None) is None


@pytest.mark.parametrize(
    "key", [lambda given: given["nothing"], lambda given: object(), lambda given: circular()]
)
def test_a_key_that_cannot_be_used_is_a_warning_and_the_arguments_count(
    key: Callable[[Mapping[str, object]], object],
) -> None:
    warned: list[str] = []
    assert call_fingerprint("t", '{"a": 1}', key, warned.append) == fingerprint({"a": 1}, "t")
    assert len(warned) == 1


# --- streaks ---------------------------------------------------------------------------------

rounds = st.lists(
    st.lists(
        st.builds(CallPrint, st.sampled_from(["read", "write"]), st.sampled_from("abc")), max_size=4
    ),
    max_size=12,
)


def naive_streak(history: Sequence[Sequence[CallPrint]], what: CallPrint) -> int:
    """How many rounds of its tool in a row, from the end, have the call."""
    of_tool = [[one for one in calls if one.tool == what.tool] for calls in history]
    streak = 0
    for calls in reversed([calls for calls in of_tool if calls]):
        if what not in calls:
            break
        streak += 1
    return streak


@given(rounds)
def test_a_streak_is_of_rounds_in_a_row_of_the_calls_own_tool(
    history: list[list[CallPrint]],
) -> None:
    state = LoopState()
    for at, calls in enumerate(history, 1):
        state = after_round(state, calls)
        for one in calls:
            assert streak_of(state, one) == naive_streak(history[:at], one)
    other = CallPrint("nobody", "x")
    assert streak_of(state, other) == 0


@given(rounds, st.randoms(use_true_random=False))
def test_neither_order_nor_duplicates_nor_empty_rounds_count(
    history: list[list[CallPrint]], random: Any
) -> None:
    state = shuffled = LoopState()
    for calls in history:
        state = after_round(state, calls)
        more = [*calls, *calls]
        random.shuffle(more)
        shuffled = after_round(after_round(shuffled, more), [])
    assert shuffled == state


@given(st.lists(st.sampled_from(["", "  ", "a b", "a  b", " a\nb ", "c"]), max_size=10))
def test_equal_texts_in_a_row_count_and_empty_ones_do_not(texts: list[str]) -> None:
    state = LoopState()
    for text in texts:
        state = after_text(state, text)
    said = [" ".join(text.split()) for text in texts if text.strip()]
    streak = 0
    for text in reversed(said):
        if text != said[-1]:
            break
        streak += 1
    assert state.text.same == streak


@pytest.mark.parametrize(
    ("text", "repeats"),
    [
        ("", 0),
        ("a " * 11, 0),
        ("a " * 12, 12),
        ("start " + "a b c " * 4, 4),
        ("a b c " * 3, 0),
        ("a b c " * 4 + "end", 0),
        (" ".join(map(str, range(16))) + " " + " ".join(map(str, range(16))), 0),
        ((" ".join(map(str, range(16))) + " ") * 4, 4),
        ((" ".join(map(str, range(17))) + " ") * 4, 0),
        ("x y " * 1000, 200),
    ],
)
def test_a_text_ends_in_a_loop_of_words(text: str, repeats: int) -> None:
    assert repeats_at_end(text) == repeats


LADDERS: list[tuple[Ladder, list[Action | None]]] = [
    (Ladder(), [None, "observe", "block", "block", "block", "stop", "stop"]),
    (Ladder(observe=None, block=None, stop=2), [None, "stop"]),
    (Ladder(steer=2, escalate=3, block=4), [None, "steer", "escalate", "block", "block", "stop"]),
    (Ladder(observe=3, block=3, stop=3), [None, None, "stop"]),
]


@pytest.mark.parametrize(("ladder", "actions"), LADDERS)
def test_the_strongest_action_that_is_due_is_taken(
    ladder: Ladder, actions: list[Action | None]
) -> None:
    assert [ladder.action(streak) for streak in range(1, len(actions) + 1)] == actions
    assert ladder.action(5, without=ACTIONS) is None


# --- runs --------------------------------------------------------------------------------------


ran: list[str] = []


@tool(effect="none")
async def read(path: str) -> str:
    """Read a file."""
    ran.append(path)
    return "nothing new"


@tool(effect="none")
async def advise() -> str:
    """Give advice."""
    return "try the other door"


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()


READ = call("read", {"path": "a"})


def runs(script: Any, loop: DoomLoop, *others: Middleware, **members: Any) -> Agent:
    return Agent(ScriptedModel(script), tools=[read, advise], middleware=[loop, *others], **members)


def outputs(items: Sequence[Item]) -> list[str]:
    return [one.text for one in items if isinstance(one, FunctionCallOutput)]


async def test_a_repeated_call_is_observed_blocked_and_stopped() -> None:
    heard: list[Detection] = []
    loop = DoomLoop(on_detected=heard.append)
    agent = runs(lambda at: turn(READ), loop)
    result = await agent.run("Go.")
    assert (result.status, result.turns, ran) == ("stopped", 6, ["a", "a"])
    assert [(one.kind, one.name, one.streak, one.action) for one in heard] == [
        ("call", "read", 2, "observe"),
        ("call", "read", 3, "block"),
        ("call", "read", 4, "block"),
        ("call", "read", 5, "block"),
        ("call", "read", 6, "stop"),
    ]
    said = outputs(result.items)
    assert said[2] == "Error: " + BLOCKED.format(count=3)
    assert said[5] == f"Error: {SEALED}"
    assert result.pending == ()


async def test_what_stopped_a_run_is_known_to_its_host() -> None:
    ends: list[BaseException | None] = []

    class Ends(Middleware):
        async def on_end(self, end: Any) -> None:
            ends.append(end.error)

    agent = runs(lambda at: turn(READ), DoomLoop(Ladder(stop=2)), Ends())
    await agent.run("Go.")
    (error,) = ends
    assert isinstance(error, LoopDetected)
    assert (error.kind, error.name, error.streak) == ("call", "read", 2)
    assert str(error) == "the run repeats itself: a call of 'read', 2 times in a row"


async def test_every_call_of_the_round_that_stops_is_sealed() -> None:
    script = [turn(READ), turn(call("read", {"path": "b"}), READ), "never"]
    result = await runs(script, DoomLoop(Ladder(stop=2))).run("Go.")
    assert (result.status, ran) == ("stopped", ["a"])
    assert outputs(result.items)[1:] == [f"Error: {SEALED}"] * 2


async def test_calls_of_other_tools_and_parallel_duplicates_change_nothing() -> None:
    script = [
        turn(READ, READ, call("read", {"path": "a"}, call_id="other")),
        turn(call("advise", {})),
        turn(READ),
        turn(call("advise", {}), READ),
        "Done.",
    ]
    heard: list[tuple[str, int]] = []
    loop = DoomLoop(on_detected=lambda found: heard.append((found.name, found.streak)))
    result = await runs(script, loop).run("Go.")
    assert result.status == "done"
    assert heard == [("read", 2), ("advise", 2), ("read", 3)]


async def test_calls_whose_arguments_cannot_be_read_count() -> None:
    result = await runs(
        lambda at: turn(call("read", '{"path":')),
        DoomLoop(Ladder(stop=3)),
    ).run("Go.")
    assert (result.status, result.turns) == ("stopped", 3)


async def test_an_exempt_tool_and_a_changing_one_go_on() -> None:
    script: list[Any] = [turn(READ) for _ in range(8)]
    loop = DoomLoop(keys={"read": False})
    assert (await runs([*script, "Done."], loop).run("Go.")).status == "done"
    changing = [turn(call("read", {"path": str(at)})) for at in range(8)]
    assert (await runs([*changing, "Done."], DoomLoop()).run("Go.")).status == "done"


async def test_the_model_is_told_once_of_each_thing() -> None:
    script = [*[turn(READ) for _ in range(4)], "Done."]
    result = await runs(script, DoomLoop(Ladder(steer=2, block=None))).run("Go.")
    told = [one.text for one in result.items if isinstance(one, Message)]
    assert told == ["Go.", STEER.format(count=2, what="a call of read"), "Done."]
    roles = [one.role for one in result.items if isinstance(one, Message)]
    assert roles == ["user", "developer", "assistant"]


async def test_a_turn_is_given_another_model_or_a_tool_to_call_and_only_so_often() -> None:
    model = ScriptedModel([*[turn(READ) for _ in range(5)], "Done."])
    ladder = Ladder(escalate=2, block=None)
    loop = DoomLoop(ladder, escalation=Escalation(model="big", tool="advise", budget=2))
    agent = Agent(model, model_name="small", tools=[read, advise], middleware=[loop])
    await agent.run("Go.")
    asked = [(one.settings.model, bool(one.settings.tool_choice)) for one in model.requests]
    assert asked == [
        ("small", False),
        ("small", False),
        ("big", True),
        ("big", True),
        ("small", False),
        ("small", False),
    ]


async def test_a_callback_chooses_and_its_failure_is_a_warning() -> None:
    warned: list[str] = []

    async def chooses(found: Detection) -> Action | None:
        if found.streak == 2:
            return "stop"
        raise AssertionError

    result = await runs(lambda at: turn(READ), DoomLoop(on_detected=chooses)).run("Go.")
    assert (result.status, result.turns) == ("stopped", 2)

    def fails(found: Detection) -> Action | None:
        raise ValueError("odd")

    loop = DoomLoop(Ladder(stop=3), on_detected=fails, warn=warned.append)
    result = await runs(lambda at: turn(READ), loop).run("Go.")
    assert (result.status, result.turns) == ("stopped", 3)
    assert warned == ["on_detected failed: ValueError('odd')"] * 2


async def test_a_text_that_comes_again_and_one_that_loops_stop_a_run() -> None:
    def says(words: str) -> Any:
        return lambda at: turn(words, call("read", {"path": str(at)}))

    heard: list[tuple[str, int, str]] = []
    ladder = Ladder(observe=None, block=2, stop=3)

    def note(found: Detection) -> None:
        heard.append((found.kind, found.streak, found.action))

    result = await runs(says("Let me look."), DoomLoop(ladder, on_detected=note)).run("Go.")
    assert (result.status, result.turns, heard) == ("stopped", 3, [("text", 3, "stop")])
    assert ran == ["0", "1", "2"]

    def loops(at: int) -> Any:
        return turn(f"{at} " + "and on " * 8, call("read", {"path": str(at)}))

    heard.clear()
    result = await runs(loops, DoomLoop(ladder, on_detected=note)).run("Go.")
    assert (result.status, heard) == ("stopped", [("words", 3, "stop")])


async def test_what_a_provider_runs_counts_by_what_it_asks_for() -> None:
    def search(at: int) -> Any:
        raw = {
            "type": "web_search_call",
            "id": f"ws{at}",
            "status": "completed",
            "action": {"type": "search", "query": "q"},
        }
        return turn(item(decode_item(json.dumps(raw))), call("read", {"path": str(at)}))

    heard: list[tuple[str, str, int, str]] = []

    def note(found: Detection) -> None:
        heard.append((found.kind, found.name, found.streak, found.action))

    result = await runs(search, DoomLoop(Ladder(stop=4), on_detected=note)).run("Go.")
    assert (result.status, result.turns) == ("stopped", 4)
    assert heard == [
        ("server_call", "web_search_call", 2, "observe"),
        ("server_call", "web_search_call", 3, "observe"),
        ("server_call", "web_search_call", 4, "stop"),
    ]


async def test_the_answer_of_a_run_is_never_stopped() -> None:
    result = await runs(["and on " * 12], DoomLoop(Ladder(stop=1))).run("Go.")
    assert result.status == "done"


# --- conversations ------------------------------------------------------------------------------


class Holds(Middleware):
    async def before_tool_call(self, info: ToolCallInfo) -> ToolDecision | None:
        return ToolDecision(action="hold", reason="ask")


async def test_a_new_word_of_the_users_clears_everything() -> None:
    agent = runs(lambda at: turn(READ) if at % 3 else "Yes?", DoomLoop(Ladder(stop=3)))
    async with agent.session() as chat:
        for _ in range(4):
            assert (await chat.send("Go.")).status == "done"


async def test_a_run_that_goes_on_goes_on_counting() -> None:
    from perdure import approve

    agent = runs(lambda at: turn(READ), DoomLoop(Ladder(block=None, stop=4)), Holds())
    async with agent.session() as chat:
        result = await chat.send("Go.")
        for _ in range(2):
            assert result.status == "input_required"
            result = await chat.resume(approve(result.pending[0].call.call_id, by="human"))
        result = await chat.resume(approve(result.pending[0].call.call_id, by="human"))
    assert (result.status, ran) == ("stopped", ["a", "a", "a"])


async def test_what_the_model_was_told_of_it_is_not_told_again_after_a_pause() -> None:
    from perdure import approve

    agent = runs(
        lambda at: turn(READ) if at < 4 else "Done.", DoomLoop(Ladder(steer=2, block=None)), Holds()
    )
    async with agent.session() as chat:
        result = await chat.send("Go.")
        while result.status == "input_required":
            result = await chat.resume(approve(result.pending[0].call.call_id, by="human"))
        said = [one for one in chat.state.transcript if isinstance(one, Message)]
    assert [one.role for one in said] == ["user", "developer", "assistant"]


@given(st.lists(st.text(max_size=8), max_size=4), st.sampled_from([None, ("a",), len, False]))
def test_no_arguments_fail_to_be_counted(arguments: list[str], key: Any) -> None:
    state = LoopState()
    for one in [*arguments, "\ud800", '{"a": 1e999}', '{"a": ' + "[" * 5000]:
        found = call_fingerprint("t", one, key, lambda text: None)
        state = after_round(state, [CallPrint("t", found)] if found else [])
        state = after_text(state, one)
    assert state.text.same >= 0


async def test_what_was_stopped_stays_stopped_until_the_user_speaks() -> None:
    agent = runs(lambda at: turn(READ), DoomLoop(Ladder(stop=2)))
    async with agent.session() as chat:
        assert (await chat.send("Go.")).turns == 2
        again = await chat.continue_()
        assert (again.status, again.turns) == ("stopped", 0)
        assert (await chat.send("Go on.")).turns == 2
    history = (await agent.run("Go.")).items
    async with agent.session(transcript=[*history, user("Again.")]) as chat:
        assert (await chat.continue_()).turns == 2


async def test_a_steered_run_is_cleared_by_what_the_user_says_meanwhile() -> None:
    agent = runs(lambda at: turn(READ) if at < 4 else "Done.", DoomLoop(Ladder(stop=3)))
    async with agent.session() as chat:

        async def steers(event: Any) -> None:
            if event.type == "turn_end" and event.turn == 2:
                chat.steer("Keep going.")

        chat.subscribe(steers)
        result = await chat.send("Go.")
    assert result.status == "done"
