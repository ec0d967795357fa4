"""What a rollback has to undo, in which order, from the record and today's tools alone.

The effect that was recorded when a call was dispatched counts, whatever its tool says today. A
failed call did nothing, for certain; one whose effect is `none` has nothing to be undone.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Literal

import msgspec

from perdure.durable.reconciling import NEVER_RAN
from perdure.durable.sagas.tree import Branch, calls_of, nested_call
from perdure.log import Call, View
from perdure.log.context import item_of
from perdure.log.entries import ItemEntry, LinkEntry, StepEntry
from perdure.log.nested import asked_with, is_nested, nested_tool
from perdure.log.resuming import run_again
from perdure.log.sagas import Done, SagaFold, SagaReport, Undone
from perdure.tools import Tool, arguments_digest
from perdure.tools.tool import compensator_of, is_subsession
from perdure.wire import FunctionCallOutput, Part, decode_item
from perdure.wire.outputs import error_output

Verdict = Literal["skip", "compensate", "forward", "uncompensated", "doubted", "unknown"]
"""`skip`: there is nothing to be undone. `compensate`: its compensator undoes it. `forward`: it is
run again, to learn what it gave. `uncompensated`: its effect stands. `doubted`: nobody will ever
know whether it took effect, and the report says so. `unknown`: nobody knows yet."""

AT_LEAST_ONCE = frozenset({"idempotent", "keyed"})
"""The effects of calls that a crash lets enter their tools again."""

NO_COMPENSATOR = "its tool has no compensator"
NO_TOOL = "its tool is gone"
NO_WORD = "it may have run, and was answered without a word of its tool or on what it did"
NOT_KNOWN_YET = "it may have run, and is run again to learn what it gave"

_MUST_NOT = {"not run again: replay unknown": "it may have run, and must not be run again"}
"""Words of the record that a report says in others."""

KEY = "compensate"
"""What the idempotency key of a compensation ends with, behind that of the call."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Undo:
    """One thing that a rollback comes to: a call, or a call that its tool made."""

    verdict: Verdict
    reason: str = ""
    branch: Branch
    call: Call
    name: str
    """Of its tool."""
    step: str = ""
    tool: Tool | None = None
    arguments: str = ""
    output: str | tuple[Part, ...] = ""
    key: str = ""

    @property
    def done(self) -> Done:
        """What the record calls it."""
        return Done(self.branch.session.id, self.call.entry, self.step)

    def told(self, reason: str = "") -> Undone:
        """It, as a report tells of it."""
        return Undone(
            call_id=self.call.call_id,
            tool=self.name,
            session=self.branch.session.id,
            path=self.branch.path,
            step=self.step,
            reason=reason,
            arguments=self.arguments if self.step else "",
        )


def undos(branch: Branch) -> Iterator[Undo]:
    """Everything that entered a tool, in the order in which it is undone: the last first.

    What a call did comes before what it made others do, as it ended after them.
    """
    linked = _linked(branch)
    for view, call in calls_of(branch):
        below = branch.below.get(call.call_id, [])
        if call.call_id not in linked:
            yield _of_call(branch, view, call)
        for child in reversed(below):
            yield from undos(child)
        yield from _of_steps(branch, view, call)


def _linked(branch: Branch) -> set[str]:
    """The calls of sub-agents, whose work is in sessions of their own."""
    paths = (view.path for view in branch.views)
    return {one.call_id for path in paths for one in path if isinstance(one, LinkEntry)}


def _of_call(branch: Branch, view: View, call: Call) -> Undo:
    tool = branch.tools.get(call.call.name)
    output = _output(branch, view, call)
    verdict, reason = _judge(branch, view, call, known=output is not None)
    return Undo(
        verdict=verdict,
        reason=reason,
        branch=branch,
        call=call,
        name=call.call.name,
        tool=tool,
        arguments=call.dispatched_arguments or "{}",
        output=output.output if output is not None else "",
        key=f"{call.key}/{KEY}",
    )


