"""The chain of a hook: who is asked, what is piped, what ends it, what failures do."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from perdure.compose.hooks import (
    BUILT_IN,
    PERMISSION_REQUEST,
    POST_MODEL_CALL,
    PRE_TOOL_USE,
    SESSION_START,
    STOP,
    USER_PROMPT_SUBMIT,
    HookContext,
    HookEntry,
    HooksManager,
    PermissionRequestResult,
    PreToolUse,
    PreToolUseResult,
    StopResult,
    UserPromptSubmit,
    UserPromptSubmitResult,
    hook,
    is_built_in_hook,
    matches_tool,
    resolve_hooks,
)
from perdure.compose.hooks.chain import Matcher
from perdure.errors import ConfigError


class Warnings:
    """What was warned of."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def __call__(self, text: str) -> None:
        self.told.append(text)


def manager(*, strict: bool = False) -> tuple[HooksManager, Warnings]:
    warnings = Warnings()
    return HooksManager(strict=strict, warn=warnings), warnings


BASH = PreToolUse(tool_name="bash", tool_input={"command": "ls"})


# --- matchers and filters ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("matcher", "name", "matches"),
    [
        (None, "bash", True),
        ("bash", "bash", True),
        ("bash", "bash2", False),
        (re.compile("as"), "bash", True),
        (re.compile("^as"), "bash", False),
        (lambda name: name == "bash", "bash", True),
        (lambda name: 0, "bash", False),
        (lambda name: "yes", "bash", True),
    ],
)
def test_a_matcher_is_a_name_a_pattern_or_a_function(
    matcher: Matcher | None, name: str, matches: bool
) -> None:
    assert matches_tool(matcher, name) is matches
    assert matches_tool(matcher, name) is matches  # also when it is asked again


async def test_only_handlers_that_match_and_pass_the_filter_are_called() -> None:
    hooks, _ = manager()
    called: list[str] = []

    def note(name: str) -> Any:
        return lambda payload, context: called.append(name)

    hooks.on(PRE_TOOL_USE, note("all"))
    hooks.on(PRE_TOOL_USE, note("bash"), matcher="bash")
    hooks.on(PRE_TOOL_USE, note("other"), matcher="other")
    hooks.on(PRE_TOOL_USE, note("ls"), filter=lambda p: p.tool_input["command"] == "ls")
    hooks.on(PRE_TOOL_USE, note("rm"), filter=lambda p: p.tool_input["command"] == "rm")
    await hooks.emit(PRE_TOOL_USE, BASH, tool_name="bash")
    assert called == ["all", "bash", "ls"]


async def test_an_entry_with_a_matcher_is_skipped_where_no_tool_is_named() -> None:
    hooks, _ = manager()
    called: list[str] = []
    hooks.on(PRE_TOOL_USE, lambda p, c: called.append("matched"), matcher=lambda name: True)
    hooks.on(PRE_TOOL_USE, lambda p, c: called.append("plain"))
    await hooks.emit(PRE_TOOL_USE, BASH)
    assert called == ["plain"]


async def test_a_filter_is_not_asked_where_the_matcher_fails() -> None:
    hooks, warnings = manager(strict=True)

    def never(payload: PreToolUse) -> bool:
        raise AssertionError

    hooks.on(PRE_TOOL_USE, lambda p, c: None, matcher="other", filter=never)
    await hooks.emit(PRE_TOOL_USE, BASH, tool_name="bash")
    assert warnings.told == []


@pytest.mark.parametrize("where", ["matcher", "filter", "handler"])
async def test_what_raises_is_skipped_alone(where: str) -> None:
    hooks, warnings = manager()

    def fails(*args: object) -> Any:
        raise ValueError("odd")

    broken: HookEntry[PreToolUse, PreToolUseResult] = HookEntry(
        fails if where == "handler" else lambda p, c: PreToolUseResult(block=True),
        matcher=fails if where == "matcher" else None,
        filter=fails if where == "filter" else None,
    )
    hooks.add(PRE_TOOL_USE, broken)
    hooks.on(PRE_TOOL_USE, lambda p, c: PreToolUseResult(mutated_input={"command": "pwd"}))
    emitted = await hooks.emit(PRE_TOOL_USE, BASH, tool_name="bash")
    assert emitted.payload.tool_input == {"command": "pwd"}
    assert not emitted.blocked
    assert warnings.told == ["a handler of 'PreToolUse': ValueError('odd'); skipped"]


