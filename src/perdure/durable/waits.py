"""Waits: they unwind the tool and free the process, and outlive it.

The call is entered again when what it waits for has come, and finds its steps and its waits
answered. That is for runs by id; elsewhere a sleep waits in place, and nothing else can be waited
for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Generator
from contextvars import ContextVar
from typing import NoReturn, TypeVar

import msgspec
from msgspec import Raw

from perdure.clock import Clock, SystemClock
from perdure.durable.callwork import Recorded, check_between_steps, recorded_now
from perdure.durable.given import check_instant, check_name, check_text, nanoseconds
from perdure.durable.messages import Reply, Sent, Signal, Told, decode_told
from perdure.durable.replies import AnswerType, Unfit
from perdure.errors import ConfigError, Suspend
from perdure.log.entries import Json, WaitEntry
from perdure.log.work import CHILD, RACE, Wait
from perdure.loop import LoopPort
from perdure.tools import Effect, current_call

T = TypeVar("T")

WAITING: frozenset[Effect] = frozenset({"none", "idempotent", "keyed"})
"""The effects of tools that may wait: their calls are entered more than once (LOG 5.4)."""


async def sleep(name: str, seconds: float) -> None:
    """Wait for some time; the process may die meanwhile.

    The time counts from when the call first came here.

    Args:
        name: Unique among the sleeps of the call.
        seconds: How long.

    Raises:
        ConfigError: The name or the time cannot be used, or the effect of the tool forbids a wait.
    """
    check_name(name, "sleep")
    span = nanoseconds(seconds, f"the time of sleep {name!r}")
    await _sleep(name, ("for", span), lambda clock: clock.wall() + span)


async def sleep_until(name: str, wall: int) -> None:
    """Wait until a time, in nanoseconds since the Unix epoch. Raises as `sleep`."""
    check_name(name, "sleep")
    check_instant(name, wall)
    await _sleep(name, ("until", wall), lambda _: wall)


async def _sleep(name: str, terms: object, due: Callable[[Clock], int]) -> None:
    recorded = waiting_now(name, "sleep")
    if recorded is None:
        port = current_call().port
        here = port.clock if isinstance(port, LoopPort) else SystemClock()
        await here.sleep((due(here) - here.wall()) / 1e9)
        return
    clock = recorded.recording.clock
    with asking(recorded, "sleep", name, terms):
        wait = await begun(recorded, "sleep", name, due=due(clock))
        if wait.end is None:
            if (wait.begin.due or 0) > clock.wall():
                await not_yet(recorded, wait, f"it sleeps: {name}")
            await ended(recorded, wait, "due")


async def wait_for(
    name: str,
    *,
    timeout: float | None = None,  # noqa: ASYNC109 - how long it may take over restarts
) -> object:
    """Wait for a signal of the run; one that came before counts.

    Args:
        name: The signal, as `Runs.signal` gives it.
        timeout: Seconds from when the call first came here; None to wait for ever.

    Returns:
        What came with the signal, as plain JSON values.

    Raises:
        TimeoutError: The time was up first. That stands, also if the signal comes later.
        ConfigError: The name cannot be used, the effect of the tool forbids a wait, or nothing is
            recorded here.
    """
    check_name(name, "signal")
    what = f"the timeout of signal {name!r}"
    span = None if timeout is None else nanoseconds(timeout, what)
    recorded = must_be_recorded(waiting_now(name, "signal"), "a signal")
    with asking(recorded, "signal", name, span):
        end = await _signalled(recorded, name, span)
    if end is None or end.outcome == "timeout":
        raise TimeoutError(f"the signal {name!r} did not come in time")
    return msgspec.json.decode(bytes(end.value))


async def _signalled(recorded: Recorded, name: str, span: int | None) -> WaitEntry | None:
    """How the wait for a signal ended."""
    clock = recorded.recording.clock
    due = None if span is None else clock.wall() + span
    wait = await begun(recorded, "signal", name, due=due)
    if wait.end is None:
        signal = recorded.recording.view.work.signals.get(name)
        if signal is not None:
            await ended(recorded, wait, "signal", signal.value)
        elif wait.begin.due is None or wait.begin.due > clock.wall():
            await not_yet(recorded, wait, f"it waits for the signal {name!r}")
        elif await told(recorded, [("signal", name)]):
            await not_yet(recorded, wait, f"the signal {name!r} is in the inbox")
        else:
            await ended(recorded, wait, "timeout")
    return recorded.work.waits["signal", name].end


async def interrupt(key: str, prompt: str, type: type[T]) -> T:  # noqa: A002 - the natural word
    """Ask a person, and wait for the answer, however long it takes.

    An answer that is not of the type is refused when it is given, by the JSON Schema of the type.
    What no schema says, as what a class checks when it is made, is found here: such an answer is
    not taken, and the question is asked again.

    Args:
        key: Unique among the questions of the call.
        prompt: What is asked; it is shown with the call that waits.
        type: What the answer has to be: any type that a parameter of a tool may have.

    Raises:
        ConfigError: The key or the type cannot be used, the effect of the tool forbids a wait, or
            nothing is recorded here.
    """
    check_name(key, "question")
    check_text(prompt, f"the prompt of question {key!r}")
    asked = AnswerType(type, key)
    recorded = must_be_recorded(waiting_now(key, "interrupt"), "a question")
    with asking(recorded, "interrupt", key, (prompt, type)):
        wait = await begun(recorded, "interrupt", key, prompt=prompt, schema=asked.schema)
        if wait.end is not None:
            try:
                return asked.read(bytes(wait.end.value).decode())
            except Unfit as error:
                again: Json = {"prompt": prompt, "schema": asked.schema, "refused": str(error)}
                wait = await _begin(recorded, "interrupt", key, again)
        return await not_yet(recorded, wait, f"it asks: {prompt}")


def waiting_now(name: str, kind: str) -> Recorded | None:
    """The work of the call that is about to wait; None where nobody would wake it.

    That is everywhere but in a run by id, and below one.

    Raises:
        ConfigError: The name cannot be used, the effect of the tool forbids a wait, or a step runs.
    """
    word = "question" if kind == "interrupt" else kind
    check_name(name, word)
    check_between_steps(f"the {word} {name!r}")
    call = current_call()
    if call.effect not in WAITING:
        raise ConfigError(
            f"tool {call.name!r} has the effect {call.effect!r} and cannot wait: declare none, "
            "idempotent or keyed, and put what it does to the world into steps"
        )
    recorded = recorded_now()
    return recorded if recorded is not None and recorded.recording.halts else None


def must_be_recorded(recorded: Recorded | None, what: str) -> Recorded:
    """Refuse a wait that nobody could end.

    Raises:
        ConfigError: Nothing is recorded.
    """
    if recorded is None:
        raise ConfigError(f"nobody could answer {what} here: give the run an id, and a store")
    return recorded


@contextlib.contextmanager
def asking(recorded: Recorded, kind: str, name: str, terms: object) -> Generator[None]:
    """While a wait is asked for. One that has not come stays so, and is what the call waits for.

    Raises:
        ConfigError: It is asked for already, with other terms.
    """
    recorded.ask(kind, name, terms)
    try:
        yield
    except (Suspend, NotYet):
        raise
    except BaseException:
        recorded.release(kind, name)
        raise
    else:
        recorded.release(kind, name)


async def begun(recorded: Recorded, kind: str, name: str, **members: object) -> Wait:
    """The wait of a name, as it began first; one that has lost a race begins again.

    Args:
        recorded: The work that waits.
        kind: The kind of the wait.
        name: Its name.
        members: What its beginning says.
    """
    known = recorded.work.waits.get((kind, name))
    if known is None or known.lost:
        return await _begin(recorded, kind, name, members)
    return known


async def _begin(recorded: Recorded, kind: str, name: str, members: Json) -> Wait:
    body: Json = {"phase": "begin", "kind": kind, "name": name, **members}
    body["race"] = racing.get() or None
    await recorded.write("perdure:wait", body)
    return recorded.work.waits[kind, name]


async def ended(recorded: Recorded, wait: Wait, outcome: str, value: Raw | None = None) -> None:
    """Write that a wait is over; that stands."""
    begin = wait.begin
    body: Json = {"phase": "end", "kind": begin.kind, "name": begin.name, "outcome": outcome}
    await recorded.write("perdure:wait", {**body, "value": value})


async def told(recorded: Recorded, waits: Collection[tuple[str, str]]) -> bool:
    """Whether the inbox has what one of some waits is for: it came before their time was up.

    The driver takes it up when the tool is left, and the tool finds it when it is entered again.
    """
    recording = recorded.recording
    with recorded.at_work():
        messages = await recording.store.unconsumed(recording.session.id)
    return any(_is_for(recorded, decode_told(one), waits) for one in messages)


def _is_for(recorded: Recorded, said: Told | None, waits: Collection[tuple[str, str]]) -> bool:
    match said:
        case Signal():
            return ("signal", said.name) in waits
        case Sent():
            channels = {name.rpartition("#")[0] for kind, name in waits if kind == "channel"}
            return said.channel in channels
        case Reply():
            begins = (recorded.work.waits[one].begin.id for one in waits)
            return said.begin in begins
        case _:
            return False


class NotYet(BaseException):
    """A wait of a race has not come. It never leaves the race."""

    def __init__(self, kind: str, name: str) -> None:
        self.kind = kind
        self.name = name
        super().__init__(f"the {kind} {name!r} has not come")


racing: ContextVar[str] = ContextVar("perdure_racing", default="")
"""The race that asks, if one does: a wait that has not come then says so, and leaves no tool."""


async def not_yet(recorded: Recorded, wait: Wait, why: str) -> NoReturn:
    """A wait has not come.

    Raises:
        NotYet: A race asked.
        Suspend: Nothing else did.
    """
    if racing.get():
        raise NotYet(wait.begin.kind, wait.begin.name)
    await suspend(recorded, why, [(wait.begin.kind, wait.begin.name)])


async def suspend(
    recorded: Recorded, why: str, waits: Collection[tuple[str, str]] = ()
) -> NoReturn:
    """Unwind the tool. What it waits for is all that is asked for, a question first.

    Args:
        recorded: The work that waits.
        why: What is said of it.
        waits: The kinds and the names of the waits that have not come.

    Raises:
        Suspend: Unless another raises.
        ConfigError: One of the waits was asked for twice at once.
    """
    await recorded.settle()
    for wait in waits:
        if wait in recorded.clashes:
            raise ConfigError(recorded.clashes[wait])
    recorded.call.suspend()
    shown = _shown(recorded)
    due = shown.get("due")
    raise Suspend(why, wait=shown, due=due if isinstance(due, int) else None)


def _shown(recorded: Recorded) -> Json:
    """What a suspension says: all that is asked for.

    What an earlier entry waited for and this one did not ask for wakes nobody, and neither does
    what was cut. What has ended meanwhile is among it: it was not delivered, so the call is entered
    again for it at once.
    """
    begins = [
        wait.begin
        for key, wait in recorded.work.waits.items()
        if recorded.asking[key] > 0 and wait.begin.kind != RACE
    ]
    begins.sort(key=lambda begin: begin.kind != "interrupt")
    waits = [*(_named(recorded, begin) for begin in begins), *_invoked(recorded)]
    shown: Json = {**waits[0], "waits": waits}
    first = begins[0] if begins else None
    statuses = {str(wait.get("status", "")) for wait in waits}
    if first is not None and first.kind == "interrupt":
        shown |= {"prompt": first.prompt, "schema": first.schema}
        shown |= {"refused": first.refused} if first.refused else {}
        statuses.add("input_required")
    status = next((one for one in ("halted", "input_required") if one in statuses), "")
    dues = [due for wait in waits if isinstance(due := wait.get("due"), int)]
    own = (begin.due for begin in begins if begin.due is not None)
    due = min((*dues, *own), default=None)
    return {
        **shown,
        **({"status": status} if status else {}),
        **({"due": due} if due is not None else {}),
    }


def _invoked(recorded: Recorded) -> list[Json]:
    """The agents that the call of a tool waits for: their steps have no end."""
    waits = recorded.work.waits
    return [
        {"kind": CHILD, "name": name, **known}
        for name, known in recorded.agents.items()
        if (CHILD, name) not in waits
    ]


def _named(recorded: Recorded, begin: WaitEntry) -> Json:
    known = recorded.agents.get(begin.name, {}) if begin.kind == CHILD else {}
    return {"kind": begin.kind, "name": begin.name, **known}
