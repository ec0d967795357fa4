"""The hooks of a manager around an agent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from perdure import Agent, RunFailed, approve, tool
from perdure.compose.hooks import (
    BUILT_IN,
    PERMISSION_REQUEST,
    POST_MODEL_CALL,
    POST_TOOL_USE,
    POST_TOOL_USE_FAILURE,
    PRE_TOOL_USE,
    SESSION_END,
    SESSION_START,
    STOP,
    USER_PROMPT_SUBMIT,
    AsyncWork,
    HookContext,
    HooksManager,
    PermissionRequestResult,
    PreToolUse,
    PreToolUseResult,
    SessionEnd,
    StopResult,
    UserPromptSubmitResult,
)
from perdure.loop import Middleware, RunInfo, ToolCallInfo, ToolDecision, TurnInfo
from perdure.middleware import DoomLoop, Ladder
from perdure.testing import ScriptedModel, call, fail, turn
from perdure.wire import FunctionCallOutput, Item, Message
from tests.compose_hooks.test_chain import Warnings


@tool(effect="none")
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool(effect="none")
async def broken() -> str:
    """Fail."""
    raise ValueError("odd")


class Heard:
    """Listens to all nine hooks."""

    def __init__(self, hooks: HooksManager) -> None:
        self.told: list[tuple[str, Any]] = []
        self.sessions: list[str] = []
        for name in BUILT_IN:
            hooks.on(name, self.hear)

    def hear(self, payload: object, context: HookContext) -> None:
        self.told.append((context.hook, payload))
        self.sessions.append(context.session_id)

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.told]

    def of(self, name: str) -> list[Any]:
        return [payload for told, payload in self.told if told == name]


class Asks(Middleware):
    """Holds every call, and stops drives after some turns."""

    def __init__(self, *, turns: int | None = None, hold: bool = True) -> None:
        self.turns = turns
        self.hold = hold

    async def before_tool_call(self, info: ToolCallInfo) -> ToolDecision | None:
        return ToolDecision(action="hold", reason="ask first") if self.hold else None

    async def should_stop(self, info: TurnInfo) -> bool:
        return self.turns is not None and info.turn >= self.turns


def agent(
    hooks: HooksManager, script: Sequence[Any], policy: Middleware | None = None, **members: Any
) -> Agent:
    return Agent(
        ScriptedModel(script), tools=[add, broken], middleware=[hooks.middleware(policy)], **members
    )


def users(items: Iterable[Item]) -> list[str]:
    return [item.text for item in items if isinstance(item, Message) and item.role == "user"]


def outputs(items: Sequence[Item]) -> list[str]:
    return [item.text for item in items if isinstance(item, FunctionCallOutput)]


ADD = call("add", {"a": 1, "b": 2})


async def test_each_moment_of_a_run_is_told_in_order() -> None:
    hooks = HooksManager(strict=True)
    heard = Heard(hooks)
    script = [turn(ADD, call("broken", {}), call("nobody", {})), "Done."]
    result = await agent(hooks, script).run("Go.")
    assert heard.names == [
        "SessionStart",
        "UserPromptSubmit",
        "PostModelCall",
        "PreToolUse",
        "PreToolUse",
        "PostToolUse",
        "PostToolUseFailure",
        "PostModelCall",
        "SessionEnd",
    ]
    assert heard.sessions == [result.run_id] * 9
    (start,) = heard.of("SessionStart")
    assert start.config == (True, False, False)
    (prompt,) = heard.of("UserPromptSubmit")
    assert prompt.prompt == "Go."
    (used,) = heard.of("PostToolUse")
    assert (used.tool_name, used.tool_input, used.tool_output) == ("add", {"a": 1, "b": 2}, "3")
    assert used.seconds >= 0
    (failed,) = heard.of("PostToolUseFailure")
    assert failed.tool_name == "broken"
    assert "odd" in str(failed.error)


async def test_usage_adds_up() -> None:
    hooks = HooksManager(strict=True)
    heard = Heard(hooks)
    result = await agent(hooks, [turn(ADD), turn(ADD), "Done."]).run("Go.")
    calls = heard.of("PostModelCall")
    (end,) = heard.of("SessionEnd")
    assert [(one.turn_type, one.turn_number) for one in calls] == [
        ("initial", 0),
        ("tool_round", 1),
        ("tool_round", 2),
    ]
    assert sum(one.usage.total_tokens for one in calls) == end.total_usage.usage.total_tokens
    assert end.total_usage.usage == result.usage
    assert (end.total_usage.model_calls, end.reason) == (3, "complete")


async def test_arguments_that_a_hook_changed_reach_the_tool_and_not_the_history() -> None:
    hooks = HooksManager(strict=True)
    hooks.on(PRE_TOOL_USE, lambda p, c: PreToolUseResult(mutated_input={"a": 40, "b": 2}))
    heard = Heard(hooks)
    result = await agent(hooks, [turn(ADD), "Done."]).run("Go.")
    assert outputs(result.items) == ["42"]
    assert result.items[1].arguments == '{"a":1,"b":2}'  # type: ignore[union-attr]
    assert heard.of("PostToolUse")[0].tool_input == {"a": 40, "b": 2}


@pytest.mark.parametrize(
    ("block", "said"), [("not that", "Error: not that"), (True, "Error: blocked by a hook")]
)
async def test_a_blocked_call_does_not_run_and_has_no_post_hook(
    block: str | bool, said: str
) -> None:
    hooks = HooksManager(strict=True)
    hooks.on(PRE_TOOL_USE, lambda p, c: PreToolUseResult(block=block), matcher="add")
    heard = Heard(hooks)
    result = await agent(hooks, [turn(ADD, call("broken", {})), "Done."]).run("Go.")
    assert outputs(result.items)[0] == said
    assert heard.of("PostToolUse") == []
    assert [one.tool_name for one in heard.of("PostToolUseFailure")] == ["broken"]


async def test_calls_that_cannot_be_read_reach_no_hook() -> None:
    hooks = HooksManager(strict=True)
    heard = Heard(hooks)
    result = await agent(hooks, [turn(call("add", '{"a":')), "Done."]).run("Go.")
    assert outputs(result.items)[0].startswith("Error: ")
    assert heard.names == [
        "SessionStart",
        "UserPromptSubmit",
        "PostModelCall",
        "PostModelCall",
        "SessionEnd",
    ]


# --- approval ------------------------------------------------------------------------------


PERMISSIONS: list[tuple[Any, str, list[str]]] = [
    (PermissionRequestResult(decision="allow"), "done", ["3"]),
    (PermissionRequestResult(decision="deny"), "done", ["Error: denied by a hook"]),
    (PermissionRequestResult(decision="deny", reason="no"), "done", ["Error: no"]),
    (PermissionRequestResult(), "input_required", []),
    (None, "input_required", []),
]


@pytest.mark.parametrize(("answer", "status", "said"), PERMISSIONS)
async def test_a_call_that_a_policy_holds_is_put_to_the_hook_once(
    answer: Any, status: str, said: list[str]
) -> None:
    hooks = HooksManager(strict=True)
    hooks.on(PERMISSION_REQUEST, lambda p, c: answer)
    heard = Heard(hooks)
    result = await agent(hooks, [turn(ADD), "Done."], Asks()).run("Go.")
    assert (result.status, outputs(result.items)) == (status, said)
    (asked,) = heard.of("PermissionRequest")
    assert (asked.tool_name, asked.tool_input, asked.risk_level) == (
        "add",
        {"a": 1, "b": 2},
        "high",
    )
    assert len(heard.of("PreToolUse")) == (status == "done" and said == ["3"])
    assert [one.reason for one in heard.of("SessionEnd")] == ["complete"]


async def test_a_call_that_a_person_approved_is_put_to_pre_tool_use() -> None:
    hooks = HooksManager(strict=True)
    heard = Heard(hooks)
    async with agent(hooks, [turn(ADD), "Done."], Asks()).session() as chat:
        held = await chat.send("Go.")
        before = len(heard.told)
        result = await chat.resume(approve(held.pending[0].call.call_id, by="human"))
    assert outputs(result.items) == ["3"]
    assert heard.names[before:] == ["PreToolUse", "PostToolUse", "PostModelCall"]
    assert heard.told[-1][1].turn_type == "resume"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (PreToolUseResult(block="no"), "Error: no"),
        (
            PreToolUseResult(mutated_input={"a": 9, "b": 9}),
            "Error: a hook changed the arguments that a person approved",
        ),
    ],
)
async def test_a_hook_may_block_what_a_person_approved_and_never_changes_it(
    answer: PreToolUseResult, said: str
) -> None:
    hooks = HooksManager(strict=True)
    heard = Heard(hooks)
    async with agent(hooks, [turn(ADD), "Done."], Asks()).session() as chat:
        held = await chat.send("Go.")
        hooks.on(PRE_TOOL_USE, lambda p, c: answer)
        result = await chat.resume(approve(held.pending[0].call.call_id, by="human"))
    assert outputs(result.items) == [said]
    assert heard.of("PostToolUse") == heard.of("PostToolUseFailure") == []


# --- the prompt ------------------------------------------------------------------------------


async def test_a_prompt_that_a_hook_changed_is_what_requests_say() -> None:
    hooks = HooksManager(strict=True)
    hooks.on(
        USER_PROMPT_SUBMIT, lambda p, c: UserPromptSubmitResult(mutated_prompt=f"<{p.prompt}>")
    )
    model = ScriptedModel([turn(ADD), "Done."])
    one = Agent(model, tools=[add], middleware=[hooks.middleware()])
    result = await one.run("Go.")
    said = [text for request in model.requests for text in users(request.input)]
    assert said == ["<Go.>", "<Go.>"]
    assert users(result.items) == ["Go."]


async def test_a_rejected_prompt_asks_no_model() -> None:
    hooks = HooksManager(strict=True)
    hooks.on(USER_PROMPT_SUBMIT, lambda p, c: UserPromptSubmitResult(reject="not here"))
    heard = Heard(hooks)
    model = ScriptedModel(["Done."])
    result = await Agent(model, middleware=[hooks.middleware()]).run("Go.")
    assert (result.status, model.requests) == ("stopped", [])
    assert [one.reason for one in heard.of("SessionEnd")] == ["error"]


# --- the end ---------------------------------------------------------------------------------


async def test_a_stop_may_be_overridden_with_something_to_say() -> None:
    hooks = HooksManager(strict=True)
    answers = iter(
        [StopResult(force_resume=True, append_prompt="One more."), StopResult(append_prompt="x")]
    )
    hooks.on(STOP, lambda p, c: next(answers))
    hooks.on(STOP, lambda p, c: StopResult(append_prompt="Please."))
    heard = Heard(hooks)
    script = [turn(ADD), turn(ADD), "Done."]
    result = await agent(hooks, script, Asks(turns=1, hold=False)).run("Go.")
    assert result.status == "stopped"
    assert users(result.items) == ["Go.", "One more.\nPlease."]
    kinds = [type(item).__name__ for item in result.items]
    assert kinds == [
        "Message",
        "FunctionCall",
        "FunctionCallOutput",
        "Message",
        "FunctionCall",
        "FunctionCallOutput",
    ]
    assert len(heard.of("Stop")) == 2
    assert [one.reason for one in heard.of("SessionEnd")] == ["max_turns"]


async def test_a_stop_without_calls_is_plain_completion() -> None:
    hooks = HooksManager(strict=True)
    heard = Heard(hooks)
    await agent(hooks, ["Done."], Asks(turns=1)).run("Go.")
    assert heard.of("Stop") == []


async def test_a_run_that_fails_has_one_end_and_keeps_its_error() -> None:
    hooks = HooksManager(strict=True)
    heard = Heard(hooks)

    def fails(payload: SessionEnd, context: HookContext) -> None:
        raise ValueError("of the hook")

    hooks.on(SESSION_END, fails)
    with pytest.raises(RunFailed, match="of the model"):
        await agent(hooks, [fail("of the model")]).run("Go.")
    assert heard.names == ["SessionStart", "UserPromptSubmit", "SessionEnd"]
    assert heard.of("SessionEnd")[0].reason == "error"


async def test_a_session_that_did_not_start_does_not_end_and_is_drained() -> None:
    hooks = HooksManager(strict=True)
    done: list[str] = []

    async def work() -> None:
        await asyncio.sleep(0)
        done.append("work")

    def fails(payload: object, context: HookContext) -> None:
        raise ValueError("no start")

    hooks.on(SESSION_START, lambda p, c: AsyncWork(work()))
    hooks.on(SESSION_START, fails)
    hooks.on(SESSION_END, lambda p, c: done.append("end"))
    with pytest.raises(RunFailed, match="no start"):
        await agent(hooks, ["Done."]).run("Go.")
    assert done == ["work"]


class Refuses(Middleware):
    async def before_run(self, info: RunInfo) -> None:
        raise ValueError("refused")


async def test_a_session_that_started_ends_whatever_stops_its_drive_from_beginning() -> None:
    hooks = HooksManager(strict=True)
    heard = Heard(hooks)
    one = Agent(ScriptedModel(["Done."]), middleware=[hooks.middleware(), Refuses()])
    with pytest.raises(RunFailed, match="refused"):
        await one.run("Go.")
    assert heard.names == ["SessionStart", "SessionEnd"]


async def test_a_run_that_repeats_itself_says_so_at_its_end() -> None:
    hooks = HooksManager(strict=True)
    heard = Heard(hooks)
    model = ScriptedModel(lambda at: turn(ADD))
    loop = DoomLoop(Ladder(stop=2))
    await Agent(model, tools=[add], middleware=[hooks.middleware(), loop]).run("Go.")
    assert [one.reason for one in heard.of("SessionEnd")] == ["doom_loop"]


async def test_an_abort_is_the_users() -> None:
    hooks = HooksManager(strict=True)
    heard = Heard(hooks)
    async with agent(hooks, [turn(ADD), "Done."]).session() as chat:
        hooks.on(PRE_TOOL_USE, lambda p, c: chat.abort("enough"))
        result = await chat.send("Go.")
    assert result.status == "aborted"
    assert heard.of("SessionEnd")[0].reason == "user"


async def test_runs_end_when_the_work_of_their_hooks_has() -> None:
    hooks = HooksManager(strict=True)
    done: list[str] = []

    async def work() -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        done.append("work")

    hooks.on(POST_MODEL_CALL, lambda p, c: AsyncWork(work()))
    await agent(hooks, ["Done."]).run("Go.")
    assert done == ["work"]


async def test_one_manager_serves_runs_at_once_each_with_its_own_session() -> None:
    hooks = HooksManager(strict=True)
    heard = Heard(hooks)
    one = agent(hooks, lambda at: turn(ADD) if at < 3 else "Done.")  # type: ignore[arg-type]
    results = await asyncio.gather(*(one.run(f"Go {n}.") for n in range(5)))
    for result in results:
        mine = [
            name
            for (name, _), s in zip(heard.told, heard.sessions, strict=True)
            if s == result.run_id
        ]
        assert mine.count("SessionStart") == mine.count("SessionEnd") == 1
        assert mine.count("PreToolUse") == mine.count("PostToolUse") == 3
        assert mine.count("PostModelCall") == 4


async def test_without_handlers_nothing_is_warned_of_and_nothing_changes() -> None:
    warnings = Warnings()
    hooks = HooksManager(warn=warnings)
    result = await agent(hooks, [turn(ADD), "Done."]).run("Go.")
    assert (result.text, warnings.told) == ("Done.", [])
    for hook in (POST_TOOL_USE, POST_TOOL_USE_FAILURE):
        assert not hooks.has_handlers(hook)
    assert PreToolUse(tool_name="a", tool_input={}) == PreToolUse(tool_name="a", tool_input={})
