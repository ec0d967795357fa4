"""The first of several waits is recorded once (LOG 5.4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from perdure import First, interrupt, race, receive, recover, sleep, step, wait_for
from perdure.errors import ConfigError, NotHeld, RunFailed
from perdure.log import AnyEntry
from perdure.log.entries import WaitEntry
from tests.durable.test_programs import Desk, desk_of
from tests.durable.test_work import CALL, Bench, Body, bench_of
from tests.durable.world import RUN, cut_after, entries_of, outputs


def is_decision(entry: AnyEntry) -> bool:
    """Whether it says who won a race."""
    return isinstance(entry, WaitEntry) and (entry.kind, entry.phase) == ("race", "end")


def racing(bench: Bench) -> Body:
    async def body() -> object:
        first = await race("paid?", {"paid": wait_for("paid"), "late": sleep("a day", 60)})
        await sleep("behind", 600)
        return [first.which, first.value]

    return body


@pytest.mark.parametrize(
    ("comes", "wins"), [(["paid"], '["paid",5]'), ([], '["late",null]'), (["both"], '["paid",5]')]
)
async def test_what_comes_first_stays_first(comes: list[str], wins: str) -> None:
    bench = bench_of(racing)
    assert await bench.run() == "suspended"
    assert (await bench.runs.get(RUN)).due is not None
    if comes:
        await bench.runs.signal(RUN, "paid", 5)
    if comes != ["paid"]:
        await bench.clock.advance(61)
    assert await bench.run() == "suspended"
    if not comes:
        await bench.runs.signal(RUN, "paid", 5)
    await bench.clock.advance(100)
    assert await recover(bench.agent) == [] or not comes, "what lost wakes nobody"
    await bench.clock.advance(601)
    assert await bench.run() == "done"
    assert outputs(bench.result)[CALL] == wins
    ends = [e for e in await entries_of(bench.store) if is_decision(e)]
    assert len(ends) == 1


async def test_a_race_cut_behind_any_entry_has_one_winner() -> None:
    whole = bench_of(racing)
    await whole.run()
    await whole.runs.signal(RUN, "paid", 5)
    await whole.clock.advance(61)
    await whole.run()
    await whole.clock.advance(601)
    assert await whole.run() == "done"
    entries = await entries_of(whole.store)
    decided = next(n for n, e in enumerate(entries) if is_decision(e))
    for keep in range(1, len(entries) + 1):
        bench = bench_of(racing)
        bench.store = await cut_after(whole.store, keep)
        for _ in range(4):
            if await bench.run() != "done":
                await bench.clock.advance(661)
        assert bench.result.status == "done"
        if keep > decided:
            assert outputs(bench.result)[CALL] == '["paid",5]'


async def test_what_lost_can_be_waited_for_again() -> None:
    def make(bench: Bench) -> Body:
        async def body() -> object:
            for day in range(3):
                first = await race(
                    f"day {day}", {"paid": wait_for("paid"), "remind": sleep(f"day {day}", 60)}
                )
                if first.which == "paid":
                    return f"paid on day {day}: {first.value}"
                await bench.step(f"remind {day}")
            return f"paid at last: {await wait_for('paid')}"

        return body

    for reminders, told in ((2, "paid on day 2: 5"), (3, "paid at last: 5")):
        bench = bench_of(make)
        assert await bench.run() == "suspended"
        for _ in range(reminders):
            await bench.clock.advance(61)
            (recovered,) = await recover(bench.agent)
            assert recovered.status == "suspended"
        assert await recover(bench.agent) == []
        await bench.runs.signal(RUN, "paid", 5)
        (recovered,) = await recover(bench.agent)
        assert recovered.status == "done"
        await bench.run()
        assert outputs(bench.result)[CALL] == told
        assert bench.did == [f"remind {day}" for day in range(reminders)]


async def test_a_channel_that_lost_still_has_its_messages() -> None:
    def make(_: Bench) -> Body:
        async def body() -> object:
            first = await race("one", {"stop": wait_for("stop"), "order": receive("orders")})
            second = await receive("orders")
            await second.ack()
            third = await receive("orders")
            return [first.which, second.key, third.key]

        return body

    bench = bench_of(make)
    assert await bench.run() == "suspended"
    await bench.runs.signal(RUN, "stop")
    assert await bench.run() == "suspended"
    await bench.runs.send(RUN, "orders", 1, key="a")
    assert await bench.run() == "suspended"
    await bench.runs.send(RUN, "orders", 2, key="b")
    assert await bench.run() == "done"
    assert outputs(bench.result)[CALL] == '["stop","a","b"]'


async def test_a_message_may_win() -> None:
    def make(_: Bench) -> Body:
        async def body() -> object:
            first = await race("one", {"stop": wait_for("stop"), "order": receive("orders")})
            await sleep("night", 60)
            value = first.value
            return [first.which, getattr(value, "key", None)]

        return body

    bench = bench_of(make)
    await bench.run()
    await bench.runs.send(RUN, "orders", 1, key="a")
    assert await bench.run() == "suspended"
    await bench.runs.signal(RUN, "stop")
    await bench.clock.advance(61)
    assert await bench.run() == "done"
    assert outputs(bench.result)[CALL] == '["order","a"]'


async def test_a_question_that_lost_is_asked_no_more() -> None:
    def make(_: Bench) -> Body:
        async def body() -> object:
            waits = {"said": interrupt("sure", "Sure?", bool), "late": sleep("an hour", 60)}
            first = await race("sure?", waits)
            await sleep("night", 600)
            return first.which

        return body

    bench = bench_of(make)
    assert await bench.run() == "input_required"
    await bench.clock.advance(61)
    assert await bench.run() == "suspended"
    with pytest.raises(NotHeld):
        await bench.runs.answer(RUN, CALL, "sure", True)


async def test_an_answer_may_win_and_has_its_type() -> None:
    def make(_: Bench) -> Body:
        async def body() -> object:
            waits = {
                "late": sleep("an hour", 60),
                "said": interrupt("day", "Which?", tuple[int, int]),
            }
            first = await race("which day", waits)
            assert first == First("said", (1, 2))
            return "right"

        return body

    bench = bench_of(make)
    await bench.run()
    await bench.runs.answer(RUN, CALL, "day", [1, 2])
    assert await bench.run() == "done"
    assert outputs(bench.result)[CALL] == "right"


async def test_a_wait_whose_time_is_up_has_won() -> None:
    def make(_: Bench) -> Body:
        async def body() -> object:
            waits = {"paid": wait_for("paid"), "shipped": wait_for("shipped", timeout=60)}
            try:
                await race("either", waits)
            except TimeoutError:
                await sleep("night", 60)
                return "too late"
            return "in time"

        return body

    bench = bench_of(make)
    await bench.run()
    await bench.clock.advance(61)
    assert await bench.run() == "suspended"
    await bench.runs.signal(RUN, "paid")
    await bench.clock.advance(61)
    assert await bench.run() == "done"
    assert outputs(bench.result)[CALL] == "too late"


async def test_a_wait_that_has_come_wins_at_once_and_the_others_do_not_begin() -> None:
    desk = desk_of(lambda _: lambda: race("a", {"now": sleep("now", 0), "paid": wait_for("paid")}))
    result = await desk.run()
    assert result.output == ["now", None]
    waits = [e for e in await entries_of(desk.store) if isinstance(e, WaitEntry)]
    assert {e.name for e in waits} == {"a", "now"}


async def test_races_run_beside_each_other_and_beside_waits() -> None:
    def make(_: Desk) -> Body:
        async def body() -> object:
            async with asyncio.TaskGroup() as group:
                one = group.create_task(race("one", {"a": wait_for("a"), "late": sleep("one", 60)}))
                two = group.create_task(
                    race("two", {"b": wait_for("b"), "late": sleep("two", 120)})
                )
                group.create_task(sleep("three", 90))
            return [one.result().which, two.result().which]

        return body

    desk = desk_of(make)
    assert (await desk.run()).status == "suspended"
    await desk.runs.signal(RUN, "b")
    for _ in range(4):
        await recover(programs=[desk.program])
        await desk.clock.advance(40)
    assert (await desk.run()).output == ["late", "b"]


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        (lambda: race("", {"a": sleep("a", 1)}), "1 to"),
        (lambda: race("a", {}), "nothing to wait for"),
        (lambda: race("a", {"a": step("a", dict)}), "no wait"),
        (lambda: race("a", {"a": 5}), "no wait"),  # type: ignore[dict-item]
        (lambda: race("a", {"a": sleep("a", -1)}), "0 or more"),
        (lambda: step("a", lambda: race("b", {"a": sleep("a", 1)}), effect="none"), "do not wait"),
    ],
)
async def test_what_is_no_race_is_refused(wrong: Callable[[], Body], match: str) -> None:
    desk = desk_of(lambda _: wrong)  # type: ignore[arg-type, return-value]
    with pytest.raises(RunFailed, match=match):
        await desk.run()


async def test_a_race_has_to_keep_what_won_it() -> None:
    async def work() -> object:
        waits = {now[0]: sleep("now", 0)}
        await race("a", waits)
        await sleep("night", 60)
        return "done"

    now = ["one"]
    desk = Desk(work)
    await desk.run()
    now[0] = "two"
    await desk.clock.advance(61)
    with pytest.raises(RunFailed, match="won by 'one'"):
        await desk.run()


@pytest.mark.parametrize("how", ["twice", "over", "awaited"])
async def test_a_wait_races_once(how: str) -> None:
    async def work() -> object:
        if how == "over":
            wait = sleep("now", 0)
            await wait
            return await race("a", {"a": wait})
        if how == "twice":
            wait = sleep("a", 60)
            return await race("a", {"a": wait, "b": wait})
        wait = sleep("a", 60)
        async with asyncio.TaskGroup() as group:
            group.create_task(wait)
            await asyncio.sleep(0)
            await race("a", {"a": wait})
        return "?"

    with pytest.raises(RunFailed) as caught:
        await Desk(work).run()
    assert "of race 'a' is awaited elsewhere" in str(caught.value.cause) + repr(caught.value.cause)


async def test_nobody_would_wake_a_race_that_is_not_of_a_run_by_id() -> None:
    with pytest.raises(ConfigError):
        await race("a", {"a": sleep("a", 1)})