def _judge(branch: Branch, view: View, call: Call, *, known: bool) -> tuple[Verdict, str]:
    tool = branch.tools.get(call.call.name)
    failure = view.saga.failed.get(call.entry)
    effect = call.last_dispatch.effect if call.last_dispatch is not None else ""
    if call.entry in view.saga.never_ran:
        return "skip", "it never ran"
    if failure is not None and not known and effect in AT_LEAST_ONCE and _was_cut(branch, call):
        return "doubted", "it failed, and a try before that was cut may have taken effect"
    if failure is not None and not known:
        steps = _steps_taken(view, call)
        return ("uncompensated", f"it failed after {steps}") if steps else ("skip", "it failed")
    if effect == "none":
        return "skip", "its effect is none"
    if known and _is_guess(branch, call):
        return "unknown", NO_WORD
    if known:
        return _undone_by(tool)
    if effect == "transactional":
        return "skip", "it did not commit"
    if call.suspended:
        steps = _steps_taken(view, call)
        return ("uncompensated", f"it waits, after {steps}") if steps else ("skip", "it waits")
    return _judge_unknown(view, call, tool)


def _was_cut(branch: Branch, call: Call) -> bool:
    """Whether a try of a call, before its last, ended without an outcome.

    One that ended in a wait did not, nor one of which somebody said that it never ran.
    """
    place = branch.session.place
    tries = [place(one.id) for one in call.dispatches if one.id not in call.voided]
    for one, following in itertools.pairwise(tries):
        between = [d for d in call.decisions if one < place(d.id) < following]
        if not any(d.suspended or d.run_again or d.reason == NEVER_RAN for d in between):
            return True
    return False


def _is_guess(branch: Branch, call: Call) -> bool:
    """Whether a call was answered when it may have run, by what knows nothing of it.

    A hook that answers in place of the tool, and a denial, give their reason as the output; nobody
    who says what came of a call does that.
    """
    last, entry = call.last_dispatch, branch.session.get(call.output) if call.output else None
    told = next((one for one in reversed(call.decisions) if one.verdict == "answer"), None)
    item = item_of(entry.item) if isinstance(entry, ItemEntry) else None
    if last is None or told is None or not isinstance(item, FunctionCallOutput):
        return False
    place = branch.session.place
    if place(told.id) < place(last.id) or last.effect == "transactional":
        return False
    denied = item.output == error_output(told.reason or "denied")
    return denied or (told.by == "policy" and item.output == told.reason)


def _undone_by(tool: Tool | None) -> tuple[Verdict, str]:
    if tool is None:
        return "uncompensated", NO_TOOL
    return ("compensate", "") if compensator_of(tool) else ("uncompensated", NO_COMPENSATOR)


def _judge_unknown(view: View, call: Call, tool: Tool | None) -> tuple[Verdict, str]:
    again = run_again(call, tool)
    if again.output is not None:
        return "unknown", NO_TOOL if tool is None else _MUST_NOT.get(again.reason, again.reason)
    steps = view.work.of(call.entry).steps.items()
    cut = any(is_nested(name) and step.is_open for name, step in steps)
    if (tool is None or compensator_of(tool) is None) and not cut:
        return "uncompensated", f"it may have run, and {NO_COMPENSATOR}"
    held = f"it may have run, and waits to be run again: {call.reason}"
    return "forward", held if call.waits else NOT_KNOWN_YET


def _steps_taken(view: View, call: Call) -> str:
    """The steps of a call that took effect, or may have, and that nothing undoes."""
    steps = view.work.of(call.entry).steps.items()
    taken = [
        repr(name)
        for name, step in steps
        if not is_nested(name) and (step.is_open or _took_effect(step.end))
    ]
    return ", ".join(taken)


def _took_effect(end: StepEntry | None) -> bool:
    return end is not None and not end.error and end.effect != "none"


def _output(branch: Branch, view: View, call: Call) -> FunctionCallOutput | None:
    """What a call gave; None if it failed for certain, or if nobody knows."""
    failure = view.saga.failed.get(call.entry)
    if failure is not None:
        item = item_of(failure.output) if bytes(failure.output) else None
    elif call.output:
        entry = branch.session.get(call.output)
        item = item_of(entry.item) if isinstance(entry, ItemEntry) else None
    else:
        item = item_of(call.landed) if call.landed is not None else None
    return item if isinstance(item, FunctionCallOutput) else None