@pytest.mark.parametrize("where", ["matcher", "filter", "handler"])
async def test_a_strict_manager_raises_what_was_raised(where: str) -> None:
    hooks, _ = manager(strict=True)

    def fails(*args: object) -> Any:
        raise ValueError("odd")

    entry: HookEntry[PreToolUse, PreToolUseResult] = HookEntry(
        fails if where == "handler" else lambda p, c: None,
        matcher=fails if where == "matcher" else None,
        filter=fails if where == "filter" else None,
    )
    hooks.add(PRE_TOOL_USE, entry)
    with pytest.raises(ValueError, match="odd"):
        await hooks.emit(PRE_TOOL_USE, BASH, tool_name="bash")


# --- piping and blocking --------------------------------------------------------------------


async def test_what_a_handler_changes_the_next_one_sees() -> None:
    hooks, _ = manager()
    seen: list[dict[str, object]] = []

    async def change(payload: PreToolUse, context: HookContext) -> PreToolUseResult:
        seen.append(payload.tool_input)
        return PreToolUseResult(mutated_input={**payload.tool_input, "n": len(seen)})

    hooks.on(PRE_TOOL_USE, change)
    hooks.on(PRE_TOOL_USE, lambda p, c: PreToolUseResult(mutated_input=None))
    hooks.on(PRE_TOOL_USE, change)
    emitted = await hooks.emit(PRE_TOOL_USE, BASH, tool_name="bash")
    assert seen == [{"command": "ls"}, {"command": "ls", "n": 1}]
    assert emitted.payload.tool_input == {"command": "ls", "n": 2}
    assert emitted.mutated
    assert len(emitted.results) == 3


async def test_what_a_handler_changes_in_place_is_its_own_affair() -> None:
    hooks, _ = manager()
    given: dict[str, object] = {"command": "ls"}

    def spoil(payload: PreToolUse, context: HookContext) -> None:
        payload.tool_input["command"] = "rm"

    hooks.on(PRE_TOOL_USE, spoil)
    emitted = await hooks.emit(PRE_TOOL_USE, PreToolUse(tool_name="bash", tool_input=given))
    assert (given, emitted.payload.tool_input, emitted.mutated) == (
        {"command": "ls"},
        {"command": "ls"},
        False,
    )


BLOCKS: list[tuple[bool | str, bool, str]] = [
    (True, True, ""),
    ("too dangerous", True, "too dangerous"),
    (False, False, ""),
    ("", False, ""),
]


@pytest.mark.parametrize(("block", "blocked", "reason"), BLOCKS)
async def test_true_or_a_text_blocks_and_ends_the_chain(
    block: bool | str, blocked: bool, reason: str
) -> None:
    hooks, _ = manager()
    later: list[str] = []
    hooks.on(
        PRE_TOOL_USE,
        lambda p, c: PreToolUseResult(block=block, mutated_input={"command": "pwd"}),
    )
    hooks.on(PRE_TOOL_USE, lambda p, c: later.append("called"))
    emitted = await hooks.emit(PRE_TOOL_USE, BASH)
    assert (emitted.blocked, emitted.reason) == (blocked, reason)
    assert emitted.payload.tool_input == {"command": "pwd"}  # its own change lands all the same
    assert later == ([] if blocked else ["called"])


async def test_a_prompt_is_changed_and_rejected_likewise() -> None:
    hooks, _ = manager()
    hooks.on(USER_PROMPT_SUBMIT, lambda p, c: UserPromptSubmitResult(mutated_prompt=p.prompt + "!"))
    hooks.on(USER_PROMPT_SUBMIT, lambda p, c: UserPromptSubmitResult(mutated_prompt=""))
    hooks.on(USER_PROMPT_SUBMIT, lambda p, c: UserPromptSubmitResult(reject="not here"))
    emitted = await hooks.emit(USER_PROMPT_SUBMIT, UserPromptSubmit(prompt="hi"))
    assert (emitted.payload.prompt, emitted.blocked, emitted.reason) == ("", True, "not here")


async def test_other_hooks_neither_pipe_nor_block() -> None:
    hooks, _ = manager()
    hooks.on(STOP, lambda p, c: StopResult(force_resume=True))
    hooks.on(STOP, lambda p, c: StopResult(append_prompt="more"))
    emitted = await hooks.emit(STOP, {"reason": "max_turns"})
    assert (len(emitted.results), emitted.blocked, emitted.mutated) == (2, False, False)


