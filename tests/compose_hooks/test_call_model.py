"""A manager as the hooks of `call_model`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from perdure.compose import ClientTool, MemoryState, call_model, client_tool, step_count_is
from perdure.compose.hooks import (
    PERMISSION_REQUEST,
    POST_MODEL_CALL,
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
    StopResult,
    UserPromptSubmitResult,
    resolve_hooks,
)
from perdure.testing import ScriptedModel, call, fail, turn
from perdure.wire import FunctionCallOutput
from tests.compose_hooks.test_middleware import Heard, users


class Adds:
    """A tool that notes how often it ran."""

    def __init__(self) -> None:
        self.ran: list[tuple[int, int]] = []

    def tool(self, **options: Any) -> ClientTool:
        @client_tool(name="add", effect="none", **options)
        async def add(a: int, b: int) -> int:
            """Add."""
            self.ran.append((a, b))
            return a + b

        return add


ADD = call("add", {"a": 1, "b": 2})


def outputs(model: ScriptedModel) -> list[str]:
    return [one.text for one in model.requests[-1].input if isinstance(one, FunctionCallOutput)]


async def test_each_moment_is_told_once_with_one_session() -> None:
    hooks = HooksManager(strict=True)
    heard = Heard(hooks)
    adds = Adds()
    model = ScriptedModel([turn(ADD), "Done."])
    assert await call_model(model, "Go.", tools=[adds.tool()], hooks=hooks).text() == "Done."
    assert heard.names == [
        "SessionStart",
        "UserPromptSubmit",
        "PostModelCall",
        "PreToolUse",
        "PostToolUse",
        "PostModelCall",
        "SessionEnd",
    ]
    assert len(set(heard.sessions)) == 1
    assert heard.sessions[0]
    assert heard.of("PostModelCall")[0].session_id == heard.sessions[0]
    assert adds.ran == [(1, 2)]


async def test_hooks_given_inline_work_alike() -> None:
    adds = Adds()
    inline = {"PreToolUse": lambda p, c: PreToolUseResult(mutated_input={"a": 40, "b": 2})}
    model = ScriptedModel([turn(ADD), "Done."])
    await call_model(model, "Go.", tools=[adds.tool()], hooks=resolve_hooks(inline)).text()
    assert (adds.ran, outputs(model)) == ([(40, 2)], ["42"])


async def test_prompts_are_changed_and_rejected() -> None:
    hooks = HooksManager(strict=True)
    hooks.on(USER_PROMPT_SUBMIT, lambda p, c: UserPromptSubmitResult(mutated_prompt=p.prompt + "!"))
    model = ScriptedModel(["Done."])
    await call_model(model, "Go", hooks=hooks).text()
    assert users(model.requests[0].input) == ["Go!"]
    hooks.on(USER_PROMPT_SUBMIT, lambda p, c: UserPromptSubmitResult(reject="not here"))
    model = ScriptedModel(["Done."])
    with pytest.raises(Exception, match="not here"):
        await call_model(model, "Go", hooks=hooks).text()
    assert model.requests == []


@pytest.mark.parametrize(
    ("decision", "ran", "said"),
    [("allow", 1, "3"), ("deny", 0, "Error: no"), ("ask_user", 0, None)],
)
async def test_a_permission_runs_a_call_once_or_never(
    decision: Any, ran: int, said: str | None
) -> None:
    hooks = HooksManager(strict=True)
    hooks.on(
        PERMISSION_REQUEST, lambda p, c: PermissionRequestResult(decision=decision, reason="no")
    )
    adds, model = Adds(), ScriptedModel([turn(ADD), "Done."])
    tools, kept = [adds.tool(require_approval=True)], MemoryState()
    await call_model(model, "Go.", tools=tools, hooks=hooks, state=kept).text()
    assert len(adds.ran) == ran
    assert outputs(model) == ([] if said is None else [said])


async def test_a_run_that_goes_on_with_a_decision_has_no_session_of_its_own_and_is_drained() -> (
    None
):
    hooks = HooksManager(strict=True)
    done: list[str] = []

    async def work() -> None:
        for _ in range(10):
            await asyncio.sleep(0)
        done.append("work")

    adds, kept = Adds(), MemoryState()
    model = ScriptedModel([turn(ADD), "Done."])
    tools = [adds.tool(require_approval=True)]
    held = call_model(model, "Go.", tools=tools, hooks=hooks, state=kept)
    (pending,) = await held.pending_tool_calls()
    heard = Heard(hooks)
    hooks.on(POST_MODEL_CALL, lambda p, c: AsyncWork(work()))
    again = call_model(model, tools=tools, hooks=hooks, state=kept, approve=[pending.id])
    assert await again.text() == "Done."
    assert heard.names == ["PreToolUse", "PostToolUse", "PostModelCall"]
    assert heard.of("PostModelCall")[0].turn_type == "resume"
    assert (adds.ran, done) == ([(1, 2)], ["work"])


async def test_a_stop_may_be_overridden() -> None:
    hooks = HooksManager(strict=True)
    answers = iter([StopResult(force_resume=True, append_prompt="More."), None])
    hooks.on(STOP, lambda p, c: next(answers))
    heard = Heard(hooks)
    adds, model = Adds(), ScriptedModel([turn(ADD), turn(ADD), turn(ADD), "Done."])
    run = call_model(model, "Go.", tools=[adds.tool()], stop_when=step_count_is(1), hooks=hooks)
    assert await run.text() == "Done."
    said = [users(request.input) for request in model.requests]
    assert said[:3] == [["Go."], ["Go."], ["Go.", "More."]]
    assert isinstance(model.requests[2].input[-2], FunctionCallOutput)  # it joins behind them
    assert len(heard.of("Stop")) == 2
    assert heard.of("SessionEnd")[0].reason == "max_turns"


@pytest.mark.parametrize(
    "accessor", ["text", "response", "state", "pending_tool_calls", "tool_calls"]
)
async def test_a_run_that_fails_ends_its_session_once_from_every_accessor(accessor: str) -> None:
    hooks = HooksManager(strict=True)
    heard = Heard(hooks)
    model = ScriptedModel([fail("broken")])
    run = call_model(model, "Go.", hooks=hooks, state=MemoryState())
    for _ in range(2):
        with pytest.raises(Exception, match="broken"):
            await getattr(run, accessor)()
    assert heard.names == ["SessionStart", "UserPromptSubmit", "SessionEnd"]
    assert heard.of("SessionEnd")[0].reason == "error"


async def test_the_failure_of_an_end_hook_does_not_hide_that_of_the_run() -> None:
    hooks = HooksManager(strict=True)

    def fails(payload: object, context: HookContext) -> None:
        raise ValueError("of the hook")

    hooks.on(SESSION_END, fails)
    with pytest.raises(Exception, match="of the model"):
        await call_model(ScriptedModel([fail("of the model")]), "Go.", hooks=hooks).text()


async def test_a_manager_that_is_shared_tells_each_handler_its_own_session() -> None:
    hooks = HooksManager(strict=True)
    heard = Heard(hooks)
    adds = Adds()

    async def one(at: int) -> None:
        model = ScriptedModel([turn(call("add", {"a": at, "b": 0})), "Done."])
        await call_model(model, f"Go {at}.", tools=[adds.tool()], hooks=hooks).text()

    await asyncio.gather(*(one(at) for at in range(4)))
    by_session: dict[str, set[int]] = {}
    for (name, payload), session in zip(heard.told, heard.sessions, strict=True):
        if name == "PreToolUse":
            by_session.setdefault(session, set()).add(payload.tool_input["a"])
    assert sorted(map(sorted, by_session.values())) == [[0], [1], [2], [3]]


steps = st.lists(
    st.lists(
        st.tuples(st.sampled_from(["add", "nobody"]), st.sampled_from([1, 2, "x"])),
        min_size=1,
        max_size=3,
    ),
    max_size=3,
)
rules = st.dictionaries(
    st.sampled_from([1, 2]), st.sampled_from(["block", "change", "raise"]), max_size=2
)


@settings(max_examples=25)
@given(steps, rules, st.booleans())
async def test_sessions_pair_usages_add_up_and_calls_run_at_most_once(
    script: list[list[tuple[str, Any]]], rule: dict[int, str], fails_at_end: bool
) -> None:
    hooks = HooksManager(warn=lambda text: None)
    heard = Heard(hooks)

    def judge(payload: PreToolUse, context: HookContext) -> PreToolUseResult | None:
        match rule.get(payload.tool_input["a"]):  # type: ignore[call-overload]
            case "block":
                return PreToolUseResult(block=True)
            case "change":
                return PreToolUseResult(mutated_input={"a": 9, "b": 9})
            case "raise":
                raise ValueError("odd")
            case _:
                return None

    hooks.on(PRE_TOOL_USE, judge, matcher="add")
    turns: list[Any] = [
        turn(*[call(name, {"a": a, "b": 0}) for name, a in calls]) for calls in script
    ]
    last = fail("broken") if fails_at_end else "Done."
    adds = Adds()
    run = call_model(
        ScriptedModel([*turns, last]),
        "Go.",
        tools=[adds.tool()],
        hooks=hooks,
        max_rounds=None,
        state=MemoryState(),
    )
    failed = False
    try:
        await run.text()
    except Exception:  # noqa: BLE001 - only that it failed is asked
        failed = True
    assert heard.names.count("SessionStart") == heard.names.count("SessionEnd") == 1
    assert (heard.of("SessionEnd")[0].reason == "error") == failed
    totals = heard.of("SessionEnd")[0].total_usage
    calls = heard.of("PostModelCall")
    assert totals.model_calls == len(calls)
    assert totals.usage.total_tokens == sum(one.usage.total_tokens for one in calls)
    posts = heard.of("PostToolUse")
    assert len(adds.ran) == len(posts)
    blocked = [one for one in heard.of("PreToolUse") if rule.get(one.tool_input["a"]) == "block"]
    assert len(adds.ran) <= len(heard.of("PreToolUse")) - len(blocked)
    assert all(a != 1 for a, _ in adds.ran) or rule.get(1) not in {"block", "change"}
    assert SESSION_START.name == "SessionStart"
