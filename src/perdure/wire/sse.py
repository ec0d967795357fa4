"""Server-sent events: bytes in, frames out, and back.

*frame*: what stands between two blank lines; its event name and its data.
*line end*: LF, CR LF or CR, in any mixture; nothing else (U+2028 and U+0085 are text).

The parser is fed as bytes arrive, in pieces of any size; the frames do not depend on the
pieces. Work and memory are linear in the bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from perdure.errors import FrameTooLarge

FRAME_LIMIT = 16 * 1024 * 1024
"""The bytes of the largest frame, unless a parser is told otherwise."""

SSE_DONE = b"data: [DONE]\n\n"
"""What ends a stream, after its terminal event."""

SSE_HEADERS: Mapping[str, str] = MappingProxyType(
    {
        "Content-Type": "text/event-stream",
        "Cache-Control": "no-cache",
        "Connection": "keep-alive",
        "X-Accel-Buffering": "no",
    }
)
"""The headers of an answer that is a stream."""

_BOM = b"\xef\xbb\xbf"


class Frame(NamedTuple):
    """One frame. `event` is empty when the frame does not name one."""

    event: str
    data: bytes


class SSEParser:
    """Bytes in, frames out.

    Args:
        limit: The bytes of the largest frame that is taken.
    """

    __slots__ = ("_after_cr", "_at_start", "_failed", "_limit", "_names", "_tail")

    def __init__(self, limit: int = FRAME_LIMIT) -> None:
        self._limit = limit
        self._tail = bytearray()  # of an unfinished frame, its line ends all LF
        self._after_cr = False  # a LF that comes next belongs to the CR before it
        self._at_start = True  # a byte order mark may still come
        self._failed = False
        self._names: dict[bytes, str] = {}  # event lines seen before

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that these bytes complete.

        Raises:
            FrameTooLarge: A frame is beyond the limit. The frames before it are returned
                first and the error comes with the next call, and with every later one.
        """
        if self._failed:
            raise FrameTooLarge(self._limit)
        if self._after_cr or b"\r" in data:
            data = self._with_lf(data)
        tail = self._tail
        if not tail:
            return self._take(data)
        # Only the new bytes are searched, so that many small pieces cost no more than one.
        if b"\n\n" in data or (tail[-1] == 10 and data[:1] == b"\n"):
            data = bytes(tail) + data
            tail.clear()
            return self._take(data)
        tail += data
        if len(tail) > self._limit:
            self._check_tail()
        return []

    def end(self) -> list[Frame]:
        """What a last frame without its blank line would be, if the bytes ended here.

        The parser is left as it was, so more may be fed.

        Raises:
            FrameTooLarge: As `feed`.
        """
        if self._failed:
            raise FrameTooLarge(self._limit)
        rest = bytes(self._tail)
        frame = _parse_frame(rest.removeprefix(_BOM) if self._at_start else rest)
        return [frame] if frame else []

    def copy(self) -> SSEParser:
        """A parser in the same state."""
        twin = SSEParser(self._limit)
        twin._tail, twin._names = self._tail.copy(), self._names.copy()
        twin._after_cr, twin._at_start = self._after_cr, self._at_start
        twin._failed = self._failed
        return twin

    def _with_lf(self, data: bytes) -> bytes:
        if self._after_cr and data:
            data = data.removeprefix(b"\n")
            self._after_cr = False
        if b"\r" not in data:
            return data
        self._after_cr = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _take(self, data: bytes) -> list[Frame]:
        *blocks, rest = data.split(b"\n\n")
        if blocks and self._at_start:
            self._at_start = False
            blocks[0] = blocks[0].removeprefix(_BOM)
        frames = self._frames(blocks)
        if not self._failed:
            self._tail += rest
            self._check_tail(frames)
        return frames

    def _frames(self, blocks: list[bytes]) -> list[Frame]:
        frames: list[Frame] = []
        for block in blocks:
            if len(block) > self._limit:
                self._fail(frames)
                break
            # Nearly every frame is an event line seen before and one line of data.
            line, _, data = block.partition(b"\ndata: ")
            event = self._names.get(line)
            if event is not None and data and data.find(b"\n") < 0:
                # Half the time of Frame(event, data), where it is spent 20,000 times.
                frames.append(tuple.__new__(Frame, (event, data)))  # pyright: ignore[reportUnknownMemberType]
                continue
            frame = _parse_frame(block)
            if frame:
                frames.append(frame)
                self._learn(line, frame.event)
        return frames

    def _learn(self, line: bytes, event: str) -> None:
        if line == b"event: " + event.encode() and b"\n" not in line and len(self._names) < 64:
            self._names[line] = event

    def _check_tail(self, frames: Sequence[Frame] = ()) -> None:
        if len(self._tail) - self._tail.endswith(b"\n") > self._limit:
            self._fail(frames)

    def _fail(self, frames: Sequence[Frame]) -> None:
        self._failed = True
        self._tail.clear()
        if not frames:
            raise FrameTooLarge(self._limit)


def _parse_frame(block: bytes) -> Frame | None:
    """One frame whose line ends are LF; None if it has no data."""
    if block.startswith(b"data: ") and len(block) > 6 and block.find(b"\n") < 0:
        return Frame("", block[6:])
    event = b""
    lines: list[bytes] = []
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        if field == b"data":
            lines.append(value.removeprefix(b" "))
        elif field == b"event":
            event = value.removeprefix(b" ")
    data = b"\n".join(lines)
    return Frame(event.decode("utf-8", "replace"), data) if data else None


def write_sse(event_type: str, data: bytes) -> bytes:
    """One frame of a stream.

    Line ends in `data` are written as lines of their own, and come back as LF. An event name
    with a line end cannot be written and is left out; the data of an event names its type.
    """
    if b"\n" in data or b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n", b"\ndata: ")
    if not event_type or "\n" in event_type or "\r" in event_type:
        return b"data: %b\n\n" % data
    return b"event: %b\ndata: %b\n\n" % (event_type.encode("utf-8", "replace"), data)