@given(
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.integers(0, 9)), st.sampled_from([False, True, "", "no"])
        ),
        max_size=6,
    )
)
async def test_a_chain_is_a_fold_that_ends_at_the_first_block(
    answers: list[tuple[int | None, bool | str]],
) -> None:
    hooks, _ = manager()
    for value, block in answers:
        changed: dict[str, object] | None = None if value is None else {"n": value}
        result = PreToolUseResult(mutated_input=changed, block=block)
        hooks.on(PRE_TOOL_USE, lambda p, c, result=result: result)  # type: ignore[misc]
    emitted = await hooks.emit(PRE_TOOL_USE, PreToolUse(tool_name="t", tool_input={"n": -1}))
    ended = next((i for i, (_, block) in enumerate(answers) if block), None)
    heard = answers if ended is None else answers[: ended + 1]
    values = [value for value, _ in heard if value is not None]
    assert emitted.payload.tool_input == {"n": values[-1] if values else -1}
    assert emitted.mutated == bool(values)
    assert emitted.blocked == (ended is not None)
    assert len(emitted.results) == len(heard)


# --- values -----------------------------------------------------------------------------------


async def test_results_may_be_given_as_members() -> None:
    hooks, warnings = manager()
    hooks.on(PRE_TOOL_USE, lambda p, c: {"block": "no"})  # type: ignore[arg-type, return-value]
    emitted = await hooks.emit(PRE_TOOL_USE, {"tool_name": "t", "tool_input": {}})
    assert emitted.results == (PreToolUseResult(block="no"),)
    assert warnings.told == []


@pytest.mark.parametrize("answer", [{"blok": True}, {"block": 3}, "no", 7])
async def test_a_result_that_does_not_fit_is_skipped(answer: Any) -> None:
    hooks, warnings = manager()
    hooks.on(PRE_TOOL_USE, lambda p, c: answer)
    emitted = await hooks.emit(PRE_TOOL_USE, BASH)
    assert (emitted.results, emitted.blocked, len(warnings.told)) == ((), False, 1)
    strict, _ = manager(strict=True)
    strict.on(PRE_TOOL_USE, lambda p, c: answer)
    with pytest.raises(ConfigError, match="PreToolUse"):
        await strict.emit(PRE_TOOL_USE, BASH)


async def test_a_payload_that_does_not_fit_reaches_nobody() -> None:
    hooks, warnings = manager()
    called: list[object] = []
    hooks.on(PRE_TOOL_USE, lambda p, c: called.append(p))
    emitted = await hooks.emit(PRE_TOOL_USE, {"tool_name": 3})
    assert (called, emitted.blocked, len(warnings.told)) == ([], False, 1)
    strict, _ = manager(strict=True)
    with pytest.raises(ConfigError, match="payload"):
        await strict.emit(PRE_TOOL_USE, {"tool_name": 3})


async def test_a_hook_without_results_takes_whatever_is_returned() -> None:
    hooks, warnings = manager(strict=True)
    for answer in (None, 3, {"x": 1}, object()):
        hooks.on(SESSION_START, lambda p, c, answer=answer: answer)  # type: ignore[misc]
    emitted = await hooks.emit(SESSION_START, {"config": [True, False, False]})
    assert (emitted.results, warnings.told) == ((), [])


