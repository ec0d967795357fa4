"""The main job, offline: an agent with two tools against a real server on loopback."""

from __future__ import annotations

from rich.console import Console

from perdure import Agent, ToolError, tool
from perdure.cli.page import Page, Streamed
from perdure.cli.render import Renderer
from perdure.testing import LoopbackServer, ScriptedModel, Turn, call, reasoning, turn

STOCK = {"bolt-m8": 120, "nut-m8": 75}
PRICES = {"bolt-m8": 21, "nut-m8": 9}

SCRIPT: list[Turn | str] = [
    turn(
        reasoning("The order asks for two parts. I look both up before I quote."),
        "Let me check the stock of both parts.",
        call("stock", {"part": "bolt-m8"}),
        call("stock", {"part": "nut-m8"}),
    ),
    call("quote", {"lines": [["bolt-m8", 100], ["nut-m8", 80]]}),
    call("quote", {"lines": [["bolt-m8", 100], ["nut-m8", 75]]}),
    "We can deliver 100 bolts and 75 nuts, five nuts fewer than you asked for, for 27.75 euros.",
]
"""What the model on the server says. The third turn corrects the second, whose tool refuses."""

EVENT_SECONDS = 0.02
"""How long the server waits between two events, so that a person can see them come."""


@tool(effect="none")
async def stock(part: str) -> int:
    """How many pieces of a part are in stock.

    Args:
        part: The part's number.
    """
    return STOCK[part]


@tool(effect="none")
async def quote(lines: list[tuple[str, int]]) -> dict[str, object]:
    """The price of an order.

    Args:
        lines: Pairs of a part's number and a quantity.
    """
    for part, quantity in lines:
        if quantity > STOCK[part]:
            raise ToolError(f"only {STOCK[part]} pieces of {part} are in stock")
    cents = sum(PRICES[part] * quantity for part, quantity in lines)
    return {"euros": cents / 100, "valid_days": 14}


async def run_demo(console: Console | None = None, *, seconds: float = EVENT_SECONDS) -> None:
    """Run the demo and show it on a console.

    Args:
        console: Where; standard output if None.
        seconds: What the server waits between two events.
    """
    console = console or Console()
    prompt = "I need 100 bolts M8 and 80 nuts M8. What can you deliver, and for how much?"
    async with LoopbackServer(ScriptedModel(SCRIPT, delay=seconds)) as server:
        agent = Agent(
            f"openresponses:{server.base_url}#clerk",
            instructions="You are a sales clerk. Look things up; never guess.",
            tools=[stock, quote],
        )
        console.print(f"An Open Responses server listens at {server.base_url}.", highlight=False)
        console.print(f"user: {prompt}\n", style="bold", highlight=False)
        page = Page(console)
        renderer = Renderer(page, Streamed(page, console.file))
        async with agent.stream(prompt) as stream:
            async for event in stream.events():
                renderer.show(event)
            result = await stream.result()
        console.print(
            f"\nThe server answered {len(server.received)} requests; the transcript has "
            f"{len(result.items)} items.",
            highlight=False,
        )
