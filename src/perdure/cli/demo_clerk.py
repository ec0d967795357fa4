"""The agent of the demo, and the process that drives its run: `python -m perdure.cli.demo_clerk`.

The bank is somebody else: a ledger in a file, and an answer that takes long. What it has booked is
booked, whatever becomes of the process that asked for it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import NamedTuple

import msgspec

from perdure import Agent, RunResult, tool
from perdure.testing import ScriptedModel, Turn, call
from perdure.tools import Tool

RUN_ID = "order-42"

TASK = "Order 42 is ready. Charge 42 euros to the card tok_visa."

SCRIPT: list[Turn | str] = [
    call("charge", {"card": "tok_visa", "cents": 4200}, call_id="call_1"),
    "Order 42 is paid: 42 euros were charged to the card.",
]
"""What the model says, turn by turn."""

LEASE = 1.5
"""Seconds that the run stays with a process that was killed; 30 unless an agent says otherwise."""

ANSWER_SECONDS = 60.0
"""How long the bank takes to answer: longer than its caller lives."""


class Charge(NamedTuple):
    """A line of the bank's ledger."""

    id: str
    card: str
    cents: int


class Bank:
    """Books charges in a ledger."""

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger

    def book(self, card: str, cents: int) -> Charge:
        """Take the money. It is taken when this returns."""
        charge = Charge(f"ch_{len(self.charges()) + 1}", card, cents)
        with self._ledger.open("ab") as file:
            file.write(msgspec.json.encode(charge) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        return charge

    def charges(self) -> list[Charge]:
        """What was booked. A line that is being written is not booked yet."""
        if not self._ledger.exists():
            return []
        whole = self._ledger.read_bytes().rpartition(b"\n")[0]
        return [msgspec.json.decode(line, type=Charge) for line in whole.splitlines()]


def clerk(store: str, bank: Bank) -> Agent:
    """The agent. Every process makes it anew; what it has done is in the store alone."""
    return Agent(
        ScriptedModel(SCRIPT),
        name="clerk",
        tools=[_charging(bank)],
        store=store,
        lease=LEASE,
    )


def _charging(bank: Bank) -> Tool:
    @tool(effect="once")
    async def charge(card: str, cents: int) -> str:
        """Charge a card.

        Args:
            card: Its token.
            cents: The amount.
        """
        booked = bank.book(card, cents)
        await asyncio.sleep(ANSWER_SECONDS)
        return f"charged {cents} cents: {booked.id}"

    return charge


async def drive(store: str, ledger: Path) -> RunResult:
    """Begin the run, or go on with it, until it rests: the one line is the same in each process."""
    agent = clerk(store, Bank(ledger))
    try:
        return await agent.run(TASK, run_id=RUN_ID)
    finally:
        await agent.aclose()


def main() -> None:
    """Drive the run in a process of its own. Prints how it stands, and its answer."""
    store, ledger = sys.argv[1:]
    result = asyncio.run(drive(store, Path(ledger)))
    print(result.status, result.text, sep="\t")


if __name__ == "__main__":
    main()
