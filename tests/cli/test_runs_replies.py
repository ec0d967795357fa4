"""What is left to say to a run of which some questions were answered."""

from __future__ import annotations

import asyncio
import dataclasses

from perdure import Program, Runs, interrupt, receive
from perdure.cli.runs_seen import look_at
from perdure.stores.memory import MemoryStore


async def test_an_answer_that_waits_leaves_the_commands_for_the_others() -> None:
    async def asks() -> int:
        async with asyncio.TaskGroup() as group:
            group.create_task(interrupt("a", "A?", int))
            group.create_task(interrupt("b", "B?", int))
            group.create_task(receive("orders"))
        return 1

    store = MemoryStore()
    await Program(asks, store=store).run(run_id="1")
    await Runs(store).answer("1", "", "a", 1)
    await Runs(store).send("1", "orders", 2, key="k")
    (waiting,) = (await look_at(store, "1")).waiting
    assert {words[2:] for words in waiting.todo} == {
        ("answer", "1", "", "b", "JSON"),
        ("send", "1", "orders", "JSON", "--key", "KEY"),
    }
    assert "answered" in waiting.told
    assert "message k" in waiting.told


@dataclasses.dataclass
class Even:
    n: int

    def __post_init__(self) -> None:
        if self.n % 2:
            raise ValueError(f"{self.n} is odd")


async def test_a_question_whose_answer_was_not_taken_says_why_and_takes_another() -> None:
    async def asks() -> int:
        return (await interrupt("a", "A?", Even)).n

    store = MemoryStore()
    program = Program(asks, store=store)
    await program.run(run_id="1")
    await Runs(store).answer("1", "", "a", {"n": 5})
    await program.run(run_id="1")
    (waiting,) = (await look_at(store, "1")).waiting
    assert waiting.why == "asks (a): A?; an answer was not taken: answer: 5 is odd"
    assert [words[2:] for words in waiting.todo] == [("answer", "1", "", "a", "JSON")]
