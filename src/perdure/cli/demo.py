"""The point of perdure, offline: a process is killed in the middle of a payment, paid only once.

Three processes drive one run. The first is killed while the bank takes the money; the second finds
that the payment may have happened, and halts; once somebody has said what came of it, the third
finishes.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from rich.console import Console
from rich.text import Text

from perdure.cli.demo_clerk import ANSWER_SECONDS, LEASE, RUN_ID, TASK, Bank
from perdure.cli.page import Page
from perdure.cli.runs_seen import look_at
from perdure.cli.runs_shown import Printer, print_command, print_waiting
from perdure.errors import PerdureError
from perdure.runs import Runs
from perdure.stores import open_store

LOOK_AGAIN = 0.01
"""Seconds between two looks at the bank's ledger."""

BY = "you"

COLUMNS = 80
"""What a line has at most where there is no terminal."""


def _console() -> Console:
    """A terminal; else a page of as many columns, without colours."""
    console = Console()
    if console.is_terminal:
        return console
    return Console(width=COLUMNS, force_terminal=True, color_system=None)


async def run_demo(console: Console | None = None) -> None:
    """Run the demo and show it on a console.

    Raises:
        PerdureError: It did not go as it should.
    """
    with TemporaryDirectory(prefix="perdure-demo-") as directory:
        demo = _Demo(console or _console(), Path(directory))
        try:
            await demo.run()
        finally:
            await demo.end()


class _Demo:
    def __init__(self, console: Console, directory: Path) -> None:
        self._console = console
        self._page = Page(console)
        self._url = f"sqlite:///{directory}/runs.db"
        self._ledger = directory / "ledger.jsonl"
        self._bank = Bank(self._ledger)
        self._said = False
        self._process: asyncio.subprocess.Process | None = None

    async def run(self) -> None:
        self._say(f"An agent has a task, and a tool with effect `once`: {TASK}", "bold")
        self._step(1, f"A process begins the run {RUN_ID!r}, and is killed while the bank charges.")
        await self._is_killed()
        self._step(
            2,
            "A second process runs the same line. The log has the dispatch of the charge, and no "
            "output: it may have happened. It is not charged again on a guess; the run halts.",
        )
        await self._expect("halted")
        call_id = await self._waits()
        self._step(
            3,
            "Somebody looks into the bank's ledger, finds the charge, and says so. A reconciler, "
            "`@charge.reconcile`, would have looked by itself.",
        )
        await self._resolve(call_id)
        self._step(4, "A third process runs the same line. The run goes on where its record ends.")
        await self._expect("done")
        await self._sum_up()

    async def end(self) -> None:
        """Leave no process behind, also when interrupted."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    # --- the processes ---------------------------------------------------------------------------

    async def _started(self) -> asyncio.subprocess.Process:
        command = [sys.executable, "-m", "perdure.cli.demo_clerk", self._url, str(self._ledger)]
        process = await asyncio.create_subprocess_exec(
            *command,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the demo alone, which ends the process
        )
        self._process = process
        self._page.line("start", f"process {process.pid}", f'agent.run(..., run_id="{RUN_ID}")')
        return process

    async def _is_killed(self) -> None:
        process = await self._started()
        while not self._bank.charges():
            if process.returncode is not None:
                raise PerdureError("the first process ended before it was killed")
            await asyncio.sleep(LOOK_AGAIN)
        process.kill()
        code = await process.wait()
        took = f"the bank took the money; its answer, {ANSWER_SECONDS:g} s away, is lost"
        self._page.line("cut", f"process {process.pid}", f"kill {code}: {took}", whole=True)

    async def _expect(self, status: str) -> None:
        process = await self._started()
        if status == "halted":
            self._page.line("progress", "waiting", f"{LEASE} s, until the dead one's lease lapses")
        told, _ = await process.communicate()
        stands, _, answer = told.decode().rstrip("\n").partition("\t")
        if stands != status:
            raise PerdureError(f"the run is {stands or 'nowhere'}, and should be {status}")
        self._page.line("good" if status == "done" else "cut", stands, answer, whole=True)

    # --- what a person does ----------------------------------------------------------------------

    async def _waits(self) -> str:
        store = open_store(self._url)
        try:
            seen = await look_at(store, RUN_ID)
        finally:
            await store.close()
        print_waiting(self._console, seen)
        return seen.waiting[0].call.call.call_id

    async def _resolve(self, call_id: str) -> None:
        (booked,) = self._bank.charges()
        output = f"charged {booked.cents} cents: {booked.id}"
        self._page.line("heard", "the ledger", f"{booked.id} {booked.card} {booked.cents} cents")
        evidence = {"ledger": booked.id}
        words = ("perdure", "runs", "resolve", RUN_ID, call_id, "--output", output)
        print_command(self._console, (*words, "--evidence", msgspec.json.encode(evidence).decode()))
        runs = Runs(self._url)
        reason = "the ledger has it"
        await runs.resolve(RUN_ID, call_id, output=output, evidence=evidence, by=BY, reason=reason)
        await runs.aclose()

    # --- the end ---------------------------------------------------------------------------------

    async def _sum_up(self) -> None:
        charges = self._bank.charges()
        if len(charges) != 1:
            raise PerdureError(f"the card was charged {len(charges)} times")
        self._say("The card was charged once. What happened, from the log alone (UTC):", "bold")
        printer = Printer(self._console)
        runs = Runs(self._url)
        async for entry in runs.tail(RUN_ID):
            printer.show(entry)
        await runs.aclose()

    def _step(self, number: int, text: str) -> None:
        self._say(f"{number}. {text}", "bold")

    def _say(self, text: str, style: str = "") -> None:
        if self._said:
            self._console.print()
        self._said = True
        self._console.print(Text(text, style), highlight=False)
