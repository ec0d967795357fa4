"""What the command does to its streams and its terminal, undone when it is over."""

from __future__ import annotations

import asyncio
import io
import os
import re
import sys
import termios
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TextIO, cast

_C1 = re.compile("[\x7f-\x9f]")


@contextmanager
def answer_stream() -> Generator[TextIO]:
    """Standard output, for the answer alone.

    What anybody else writes there, a tool that prints or a program it starts, goes to standard
    error for as long as the block runs.
    """
    out, error = cast("io.TextIOWrapper", sys.stdout), sys.stderr
    out.reconfigure(line_buffering=True)
    with os.fdopen(os.dup(out.fileno()), "w", encoding=out.encoding, errors="replace") as own:
        saved = os.dup(out.fileno())
        os.dup2(error.fileno(), out.fileno())
        try:
            yield own
        finally:
            out.flush()
            os.dup2(saved, out.fileno())
            os.close(saved)


def write_line(out: TextIO, line: bytes) -> None:
    """Write a line of JSON at once. On a terminal, control characters are written as escapes."""
    if out.isatty():
        text = _C1.sub(lambda found: f"\\u{ord(found[0]):04x}", line.decode())
        line = text.encode()
    out.flush()
    out.buffer.write(line)
    out.buffer.flush()


@contextmanager
def lines_typed(heard: Callable[[str], None]) -> Generator[None]:
    """Give every line that is typed while the block runs to `heard`.

    What is typed is not echoed, so that it does not mix with what is written. A line that is not
    finished when the block ends is there at the next prompt.
    """
    stdin = sys.stdin
    if not stdin.isatty():
        yield
        return
    fd = stdin.fileno()
    loop = asyncio.get_running_loop()

    def ready() -> None:
        typed = os.read(fd, 4096)
        if not typed:  # Ctrl-D: the prompt will see it if it is the end
            loop.remove_reader(fd)
            return
        text = typed.decode(stdin.encoding, "replace").rstrip()
        if text:
            heard(text)

    before = termios.tcgetattr(fd)
    quiet = list(before)
    quiet[3] &= ~termios.ECHO
    termios.tcsetattr(fd, termios.TCSADRAIN, quiet)
    loop.add_reader(fd, ready)
    try:
        yield
    finally:
        loop.remove_reader(fd)
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
