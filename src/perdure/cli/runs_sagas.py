"""How `perdure runs show` shows what was undone of a saga, and what was not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from perdure.durable import RunState
from perdure.log.nested import shown_arguments
from perdure.log.sagas import Undone

TITLES = ("compensated", "uncompensated", "unknown")
"""The lists of a report, as it names them."""


class Line(NamedTuple):
    """A call of a report."""

    text: str
    todo: tuple[tuple[str, ...], ...] = ()
    """The commands that settle it, each word by word."""


def report_lines(state: RunState) -> Iterator[tuple[str, list[Line]]]:
    """The lists of a report that have something in them, each with its title."""
    if state.report is None:
        return
    over = state.status in ("rolled_back", "cancelled")
    for title in TITLES:
        found: tuple[Undone, ...] = getattr(state.report, title)
        if found:
            yield (
                title,
                [Line(_words(one), () if over else _todo(state, title, one)) for one in found],
            )


def _words(one: Undone) -> str:
    led = "".join(f"{step} > " for step in one.path)
    step = f" ({one.step})" if one.step else ""
    made = f" {shown_arguments(one.arguments)}" if one.arguments else ""
    why = f": {one.reason}" if one.reason else ""
    return f"{led}{one.call_id} {one.tool}{made}{step}{why}"


def _todo(state: RunState, title: str, one: Undone) -> tuple[tuple[str, ...], ...]:
    """What may be said of a call at which a rollback stops."""
    stops = title == "unknown" and state.status == "halted"
    stops = stops or (title == "uncompensated" and state.status == "failed" and bool(one.reason))
    if not stops or one.reason == "not undone yet":
        return ()
    place = ("--session", one.session) if one.session != state.session else ()
    step = ("--step", one.step) if one.step else ()
    command = ("perdure", "runs", "resolve", state.run_id, one.call_id, *place)
    said = [(*command, *step, "--compensated"), (*command, *step, "--left", "--reason", "WHY")]
    if title == "unknown" and not one.step:
        said = [(*command, "--output", "TEXT"), (*command, "--failed", "WHY"), *said]
    return tuple(said)
