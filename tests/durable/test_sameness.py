"""The same word once more, spelled in another way: the first stands, and it is no error."""

from __future__ import annotations

import msgspec
import pytest

from perdure import Program, Runs, interrupt, receive, wait_for
from perdure.durable.messages import Resolve
from perdure.durable.sameness import is_same_json, is_same_word
from perdure.errors import AlreadyResolved
from perdure.stores.memory import MemoryStore
from tests.durable.world import RUN

FIRST: object = {"a": 1, "b": [2, "\u00fc"]}
AGAIN: object = {"b": [2.0, "\u00fc"], "a": 1.0}
OTHER: object = {"a": 1, "b": ["\u00fc", 2]}


async def work() -> object:
    paid = await wait_for("paid")
    message = await receive("orders")
    await message.ack()
    return [paid, message.value, await interrupt("q", "What?", dict[str, object])]


async def tell(runs: Runs, kind: str, value: object) -> None:
    if kind == "signal":
        await runs.signal(RUN, "paid", value)
    elif kind == "message":
        await runs.send(RUN, "orders", value, key="k")
    else:
        await runs.answer(RUN, "", "q", value)


async def told(runs: Runs, kind: str) -> None:
    """Tell the same in two ways, and another value, which is refused."""
    await tell(runs, kind, FIRST)
    await tell(runs, kind, AGAIN)
    with pytest.raises(AlreadyResolved):
        await tell(runs, kind, OTHER)


async def test_a_value_that_is_spelled_in_another_way_is_the_same_word() -> None:
    store = MemoryStore()
    program, runs = Program(work, store=store), Runs(store)
    await program.run(run_id=RUN)
    for kind in ("signal", "message", "answer"):
        await told(runs, kind)  # it waits in the inbox
        result = await program.run(run_id=RUN)
        if result.status != "done":
            await told(runs, kind)  # it stands on the record
    assert result.output == [FIRST, FIRST, FIRST]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (b"1", b"1.0", True),
        (b"1e2", b"100", True),
        (b'"\\u0061"', b'"a"', True),
        (b"1", b'"1"', False),
        (b"1", b"true", False),
        (b"[1,2]", b"[2,1]", False),
        (b"123456789012345678901", b"123456789012345678901", True),
        (b"123456789012345678901", b"123456789012345678902", False),
        (b"[" * 3000 + b"]" * 3000, b"1", False),
    ],
)
def test_json_is_compared_by_its_values(one: bytes, other: bytes, *, same: bool) -> None:
    assert is_same_json(one, other) is same


def test_of_a_step_the_value_is_compared_and_of_a_call_the_text() -> None:
    step = Resolve(call_id="c", dispatch="d", step="s", output='{"a":1,"b":2}', evidence="[1]")
    again = msgspec.structs.replace(step, output='{"b":2,"a":1}', evidence="[1.0]")
    assert is_same_word(step, again)
    assert not is_same_word(step, msgspec.structs.replace(step, output='{"a":1}'))
    of_call = msgspec.structs.replace(step, step="")
    assert not is_same_word(of_call, msgspec.structs.replace(again, step=""))
    assert not is_same_word(None, step)