class Note(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    level: int = 1


class Vote(msgspec.Struct, frozen=True, kw_only=True):
    yes: bool
    block: bool = False


NOTE = hook("acme:note", Note)
VOTE = hook("acme:vote", Note, Vote)


async def test_a_hook_of_ones_own_has_types_and_defaults_and_never_blocks() -> None:
    hooks, _ = manager()
    seen: list[Note] = []
    hooks.on(NOTE, lambda note, c: seen.append(note))
    hooks.on(VOTE, lambda note, c: Vote(yes=True, block=True))
    hooks.on("acme:vote", lambda note, c: Vote(yes=False))
    await hooks.emit(NOTE, {"text": "a"})
    emitted = await hooks.emit(VOTE, Note(text="b"))
    assert seen == [Note(text="a", level=1)]
    assert [vote.yes for vote in emitted.results] == [True, False]


async def test_a_plain_dict_is_copied_for_each_handler() -> None:
    hooks, _ = manager()
    bag = hook("acme:bag", dict)
    seen: list[dict[str, object]] = []

    def spoil(payload: dict[str, object], context: HookContext) -> None:
        seen.append(dict(payload))
        payload.clear()

    hooks.on(bag, spoil)
    hooks.on(bag, spoil)
    await hooks.emit(bag, {"a": 1})
    assert seen == [{"a": 1}, {"a": 1}]


@pytest.mark.parametrize("name", ["", *BUILT_IN])
def test_a_hook_of_ones_own_needs_a_name_of_its_own(name: str) -> None:
    with pytest.raises(ConfigError):
        hook(name, Note)


def test_names_that_nobody_knows_and_two_hooks_of_one_name_are_refused() -> None:
    hooks, _ = manager()
    with pytest.raises(ConfigError, match="no hook is named"):
        hooks.on("acme:note", lambda p, c: None)
    hooks.on(NOTE, lambda p, c: None)
    with pytest.raises(ConfigError, match="another hook"):
        hooks.on(hook("acme:note", Vote), lambda p, c: None)
    assert len(BUILT_IN) == 9
    assert is_built_in_hook("PreToolUse")
    assert not is_built_in_hook("acme:note")


# --- registering --------------------------------------------------------------------------------


async def test_handlers_are_removed_by_their_function_by_themselves_or_all() -> None:
    hooks, _ = manager()
    called: list[str] = []

    def first(payload: PreToolUse, context: HookContext) -> None:
        called.append("first")

    remove = hooks.on(PRE_TOOL_USE, first)
    hooks.on(PRE_TOOL_USE, lambda p, c: called.append("second"))
    assert hooks.has_handlers(PRE_TOOL_USE)
    assert not hooks.has_handlers(STOP)
    remove()
    remove()
    assert not hooks.off(PRE_TOOL_USE, first)
    hooks.on(PRE_TOOL_USE, first)
    assert hooks.off("PreToolUse", first)
    await hooks.emit(PRE_TOOL_USE, BASH)
    assert called == ["second"]
    hooks.on(STOP, lambda p, c: None)
    hooks.remove_all(PRE_TOOL_USE)
    assert not hooks.has_handlers(PRE_TOOL_USE)
    assert hooks.has_handlers(STOP)
    hooks.remove_all()
    assert not hooks.has_handlers(STOP)


async def test_a_handler_that_is_added_while_the_chain_runs_is_not_in_it() -> None:
    hooks, _ = manager()
    called: list[str] = []

    def adds(payload: PreToolUse, context: HookContext) -> None:
        called.append("adds")
        hooks.on(PRE_TOOL_USE, lambda p, c: called.append("added"))

    hooks.on(PRE_TOOL_USE, adds)
    await hooks.emit(PRE_TOOL_USE, BASH)
    assert called == ["adds"]
    await hooks.emit(PRE_TOOL_USE, BASH)
    assert called == ["adds", "adds", "added"]


async def test_each_emit_has_its_own_session() -> None:
    hooks, _ = manager()
    seen: list[str] = []
    hooks.on(STOP, lambda p, c: seen.append(c.session_id))
    await hooks.emit(STOP, {})
    assert seen[0].startswith("session_")
    await hooks.emit(STOP, {}, session_id="a")
    hooks.set_session_id("b")
    await hooks.emit(STOP, {})
    await hooks.emit(STOP, {}, session_id="")
    assert seen[1:] == ["a", "b", ""]


async def test_inline_hooks_become_a_manager() -> None:
    called: list[str] = []

    def note(name: str) -> Any:
        return lambda payload, context: called.append(name)

    hooks = resolve_hooks(
        {
            "PreToolUse": [note("one"), HookEntry(note("two"), matcher="other")],
            "Stop": note("stop"),
        }
    )
    assert hooks is not None
    await hooks.emit(PRE_TOOL_USE, BASH, tool_name="bash")
    await hooks.emit(STOP, {})
    assert called == ["one", "stop"]
    assert resolve_hooks(hooks) is hooks
    assert resolve_hooks(None) is None
    assert resolve_hooks({}) is None


@pytest.mark.parametrize("inline", [{"PreTolUse": print}, {"Stop": 3}, {"Stop": [print, "x"]}])
def test_inline_hooks_that_would_never_run_are_refused(inline: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        resolve_hooks(inline)


async def test_the_last_permission_stands() -> None:
    hooks, _ = manager()
    hooks.on(PERMISSION_REQUEST, lambda p, c: PermissionRequestResult(decision="allow"))
    hooks.on(PERMISSION_REQUEST, lambda p, c: PermissionRequestResult(decision="deny", reason="no"))
    hooks.on(PERMISSION_REQUEST, lambda p, c: None)
    verdict = await hooks.permission_request("s", "bash", {}, "high")
    assert verdict == ("deny", "no")
    assert POST_MODEL_CALL.name == "PostModelCall"
