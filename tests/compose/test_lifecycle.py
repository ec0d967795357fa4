"""The moments of a run that hooks are told of: each once, in order, whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

import pytest

from perdure import call_model
from perdure.compose import (
    EndReason,
    Lifecycle,
    ModelCalled,
    ModelResult,
    PromptVerdict,
    RunSignal,
    SessionConfig,
    ToolVerdict,
    UsageTotals,
    step_count_is,
)
from perdure.errors import PromptRefused, ServerFailed, Truncated
from perdure.loop import Retry
from perdure.testing import ScriptedModel, attempts, call, error, fail, turn
from perdure.wire import user
from tests.compose.helpers import Counter, Kept, Whole


class Heard(Lifecycle):
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.ends: list[tuple[EndReason, UsageTotals]] = []
        self.calls: list[ModelCalled] = []
        self.sessions: set[str] = set()
        self.prompt: PromptVerdict = PromptVerdict()
        self.config: SessionConfig | None = None
        self.drained = 0

    async def session_start(self, session_id: str, config: SessionConfig) -> None:
        self.told.append("start")
        self.config = config
        self.sessions.add(session_id)

    async def user_prompt(self, session_id: str, prompt: str) -> PromptVerdict:
        self.told.append(f"prompt {prompt}")
        return self.prompt

    async def pre_tool_use(
        self, session_id: str, tool: str, arguments: Mapping[str, object]
    ) -> ToolVerdict:
        self.told.append(f"pre {tool}")
        self.sessions.add(session_id)
        return ToolVerdict()

    async def post_tool_use(self, session_id: str, tool: str, *rest: object) -> None:
        self.told.append(f"post {tool}")

    async def post_model_call(self, called: ModelCalled) -> None:
        self.told.append(f"model {called.turn_type} {called.turn_number}")
        self.calls.append(called)
        self.sessions.add(called.session_id)

    async def session_end(self, session_id: str, reason: EndReason, totals: UsageTotals) -> None:
        self.told.append(f"end {reason}")
        self.ends.append((reason, totals))

    async def drain(self) -> None:
        self.drained += 1


def script() -> ScriptedModel:
    return ScriptedModel([call("work", {"x": "a"}), "done"])


async def test_the_moments_of_a_run_in_order() -> None:
    heard, kept = Heard(), Kept()
    result = call_model(script(), "go", tools=[Counter().tool()], hooks=heard, state=kept)
    await result.text()
    assert heard.told == [
        "start",
        "prompt go",
        "model initial 0",
        "pre work",
        "post work",
        "model tool_round 1",
        "end complete",
    ]
    assert heard.config == SessionConfig(has_tools=True, has_approval=False, has_state=True)
    assert heard.sessions == {kept.now.id}
    assert heard.drained == 1


async def test_a_session_has_an_id_without_a_state_too() -> None:
    heard = Heard()
    await call_model(script(), "go", tools=[Counter().tool()], hooks=heard).text()
    (session,) = heard.sessions
    assert session.startswith("conv_")


@pytest.mark.parametrize("whole", [False, True])
async def test_what_responses_used_adds_up(whole: bool) -> None:
    heard = Heard()
    model = Whole(script()) if whole else script()
    result = call_model(model, "go", tools=[Counter().tool()], hooks=heard)
    await result.text()
    ((_, totals),) = heard.ends
    assert totals == await result.usage()
    assert totals.model_calls == len(heard.calls) == 2
    assert totals.usage.total_tokens == sum(
        one.usage.total_tokens for one in heard.calls if one.usage
    )
    assert [one.response_id for one in heard.calls] == ["resp_t0", "resp_t1"]


async def test_an_approval_ends_a_session_and_decisions_open_none_but_are_drained() -> None:
    heard, kept = Heard(), Kept()
    tools = [Counter().tool(require_approval=True)]
    model = ScriptedModel([call("work", {"x": "a"}, "c1"), "done"])
    await call_model(model, "go", tools=tools, hooks=heard, state=kept).text()
    assert heard.told[-1] == "end complete"
    assert heard.config == SessionConfig(has_tools=True, has_approval=True, has_state=True)
    heard.told.clear()
    await call_model(model, tools=tools, hooks=heard, state=kept, approve=["c1"]).text()
    assert heard.told == ["pre work", "post work", "model resume 0"]
    assert heard.drained == 2


async def test_a_stop_ends_a_session_as_one_even_after_a_fine_answer() -> None:
    heard = Heard()
    model = ScriptedModel([call("work", {"x": "a"}), call("work", {"x": "b"}), "fine"])
    await call_model(
        model, "go", tools=[Counter().tool()], hooks=heard, stop_when=step_count_is(1)
    ).text()
    assert heard.told[-2:] == ["model final 2", "end max_turns"]


async def test_an_answer_asked_for_again_is_a_retry() -> None:
    heard = Heard()
    model = ScriptedModel([call("work", {"x": "a"}), attempts(turn(), "at last")])
    await call_model(model, "go", tools=[Counter().tool()], hooks=heard).text()
    assert [one.turn_type for one in heard.calls] == ["initial", "tool_round", "retry"]


ACCESSORS = ("text", "response", "state", "tool_calls", "pending_tool_calls", "requires_approval")
BROKEN = (fail("no"), turn("half", error(Truncated())))


async def read(result: ModelResult) -> list[str]:
    return [piece async for piece in result.text_stream()]


@pytest.mark.parametrize("accessor", [*ACCESSORS, "stream"])
@pytest.mark.parametrize("broken", BROKEN)
async def test_a_failure_ends_a_session_once_whoever_asks(accessor: str, broken: object) -> None:
    heard = Heard()
    model = ScriptedModel([broken])  # type: ignore[list-item]
    result = call_model(model, "go", hooks=heard, retry=Retry())
    ask = partial(read, result) if accessor == "stream" else getattr(result, accessor)
    for _ in range(2):
        with pytest.raises((ServerFailed, Truncated)):
            await ask()
    assert heard.told == ["start", "prompt go", "end error"]
    assert heard.drained == 1


async def test_what_a_handler_raises_at_the_end_does_not_hide_the_failure() -> None:
    class Fails(Heard):
        async def session_end(self, *args: object) -> None:
            raise RuntimeError("cannot close")

    heard = Fails()
    with pytest.raises(ServerFailed) as failed:
        await call_model(ScriptedModel([fail("no")]), "go", hooks=heard, retry=Retry()).text()
    assert any("cannot close" in note for note in failed.value.__notes__)
    assert heard.drained == 1


async def test_what_a_handler_raises_at_the_end_of_a_good_run_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Fails(Heard):
        async def session_end(self, *args: object) -> None:
            raise RuntimeError("cannot close")

    heard = Fails()
    assert await call_model(ScriptedModel(["fine"]), "go", hooks=heard).text() == "fine"
    assert "a hook failed at the end" in caplog.text
    assert heard.drained == 1


async def test_a_prompt_may_be_changed_or_refused() -> None:
    heard = Heard()
    heard.prompt = PromptVerdict(text="better")
    model = ScriptedModel(["done"])
    await call_model(model, "go", hooks=heard).text()
    assert model.requests[0].input[-1] == user("better")
    heard.prompt = PromptVerdict(rejected="not that")
    with pytest.raises(PromptRefused, match="not that"):
        await call_model(ScriptedModel([]), "go", hooks=heard).text()
    assert heard.told[-1] == "end error"


async def test_the_last_thing_the_user_says_is_the_prompt_if_it_is_a_text() -> None:
    from perdure.wire import assistant, input_image

    heard = Heard()
    history = [user("one"), assistant("two"), user("three")]
    model = ScriptedModel(["done"], after=1)
    await call_model(model, history, hooks=heard).text()
    assert "prompt three" in heard.told
    heard.told.clear()
    await call_model(
        ScriptedModel(["x"]), user([input_image("https://x/y.png")]), hooks=heard
    ).text()
    assert not [one for one in heard.told if one.startswith("prompt")]


async def test_a_cancelled_run_ends_its_session_as_the_users() -> None:
    heard, signal = Heard(), RunSignal()

    class Stops(Heard):
        async def post_model_call(self, called: ModelCalled) -> None:
            signal.set("enough")

    heard = Stops()
    result = call_model(script(), "go", tools=[Counter().tool()], hooks=heard, signal=signal)
    await result.wait()
    assert heard.told[-1] == "end user"


async def test_runs_at_once_with_one_set_of_hooks_keep_their_sessions_apart() -> None:
    class BySession(Lifecycle):
        def __init__(self) -> None:
            self.told: dict[str, list[str]] = {}

        async def session_start(self, session_id: str, config: SessionConfig) -> None:
            self.told.setdefault(session_id, []).append("start")
            await asyncio.sleep(0)

        async def post_model_call(self, called: ModelCalled) -> None:
            self.told[called.session_id].append(called.turn_type)
            await asyncio.sleep(0)

        async def session_end(self, session_id: str, *rest: object) -> None:
            self.told[session_id].append("end")

    heard = BySession()
    results = [call_model(script(), "go", tools=[Counter().tool()], hooks=heard) for _ in range(3)]
    await asyncio.gather(*(one.text() for one in results))
    assert list(heard.told.values()) == [["start", "initial", "tool_round", "end"]] * 3
