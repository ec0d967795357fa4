"""Chaos of steps and waits: time that passes at once, people who answer, steps that are watched.

A run that waits is told what the test has for it: its signal, its message, its answer. One that
waits for a time, and for which there is nothing, gets the time: the clock of the agent jumps, for
this process and for all that come after it. One for which there is nothing at all stays as it is,
and that is a result like any other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import cast

import msgspec
from msgspec import Struct

from perdure.clock import Clock
from perdure.durable.callwork import recorded_now
from perdure.durable.consuming import working
from perdure.durable.state import read_run
from perdure.durable.steps import step_key
from perdure.errors import ConfigError, RunError
from perdure.log import Reading, Store
from perdure.log.entries import StepEntry
from perdure.log.nested import is_nested
from perdure.log.timeline import wait_words
from perdure.log.work import CHILD, named_waits
from perdure.loop import PendingCall
from perdure.runs import Runs
from perdure.testing.chaos_ledger import EffectLedger, Line
from perdure.testing.chaos_places import path_here, place_of
from perdure.testing.chaos_store import Faults
from perdure.tools import Effect, current_call
from perdure.tools.result import given_json, json_text

BY = "chaos"

_JUMP = 1_000_000
"""Nanoseconds behind a time at which it has come for certain."""


class Answers(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a run that waits is told.

    Attributes:
        signals: The values of signals, by name.
        answers: What questions are answered with, by key.
        messages: The messages of channels, in order.
    """

    signals: Mapping[str, object] = {}
    answers: Mapping[str, object] = {}
    messages: Mapping[str, Sequence[object]] = {}


NO_ANSWERS = Answers()


class ChaosClock:
    """A clock that can jump.

    Args:
        inner: The clock of the agent.
        ahead: Nanoseconds by which it is ahead of it.
    """

    def __init__(self, inner: Clock, ahead: int = 0) -> None:
        self._inner = inner
        self.ahead = ahead

    def wall(self) -> int:
        return self._inner.wall() + self.ahead

    def monotonic(self) -> float:
        return self._inner.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


def clock_of(inner: Clock, lines: Sequence[Line]) -> ChaosClock:
    """The clock of a life: ahead by what those before it have jumped."""
    return ChaosClock(inner, max((line.ahead for line in lines), default=0))


# --- telling -------------------------------------------------------------------------------------


async def tell_waits(
    runs: Runs, run: str, call: PendingCall, answers: Answers, ledger: EffectLedger
) -> bool:
    """Tell a suspended call what there is for its waits; whether anything was new."""
    told = False
    for wait in named_waits(call.wait or {}):
        word = _word(wait.kind, wait.name)
        try:
            new = await _tell(runs, run, call, wait.kind, wait.name, answers)
        except (RunError, ConfigError) as error:  # told before, in an earlier life; or it is wrong
            ledger.write(Line(run=run, phase="refused", tool=word, output=str(error)))
            continue
        if new:
            ledger.write(Line(run=run, phase="given", tool=word))
        told = new or told
    return told


def _word(kind: str, name: str) -> str:
    """What a word of the test's is called."""
    own = name.rpartition("#")[0] if kind == "channel" else name
    return f"{_WORDS.get(kind, kind)} {own!r}"


_WORDS = {"interrupt": "answer", "channel": "messages of"}


def unused(answers: Answers, lines: Sequence[Line]) -> list[str]:
    """The words of a test that its run never took, each with why if it was refused."""
    given = {line.tool for line in lines if line.phase == "given"}
    refused = {line.tool: line.output for line in lines if line.phase == "refused"}
    words = [
        *(_word("signal", name) for name in answers.signals),
        *(_word("interrupt", name) for name in answers.answers),
        *(_word("channel", f"{name}#") for name in answers.messages),
    ]
    return [
        f"{word} was refused: {refused[word]}" if word in refused else f"nothing asked for {word}"
        for word in words
        if word not in given
    ]


def check_answers(answers: Answers) -> None:
    """Refuse messages that are no list.

    Raises:
        ConfigError: They are not.
    """
    for channel, messages in answers.messages.items():
        given = cast("object", messages)
        if not isinstance(given, Sequence) or isinstance(given, str | bytes):
            raise ConfigError(
                f"the messages of channel {channel!r} are a list of what is sent, got {given!r}"
            )


