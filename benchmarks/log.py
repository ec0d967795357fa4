"""The log: projecting a session, following one append, and what recording costs.

Beside each figure of a whole session stands `json.loads` of the same lines, in the same run.
"""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
import time
from collections.abc import Awaitable, Callable

from benchmarks.table import Table
from perdure.clock import RandomIds
from perdure.log import Draft, Session, decode_entry, new_header, read_session, record, seal
from perdure.log.entries import AnyEntry
from perdure.log.requests import HashFold
from perdure.log.timestamps import timestamp
from perdure.log.writing import salted
from perdure.loop import Config
from perdure.loop.drive import Opening
from perdure.loop.ledger import NullLedger
from perdure.loop.lowlevel import begin
from perdure.loop.transcript import Transcript
from perdure.stores.memory import MemoryStore
from perdure.testing import ScriptedModel, Turn, call, text as say
from perdure.tools import tool
from perdure.wire import user

REPEATS = 5
ENTRIES = 10_000
START = 1_790_000_000 * 10**9


def least(work: Callable[[], object]) -> float:
    """The least seconds of a few repeats."""
    best = float("inf")
    for _ in range(REPEATS):
        gc.collect()
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


class Conversation:
    """A session of turns, each with a thought, a call, its output, and the hash of its request."""

    def __init__(self, entries: int) -> None:
        self.header = new_header("bench", timestamp(START))
        self.session = Session(self.header)
        self._view = self.session.fresh_view()
        self._hashes = HashFold()
        self._ids = RandomIds()
        self._add("config", {"model": "m", "instructions": "Be brief.", "replace": True})
        self._add("run", {"run_id": "r", "phase": "start", "source": "input"})
        self._item({"type": "message", "role": "user", "content": _text("input_text", "go " * 20)})
        while len(self.session) < entries:
            self._turn(len(self.session))

    @property
    def lines(self) -> list[bytes]:
        return [entry.line for entry in self.session.entries]

    @property
    def data(self) -> bytes:
        return b"".join(line + b"\n" for line in (self.header.line, *self.lines))

    def _turn(self, number: int) -> None:
        request = self._view.context
        name = f"resp_{number}"
        thought = {"summary": _text("summary_text", "think " * 15), "encrypted_content": "x" * 200}
        self._item({"type": "reasoning", "id": f"rs_{number}", **thought}, response=name)
        call_id = f"call_{number}"
        arguments = json.dumps({"q": "z" * 50})
        made = {"type": "function_call", "call_id": call_id, "name": "t", "arguments": arguments}
        entry = self._item(made, response=name)
        usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
        body = {"response_id": name, "model": "m", "status": "completed", "usage": usage}
        probe = decode_entry(b'{"type":"response","response_id":"%s"}' % name.encode())
        rebuilt = self._view.request(probe)  # type: ignore[arg-type]
        assert len(rebuilt.items) == len(request.items)
        self._add("response", {**body, "request_hash": self._hashes.of(rebuilt)})
        self._add("dispatch", {"call_id": call_id, "target": entry.id, "idempotency_key": "k"})
        self._item({"type": "function_call_output", "call_id": call_id, "output": "res " * 40})

    def _item(self, item: object, **members: object) -> AnyEntry:
        return self._add("item", {"item": item, **members})

    def _add(self, type_: str, body: dict[str, object]) -> AnyEntry:
        ts = timestamp(START + len(self.session) * 10**6)
        entry = seal(salted(Draft(type_, body), self._ids), self.session.leaf, ts)
        self.session.take(entry)
        self._view.follow(entry)
        return entry


def _text(kind: str, text: str) -> list[dict[str, str]]:
    return [{"type": kind, "text": text}]


def projecting(table: Table, entries: int) -> None:
    """Reading a session and its context: beside json.loads, and with verification."""
    conversation = Conversation(entries)
    data, lines = conversation.data, conversation.lines

    def project(*, verify: bool) -> None:
        reading = read_session(data, verify=verify)
        assert not reading.faults
        view = reading.session.view()
        assert len(view.context.items) > entries / 3
        assert len(view.calls) > entries / 6

    base = least(lambda: [json.loads(line) for line in lines])
    plain, verified = least(lambda: project(verify=False)), least(lambda: project(verify=True))
    table.row(
        entries,
        base * 1e3,
        plain * 1e3,
        verified * 1e3,
        f"{plain / base:.1f}",
        f"{verified / base:.1f}",
    )


def following(table: Table, entries: int) -> None:
    """One append at the end of a session of this length: taken, and its context asked for."""
    conversation = Conversation(entries)
    session = conversation.session
    view = session.view()
    later: list[AnyEntry] = []
    for number in range(200):
        item = {"type": "message", "role": "user", "content": _text("input_text", "more")}
        parent = later[-1].id if later else session.leaf
        later.append(seal(Draft("item", {"item": item}), parent, timestamp(START + number)))
    times: list[float] = []
    for entry in later:
        start = time.perf_counter()
        session.take(decode_entry(entry.line))
        view = session.view()
        assert view.folding.items
        times.append(time.perf_counter() - start)
    table.row(entries, statistics.median(times) * 1e6)


@tool(effect="none")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def script(turns: int) -> Callable[[int], Turn]:
    return lambda index: call("add", {"a": index, "b": 1}) if index < turns - 1 else say("done")


async def recording(table: Table, turns: int) -> None:
    """CPU and bytes a turn: a drive in memory, and the same recorded into the memory store."""

    async def bare() -> None:
        config = Config(model=ScriptedModel(script(turns)), model_name="m", tools=[add])
        handle = begin(Transcript(), Opening(prompts=(user("go"),)), config, ledger=NullLedger())
        await handle.wait()

    sizes: list[int] = []

    async def recorded() -> None:
        made = await record(MemoryStore())
        config = Config(model=ScriptedModel(script(turns)), model_name="m", tools=[add])
        handle = begin(
            made.transcript, Opening(prompts=(user("go"),)), config, ledger=made.recorder
        )
        await handle.wait()
        sizes.append(sum(len(entry.line) for entry in made.session.entries))

    one, other = await _cpu(bare), await _cpu(recorded)
    table.row(turns, one / turns * 1e6, other / turns * 1e6, sizes[-1] / turns)


async def _cpu(work: Callable[[], Awaitable[None]]) -> float:
    best = float("inf")
    for _ in range(REPEATS):
        gc.collect()
        start = time.process_time()
        await work()
        best = min(best, time.process_time() - start)
    return best


async def main() -> None:
    """Run them and print the tables."""
    columns = ("json.loads", "projected", "verified", "projected/loads", "verified/loads")
    table = Table("a session, milliseconds", "entries", *columns)
    for entries in (100, 1000, ENTRIES):
        projecting(table, entries)
    table.show()
    print("bound at 10,000: 6 times json.loads without verification, 15 times with\n")

    table = Table("following one append, microseconds", "entries", "append")
    for entries in (100, 1000, ENTRIES):
        following(table, entries)
    table.show()
    print("bound: it does not depend on the length\n")

    table = Table("recording a turn with a call", "turns", "in memory, us", "recorded, us", "bytes")
    for turns in (10, 50, 200):
        await recording(table, turns)
    table.show()


if __name__ == "__main__":
    asyncio.run(main())
