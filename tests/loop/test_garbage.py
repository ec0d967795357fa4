"""What a turn leaves for the garbage collector: nothing, or long drives pay for it in pauses."""

from __future__ import annotations

import gc

from perdure import Agent, tool
from perdure.testing import ScriptedModel, call, text

FIRST, LAST = 5, 25


async def test_turns_leave_nothing_behind_that_only_the_garbage_collector_can_free() -> None:
    found: list[object] = []

    @tool
    async def work(number: int) -> str:
        if number == FIRST:
            gc.collect()
            gc.disable()
        elif number == LAST:
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            found.extend(gc.garbage)
        return "done"

    script = [*(call("work", {"number": number}) for number in range(LAST + 1)), text("end")]
    try:
        result = await Agent(ScriptedModel(script), tools=[work]).run("go")
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()

    assert result.text == "end"
    ours = [type(one).__qualname__ for one in found if type(one).__module__.startswith("perdure")]
    assert not ours