async def _tell(  # noqa: PLR0917 - what a wait is, and where
    runs: Runs, run: str, call: PendingCall, kind: str, name: str, answers: Answers
) -> bool:
    session = call.session
    match kind:
        case "signal" if name in answers.signals:
            await runs.signal(run, name, answers.signals[name], by=BY, session=session)
        case "interrupt" if name in answers.answers:
            value = answers.answers[name]
            await runs.answer(run, call.call.call_id, name, value, by=BY, session=session)
        case "channel" if name.rpartition("#")[0] in answers.messages:
            channel = name.rpartition("#")[0]
            for place, value in enumerate(answers.messages[channel]):
                key = f"{BY}-{place}"
                await runs.send(run, channel, value, key=key, by=BY, session=session)
            return int(name.rpartition("#")[2]) <= len(answers.messages[channel])
        case _:
            return False
    return True


def jump(clock: ChaosClock, due: int | None, ledger: EffectLedger, run: str, life: int) -> bool:
    """Let the time come that a run is due at; whether it is due at any."""
    if due is None:
        return False
    if due <= clock.wall():  # it came by itself, since the run was left
        return True
    ahead = clock.ahead + due + _JUMP - clock.wall()
    ledger.write(Line(run=run, phase="jumped", life=life, ahead=ahead))
    clock.ahead = ahead
    return True


def waits_in_words(pending: Sequence[PendingCall]) -> str:
    """What the calls of a run wait for; empty if they do not."""
    said = [
        wait_words(dict(call.wait))
        for call in pending
        if call.reason == "suspended" and call.wait and call.wait.get("kind") != CHILD
    ]
    return "; ".join(dict.fromkeys(said))


# --- steps ---------------------------------------------------------------------------------------


async def halted_steps(store: Store, call: PendingCall) -> list[str]:
    """The steps of a call, or of a program, whose outcome nobody knows."""
    found = working((await read_run(store, call.session)).view(), call.call.call_id)
    return found.work.halted_steps if found is not None else []


def watching_steps(
    run: str, life: int, ledger: EffectLedger, faults: Faults
) -> Callable[[str, Effect, Callable[[], Awaitable[object]]], Awaitable[object]]:
    """Stands around the work of each step, and writes down what really happens."""

    async def watch(name: str, effect: Effect, work: Callable[[], Awaitable[object]]) -> object:
        if recorded_now() is None or is_nested(name):  # its tool is watched
            return await work()
        call = current_call()
        line = Line(
            run=run,
            phase="entered",
            life=life,
            tool=f"{call.name}: {name}",
            effect=effect,
            call_id=place_of(path_here(), call.id, name),
            key=step_key(),
        )

        async def write(line: Line) -> None:
            ledger.write(line)

        await faults.around(f"enter step {name}", lambda: write(line))
        try:
            value = await work()
            left = msgspec.structs.replace(
                line, phase="left", output=given_json(value, "what it gave")
            )
        except Exception as error:
            raised = msgspec.structs.replace(line, phase="raised", output=str(error))
            await faults.around(f"leave step {name}", lambda: write(raised))
            raise
        await faults.around(f"leave step {name}", lambda: write(left))
        return value

    return watch


def steps_in(reading: Reading, path: Sequence[str]) -> Iterator[tuple[str, str]]:
    """What the record says that steps gave, as JSON, by their places."""
    view = reading.session.view()
    for entry in view.path:
        if not isinstance(entry, StepEntry) or is_nested(entry.name):
            continue
        if entry.phase == "end" and bytes(entry.result):
            value: object = msgspec.json.decode(bytes(entry.result))
            yield place_of(path, entry.call_id, entry.name), json_text(value)


def waiting_in(reading: Reading, path: Sequence[str]) -> Iterator[str]:
    """The calls that the record leaves waiting, by their places."""
    for call in reading.session.view().calls.open.values():
        if call.suspended:
            yield place_of(path, call.call_id)
