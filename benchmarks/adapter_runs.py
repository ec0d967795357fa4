"""What the benchmarks of the adapters share: a server of its own process, clients, bodies by turns.

Measured is the CPU time of this process, the best of some rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib.util
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import NamedTuple

from perdure.loop.losses import Loss
from perdure.loop.model import Model, ModelRequest
from perdure.loop.transcript import Items, Transcript
from perdure.models import Body
from perdure.wire import (
    OutputTextDelta,
    Request,
    assistant,
    function_call,
    function_call_output,
    function_tool,
    user,
)

WORDS = ("The", " capital", " of", " France", " is", " Paris", ",", " which", " lies", " on")


class Sdk(NamedTuple):
    """A provider's own client.

    Attributes:
        module: What has to be installed.
        deltas: Reads the stream at a port and counts its deltas; it may block.
        share: The most of its CPU time that perdure may take.
    """

    module: str
    deltas: Callable[[int], Awaitable[int]]
    share: float


class Adapter(NamedTuple):
    """What is measured.

    Attributes:
        file: The benchmark's own, which serves its stream when it is run with `--serve`.
        model: perdure's client for a port.
        body: The body of a request.
        losses: What that does not say.
        sdk: What it is measured beside.
    """

    file: str
    model: Callable[[int], Model]
    body: Callable[[ModelRequest], Body]
    losses: Callable[[ModelRequest], tuple[Loss, ...]]
    sdk: Sdk


# --- the server, in a process of its own ------------------------------------------


async def serve(frames: Sequence[bytes], content_type: str) -> None:
    """Answer every request with the stream, one HTTP chunk for each frame, as fast as it goes."""
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nTransfer-Encoding: chunked\r\n\r\n"
        % content_type.encode()
    )
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(f), f) for f in frames) + b"0\r\n\r\n"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                request = await reader.readuntil(b"\r\n\r\n")
                for line in request.lower().split(b"\r\n"):
                    if line.startswith(b"content-length:"):
                        await reader.readexactly(int(line.split(b":")[1]))
                writer.write(head + chunks)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


# --- streams -------------------------------------------------------------------------


def client_of(model: Callable[[int], Model]) -> Callable[[int], Awaitable[int]]:
    """perdure's client, as what counts deltas at a port."""

    async def deltas(port: int) -> int:
        request = ModelRequest(settings=Request(model="m"), input=Items.of([user("hi")]))
        made = model(port)
        found = 0
        async for event in made.stream(request):
            if type(event) is OutputTextDelta:
                found += event.delta != ""
        await made.aclose()  # type: ignore[attr-defined]
        return found

    return deltas


def measure(client: Callable[[int], Awaitable[int]], port: int, events: int, rounds: int) -> float:
    """The least CPU time of a client, in microseconds for each event."""

    async def once() -> float:
        gc.collect()
        begun = time.process_time()
        deltas = await client(port)
        taken = time.process_time() - begun
        assert deltas == events, (client, deltas)
        return taken

    asyncio.run(once())  # imports, and what is made once
    return min(asyncio.run(once()) for _ in range(rounds)) / events * 1e6


def streams(adapter: Adapter, events: int, rounds: int) -> dict[str, float]:
    """Microseconds of CPU for each event, by client."""
    command = [sys.executable, "-m", adapter.file, "--serve", "--events", str(events)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            port = int(server.stdout.readline())
            found = {"perdure": measure(client_of(adapter.model), port, events, rounds)}
            if importlib.util.find_spec(adapter.sdk.module.split(".")[0]):
                found[adapter.sdk.module] = measure(
                    adapter.sdk.deltas, port, events, max(2, rounds // 2)
                )
        finally:
            server.kill()
    return found


# --- bodies ----------------------------------------------------------------------------

TOOL = function_tool("look_up", description="Look up.", parameters={"type": "object"})


class Built(NamedTuple):
    """Microseconds to build the body of a turn and to say what it loses, and to copy its bytes."""

    turn: int
    build: float
    copy: float


def bodies(adapter: Adapter, turns: Sequence[int], rounds: int = 20) -> list[Built]:
    """The cost of the bodies of some turns, each turn a call and its output.

    Each body is built once in a round, as a drive builds it: after the one of the turn before.
    """
    build = dict.fromkeys(turns, float("inf"))
    copy = dict.fromkeys(turns, float("inf"))
    for _ in range(rounds):
        for turn, request in conversation(max(turns)):
            begun = time.perf_counter()
            adapter.losses(request)
            fragments = adapter.body(request).fragments
            taken = time.perf_counter() - begun
            if turn in build:
                build[turn] = min(build[turn], taken)
                copy[turn] = min(copy[turn], _least(lambda parts=fragments: b"".join(parts), 20))  # type: ignore[misc]
    return [Built(turn, build[turn] * 1e6, copy[turn] * 1e6) for turn in turns]


def conversation(turns: int) -> Iterator[tuple[int, ModelRequest]]:
    """A conversation turn by turn; each request has a call and its output more."""
    transcript = Transcript([user("What is the weather in every town of France?")])
    settings = Request(model="m", instructions="Be brief.", tools=(TOOL,))
    for turn in range(1, turns + 1):
        transcript.append(assistant(f"I look up number {turn}."))
        transcript.append(function_call(f"call_{turn}", "look_up", '{"town": "Paris"}'))
        transcript.append(function_call_output(f"call_{turn}", "Sunny, 21 degrees. " * 10))
        yield turn, ModelRequest(settings=settings, input=transcript.snapshot())


def _least(what: Callable[[], object], times: int) -> float:
    """Seconds."""
    best = float("inf")
    for _ in range(times):
        begun = time.perf_counter()
        what()
        best = min(best, time.perf_counter() - begun)
    return best


# --- the whole -------------------------------------------------------------------------


def main(adapter: Adapter, frames: Callable[[int], list[bytes]], content_type: str) -> int:
    """Print the figures of an adapter. Returns 1 if it costs more than it may."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(frames(options.events), content_type))
    cost = streams(adapter, options.events, options.rounds)
    print(f"{options.events} streamed deltas over loopback HTTP, CPU of the client")
    for name, micros in cost.items():
        print(f"  {name:20}{micros:10.2f} us/event{1e6 / micros:12,.0f} events/s")
    good = True
    if adapter.sdk.module in cost:
        share = cost["perdure"] / cost[adapter.sdk.module]
        good = share <= adapter.sdk.share
        print(f"  {share:.3f} of the SDK, at most {adapter.sdk.share:g}: {'yes' if good else 'NO'}")
    else:
        print(f"  {adapter.sdk.module} is not installed")
    return 0 if _print_bodies(adapter) and good else 1


def _print_bodies(adapter: Adapter) -> bool:
    early, late = bodies(adapter, (50, 500))
    good = late.build <= 1.5 * early.build + late.copy
    for one in (early, late):
        print(f"  body of turn {one.turn}: {one.build:.1f} us, copying its bytes {one.copy:.1f} us")
    print(f"  the later at most 1.5 times the earlier and its copy: {'yes' if good else 'NO'}")
    return good
