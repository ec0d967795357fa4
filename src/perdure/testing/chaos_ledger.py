"""What really happened, kept apart from the log: which tools were entered, and what they gave.

The ledger of a run is a file that every process of it appends to, a line at a time, each on the
disk before anybody goes on. It knows nothing of sessions, so it can bear witness against them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from perdure.log.store import Fence, Lease

Phase: TypeAlias = Literal[
    "entered",
    "left",
    "raised",
    "undoing",
    "undone",
    "told",
    "lease",
    "writes",
    "jumped",
    "given",
    "refused",
]


class Line(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that happened in a run.

    Attributes:
        run: The run.
        phase: A tool was `entered`, `left` or `raised`; a compensator was `undoing` what a call
            did, and it is `undone`; a caller was `told` of a status; a `lease` was taken; a process
            counted its `writes`; the clock `jumped`; a word of the test's was `given` to a wait, or
            `refused`.
        life: Which process of the run, from 0.
        tool: The tool's name.
        effect: Its effect for this call.
        call_id: The call.
        key: Its idempotency key.
        output: What the tool gave, as text; what the run's caller was told.
        status: What the run's caller was told.
        recorded: How the run stood by its record when its caller was told.
        vouched: The tool has a reconciler, which knows whether an attempt took effect.
        undoable: The tool has a compensator.
        ahead: Nanoseconds by which the clock is ahead since it jumped.
        lease: The lease.
        writes: What a process wrote, in order.
    """

    run: str
    phase: Phase
    life: int = 0
    tool: str = ""
    effect: str = ""
    call_id: str = ""
    key: str = ""
    output: str | None = None
    status: str = ""
    recorded: str = ""
    vouched: bool = False
    undoable: bool = False
    ahead: int = 0
    lease: tuple[str, int, str, str] | None = None
    writes: tuple[str, ...] = ()


_DECODER: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


class EffectLedger:
    """The files, one for each run.

    Args:
        directory: Where they are.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)

    def write(self, line: Line) -> None:
        """Append a line; it is on the disk when this returns."""
        handle = os.open(self._path(line.run), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(handle, msgspec.json.encode(line) + b"\n")
            os.fsync(handle)
        finally:
            os.close(handle)

    def lines(self, run: str) -> tuple[Line, ...]:
        """The lines of a run, in the order in which they were written."""
        path = self._path(run)
        written = path.read_bytes().splitlines() if path.exists() else []
        return tuple(map(_DECODER.decode, written))

    def _path(self, run: str) -> Path:
        return self.directory / f"{run}.jsonl"


def lease_line(run: str, life: int, lease: Lease) -> Line:
    """The line that says that a process took a lease."""
    told = (lease.root, lease.fence.counter, lease.fence.nonce, lease.holder)
    return Line(run=run, phase="lease", life=life, lease=told)


def leases_of(lines: tuple[Line, ...]) -> tuple[Lease, ...]:
    """The leases that were taken."""
    return tuple(
        Lease(root=line.lease[0], fence=Fence(line.lease[1], line.lease[2]), holder=line.lease[3])
        for line in lines
        if line.lease is not None
    )