# --- the calls that tools make -------------------------------------------------------------------


def _of_steps(branch: Branch, view: View, call: Call) -> Iterator[Undo]:
    if call.entry in view.saga.never_ran:
        return
    told = [
        (branch.session.place(last.id), last)
        for name, step in view.work.of(call.entry).steps.items()
        if is_nested(name) and (last := step.end or step.start) and not last.error
    ]
    for _, last in sorted(told, key=lambda one: one[0], reverse=True):
        yield _of_step(branch, view, call, last)


def _of_step(branch: Branch, view: View, call: Call, end: StepEntry) -> Undo:
    name = nested_tool(end.name)
    tool = branch.tools.get(name)
    verdict, reason = _undone_by(tool)
    arguments = end.arguments or _asked(view, call, end)
    if end.phase == "start":
        verdict, reason = "unknown", "it may have run, and what it gave is not known"
    elif end.effect == "none":
        verdict, reason = "skip", ""
    elif tool is not None and is_subsession(tool):
        verdict, reason = "skip", "its agent's work is undone"
    elif verdict == "compensate" and not arguments:
        verdict, reason = "uncompensated", "nobody recorded its arguments"
    return Undo(
        verdict=verdict,
        reason=reason,
        branch=branch,
        call=call,
        name=name,
        step=end.name,
        tool=tool,
        arguments=arguments,
        output=_step_output(end),
        key=f"{call.key}/{end.name}/{KEY}",
    )


def _asked(view: View, call: Call, end: StepEntry) -> str:
    """The arguments of a call that a tool made, where somebody has said what it gave.

    What was decided to be passed stands behind the start of its step. Its name knows what it was
    asked with; where a hook passed something else, that stands before the start of the next call of
    the same tool, and where two stand there, nobody can tell.
    """
    tool, found = nested_tool(end.name), list[str]()
    started = inside = False
    alike = [name for name in view.work.of(call.entry).steps if _calls(tool, name)]
    for entry in view.path:
        if isinstance(entry, StepEntry) and entry.target == call.entry and entry.phase == "start":
            inside = entry.name == end.name if entry.name in alike else inside
            started = started or inside
        told = nested_call(entry) if started else {}
        if told.get("parent") != call.call_id or told.get("name") != tool:
            continue
        arguments = str(told.get("arguments", ""))
        near = inside and not any(asked_with(name, arguments) for name in alike)
        if arguments and (near or asked_with(end.name, arguments)):
            found.append(arguments)
    return found[-1] if len({arguments_digest(one) for one in found}) == 1 else ""


def _calls(tool: str, step: str) -> bool:
    return is_nested(step) and nested_tool(step) == tool


def _step_output(end: StepEntry) -> str | tuple[Part, ...]:
    if end.phase == "start":
        return ""
    given: object = msgspec.json.decode(bytes(end.result))
    if isinstance(given, str):  # somebody said what it gave
        return given
    item = decode_item(bytes(end.result))
    return item.output if isinstance(item, FunctionCallOutput) else ""


# --- the report ----------------------------------------------------------------------------------


def report_of(tree: Branch, saga: SagaFold) -> SagaReport:
    """What a rollback has come to."""
    compensated: list[Undone] = []
    uncompensated: list[Undone] = []
    unknown: list[Undone] = []
    for undo in undos(tree):
        undoing = saga.of(undo.done)
        left = undoing.last is not None and undoing.last.verdict == "left"
        why = _why_left(undoing.last.reason) if left and undoing.last is not None else undo.reason
        if undoing.is_over and not left:
            compensated.append(undo.told())
        elif undo.verdict in ("doubted", "unknown", "forward"):
            unknown.append(undo.told(why))
        elif undo.verdict == "uncompensated" or left:
            uncompensated.append(undo.told(why))
        elif undo.verdict == "compensate":
            uncompensated.append(undo.told(undoing.error or "not undone yet"))
    return SagaReport(
        compensated=tuple(compensated),
        uncompensated=tuple(uncompensated),
        unknown=tuple(unknown),
    )


def _why_left(reason: str) -> str:
    return f"left as it is: {reason}" if reason else "left as it is"
