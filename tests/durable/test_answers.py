"""Answers of the wrong type never fail a call: they are refused, or the question is asked again."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime as dt
import enum
import uuid
from collections.abc import Callable, Coroutine
from decimal import Decimal
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import pydantic
import pytest

from perdure import Program, Runs, interrupt, race, sleep, step
from perdure.durable.messages import Reply, message_of
from perdure.durable.replies import AnswerType
from perdure.errors import AlreadyResolved, ConfigError, NotHalted, RunFailed, WrongAnswer
from perdure.log.entries import RefusedEntry, WaitEntry
from perdure.stores.memory import MemoryStore
from perdure.testing import FakeClock
from tests.durable.test_work import CALL, Bench, Body, bench_of
from tests.durable.world import RUN, cut_after, entries_of, outputs, session_of

T = TypeVar("T")

CUT = "Error: not run: the response that made this call was cut"


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


@dataclasses.dataclass
class Even:
    n: int

    def __post_init__(self) -> None:
        if self.n % 2:
            raise ValueError(f"{self.n} is odd")


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class MuteValue(ValueError):
    def __str__(self) -> str:
        raise SystemExit


RAISED: dict[str, BaseException] = {
    "mute": Mute(),
    "mute value": MuteValue(),
    "cancelled": asyncio.CancelledError(),
    "exit": SystemExit(2),
    "generator": GeneratorExit(),
    "key": KeyboardInterrupt(),
}


@dataclasses.dataclass
class Picky:
    word: str

    def __post_init__(self) -> None:
        if self.word in RAISED:
            raise RAISED[self.word]


class Wordy(msgspec.Struct):
    n: int

    def __post_init__(self) -> None:
        if self.n:
            raise ValueError("\ud800\n" + "no " * 10_000)


class Short(msgspec.Struct):
    text: str

    def __post_init__(self) -> None:
        if len(self.text) > 3:
            raise LookupError("no such word")


class Model(pydantic.BaseModel):
    n: int

    @pydantic.field_validator("n")
    @classmethod
    def even(cls, n: int) -> int:
        if n % 2:
            raise ValueError("odd")
        return n


class Local(pydantic.BaseModel):
    when: pydantic.NaiveDatetime
    sure: pydantic.AwareDatetime | None = None


@dataclasses.dataclass
class Trip:
    when: dt.datetime
    size: Size | None = None


def asking(type_: type[T], got: list[object]) -> Callable[[Bench], Body]:
    def make(bench: Bench) -> Body:
        async def body() -> object:
            got.append(await interrupt("q", "What?", type_))
            return "answered"

        return body

    return make


NOON = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
KEY = uuid.UUID("abcdef01-1234-5678-1234-567812345678")


@pytest.mark.parametrize(
    ("type_", "answer", "value"),
    [
        (int, 5, 5),
        (int, 5.0, 5),
        (float, 5, 5.0),
        (bool, False, False),
        (type(None), None, None),
        (dt.datetime, NOON, NOON),
        (dt.datetime, "2026-01-31T12:00:00Z", NOON),
        (dt.date, dt.date(2026, 1, 31), dt.date(2026, 1, 31)),
        (dt.time, "12:30:00", dt.time(12, 30)),
        (dt.timedelta, dt.timedelta(minutes=90), dt.timedelta(minutes=90)),
        (uuid.UUID, KEY, KEY),
        (Decimal, Decimal("19.99"), Decimal("19.99")),
        (Decimal, 19.99, Decimal("19.99")),
        (bytes, b"\x00\xff", b"\x00\xff"),
        (dict[int, str], {1: "a", -2: "b"}, {1: "a", -2: "b"}),
        (dict[Size, int], {"s": 1}, {Size.SMALL: 1}),
        (dict[uuid.UUID, int], {KEY: 1}, {KEY: 1}),
        (list[int | None], [1, None], [1, None]),
        (Literal["a", 1], 1, 1),
        (Size, Size.LARGE, Size.LARGE),
        (Even, {"n": 4}, Even(4)),
        (Short, Short("abc"), Short("abc")),
        (Model, {"n": 4}, Model(n=4)),
        (
            Local,
            {"when": "2026-01-31T12:00:00", "sure": NOON},
            Local(when=dt.datetime(2026, 1, 31, 12), sure=NOON),  # noqa: DTZ001
        ),
        (Trip, {"when": NOON}, Trip(NOON)),
        (Trip, {"when": NOON, "size": None}, Trip(NOON)),
        (Annotated[int, msgspec.Meta(ge=3)], 3, 3),
        (object, [1, {"a": None}], [1, {"a": None}]),
    ],
    ids=repr,
)
async def test_an_answer_comes_back_as_its_type(type_: Any, answer: object, value: object) -> None:
    got: list[object] = []
    bench = bench_of(asking(type_, got))
    assert await bench.run() == "input_required"
    await bench.runs.answer(RUN, CALL, "q", answer)
    assert await bench.run() == "done"
    assert (got, type(got[0])) == ([value], type(value))


@pytest.mark.parametrize(
    ("type_", "answer", "match"),
    [
        (int, 5.5, "answer: expected integer, got number"),
        (int, "5", "expected integer, got string"),
        (int, True, "expected integer, got boolean"),
        (bool, 1, "expected boolean, got integer"),
        (str, None, "expected string, got null"),
        (dt.datetime, "tomorrow", "expected a date and time with its time zone"),
        (dt.datetime, "2026-01-31T12:00:00", "time zone"),
        (dt.datetime, "2026-02-31T12:00:00Z", "expected a date and time"),
        (dt.date, "31.1.2026", "expected a date"),
        (dt.time, "25:00:00", "expected a time"),
        (dt.timedelta, "ninety minutes", "expected an ISO 8601 duration"),
        (uuid.UUID, "12345", "expected a UUID"),
        (Decimal, "nan", "expected a decimal number"),
        (Decimal, "1_000", "expected a decimal number"),
        (Decimal, [], "fits none|expected"),
        (Annotated[Decimal, msgspec.Meta(ge=0)], "-1", "expected number, got string"),
        (Annotated[Decimal, msgspec.Meta(ge=0)], -1, "at least 0"),
        (Annotated[dt.datetime, msgspec.Meta(tz=False)], NOON, "without a time zone"),
        (bytes, "not base64!", "expected base64"),
        (dict[int, str], {"one": "a"}, r"answer.one: must match"),
        (dict[int, str], {"01": "a"}, "must match"),
        (dict[Size, int], {"m": 1}, "answer.m: must be one of"),
        (dict[dt.date, int], {"today": 1}, "answer.today: expected a date"),
        (list[dt.date], ["2026-01-31", "no"], r"answer\[1\]: expected a date"),
        (dt.date | None, "no", "expected a date"),
        (Even, {"n": 4, "m": 1}, "answer.m: unexpected member"),
        (Even, {}, "answer.n: missing"),
        (Model, {"n": 4, "m": 1}, "answer.m: unexpected member"),
        (Local, {"when": NOON}, "answer.when: expected a date and time without a time zone"),
        (Trip, {"when": "soon"}, "answer.when: expected a date and time"),
    ],
    ids=repr,
)
async def test_an_answer_of_another_type_is_refused_when_it_is_given(
    type_: Any, answer: object, match: str
) -> None:
    bench = bench_of(asking(type_, []))
    assert await bench.run() == "input_required"
    before = len(await entries_of(bench.store))
    with pytest.raises(WrongAnswer, match=match):
        await bench.runs.answer(RUN, CALL, "q", answer)
    assert not await bench.store.unconsumed((await session_of(bench.store)).id)
    assert len(await entries_of(bench.store)) == before


@pytest.mark.parametrize(
    ("type_", "wrong", "why", "right"),
    [
        (Even, {"n": 5}, "answer: 5 is odd", {"n": 6}),
        (Short, {"text": "long"}, "answer: no such word", {"text": "abc"}),
        (Wordy, {"n": 5}, "answer: \ufffd no no no", {"n": 0}),
        (Model, {"n": 5}, "answer.n: Value error, odd", {"n": 6}),
        (list[Even], [{"n": 2}, {"n": 3}], "answer[1]: 3 is odd", []),
        (dict[uuid.UUID, int], {str(KEY): 1, str(KEY).upper(): 2}, "two members", {str(KEY): 1}),
        (set[object], [[]], "answer: unhashable", [1]),
        (Picky, {"word": "mute"}, "answer: Mute", {"word": "fine"}),
        (Picky, {"word": "mute value"}, "answer: ", {"word": "fine"}),
        (Picky, {"word": "cancelled"}, "answer: CancelledError", {"word": "fine"}),
        (Picky, {"word": "exit"}, "answer: 2", {"word": "fine"}),
        (Picky, {"word": "generator"}, "answer: GeneratorExit", {"word": "fine"}),
    ],
    ids=repr,
)
@pytest.mark.parametrize("asker", ["tool", "program"])
async def test_an_answer_that_its_class_refuses_is_not_taken_and_is_asked_for_again(
    asker: str, type_: Any, wrong: object, why: str, right: object
) -> None:
    did: list[str] = []

    async def body() -> object:
        await step("before", lambda: did.append("before"))
        await interrupt("q", "What?", type_)
        await step("behind", lambda: did.append("behind"))
        return "answered"

    bench = bench_of(lambda _: body)
    program = Program(body, store=bench.store, clock=bench.clock)
    call_id = CALL if asker == "tool" else ""

    async def run() -> str:
        if asker == "tool":
            return await bench.run()
        return (await program.run(run_id=RUN)).status

    assert await run() == "input_required"
    for _ in range(2):
        await bench.runs.answer(RUN, call_id, "q", wrong)
        assert await run() == "input_required"
        (waiting,) = (await bench.runs.get(RUN)).pending
        wait = waiting.wait or {}
        assert (wait["prompt"], why in str(wait["refused"])) == ("What?", True)
    await bench.runs.answer(RUN, call_id, "q", right)
    with pytest.raises(AlreadyResolved):
        await bench.runs.answer(RUN, call_id, "q", wrong)
    assert await run() == "done"
    assert did == ["before", "behind"]


def test_a_keyboard_interrupt_while_an_answer_is_read_is_no_fault_of_the_answer() -> None:
    with pytest.raises(KeyboardInterrupt):
        AnswerType(Picky, "q").read('{"word":"key"}')


async def test_an_answer_that_cannot_be_read_loses_no_race_and_wins_none() -> None:
    def make(_: Bench) -> Body:
        async def body() -> object:
            asks: dict[str, Coroutine[object, object, object]] = {
                "said": interrupt("q", "What?", Even),
                "late": sleep("a day", 60),
            }
            first = await race("first", asks)
            await sleep("behind", 60)
            return [first.which, first.value]

        return body

    for right in (True, False):
        bench = bench_of(make)
        assert await bench.run() == "input_required"
        await bench.runs.answer(RUN, CALL, "q", {"n": 5})
        assert await bench.run() == "input_required"
        if right:
            await bench.runs.answer(RUN, CALL, "q", {"n": 6})
            assert await bench.run() == "suspended"
        await bench.clock.advance(61)
        assert await bench.run() == ("done" if right else "suspended")
        await bench.clock.advance(61)
        assert await bench.run() == "done"
        assert outputs(bench.result)[CALL] == ('["said",{"n":6}]' if right else '["late",null]')


async def test_a_question_that_is_asked_again_and_cut_behind_any_entry_gets_its_answer() -> None:
    def make(bench: Bench) -> Body:
        async def body() -> object:
            await bench.step("before")
            even = await interrupt("q", "What?", Even)
            await bench.step("behind")
            return even

        return body

    whole = bench_of(make)
    await whole.run()
    await whole.runs.answer(RUN, CALL, "q", {"n": 5})
    await whole.run()
    await whole.runs.answer(RUN, CALL, "q", {"n": 6})
    assert await whole.run() == "done"
    entries = await entries_of(whole.store)
    waits = [(e.phase, e.refused) for e in entries if isinstance(e, WaitEntry)]
    assert waits == [("begin", ""), ("end", ""), ("begin", "answer: 5 is odd"), ("end", "")]
    for keep in range(1, len(entries) + 1):
        bench = bench_of(make)
        bench.store = await cut_after(whole.store, keep)
        status = await bench.run()
        if status == "halted":  # the cut left a step open
            for name in ("before", "behind"):
                with contextlib.suppress(NotHalted):
                    await bench.runs.resolve(RUN, CALL, step=name, value="known")
            status = await bench.run()
        if status == "input_required":
            await bench.runs.answer(RUN, CALL, "q", {"n": 6})
            status = await bench.run()
        assert status == "done", keep
        assert outputs(bench.result)[CALL] in ('{"n":6}', CUT), keep


async def test_a_type_that_has_changed_asks_again_for_what_it_does_not_take() -> None:
    async def work() -> object:
        got = await interrupt("q", "What?", kind[0])
        await sleep("night", 60)
        return got

    kind: list[type[object]] = [int]
    clock, store = FakeClock(), MemoryStore()
    program, runs = Program(work, store=store, clock=clock), Runs(store, clock=clock)
    assert (await program.run(run_id=RUN)).status == "input_required"
    await runs.answer(RUN, "", "q", 5)
    assert (await program.run(run_id=RUN)).status == "suspended"
    kind[0] = str
    await clock.advance(61)
    assert (await program.run(run_id=RUN)).status == "input_required"
    await runs.answer(RUN, "", "q", "five")
    assert (await program.run(run_id=RUN)).output == "five"


async def test_a_driver_refuses_an_answer_that_reached_its_inbox_and_does_not_fit() -> None:
    bench = bench_of(asking(dt.date, []))
    assert await bench.run() == "input_required"
    session = await session_of(bench.store)
    (begin,) = [e for e in session.entries if isinstance(e, WaitEntry)]
    deep = b"[" * 3000 + b"]" * 3000
    for wrong in (b'"no"', deep):
        told = Reply(call_id=CALL, begin=begin.id, value=msgspec.Raw(wrong))
        await bench.store.put(session.id, message_of(told, await session_of(bench.store)))
        assert await bench.run() == "input_required"
    refused = [e.reason for e in await entries_of(bench.store) if isinstance(e, RefusedEntry)]
    assert refused[0] == "answer: expected a date, as 2026-01-31"
    assert len(refused) == 2
    await bench.runs.answer(RUN, CALL, "q", "2026-01-31")
    assert await bench.run() == "done"


class Unheard:
    """A type that no JSON Schema says."""


@pytest.mark.parametrize(
    "type_", [Unheard, 5, None.__class__.__mro__, dict[bytes | int, int], Callable[[], int], "str"]
)
async def test_a_type_that_no_schema_says_is_refused_before_anybody_is_asked(type_: Any) -> None:
    async def work() -> object:
        return await interrupt("q", "What?", type_)

    store = MemoryStore()
    with pytest.raises(RunFailed, match="the answer to 'q'") as caught:
        await Program(work, store=store).run(run_id=RUN)
    assert isinstance(caught.value.cause, ConfigError)
    assert not [e for e in await entries_of(store) if isinstance(e, WaitEntry)]
