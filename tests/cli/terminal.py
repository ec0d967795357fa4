"""The `perdure` command in a pseudo-terminal, or over pipes; and a server for it to talk to."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from perdure.loop import Model, ModelRequest
from perdure.testing import LoopbackServer, ScriptedModel
from perdure.testing.scripted import Script
from perdure.wire import Item, OutputTextDelta, Request, StreamEvent, decode_request, user

PATIENCE = 60.0
"""Seconds to wait for what should come at once; only a failing test waits that long."""

COLUMNS, ROWS = 80, 24

# The new session has no terminal yet: it takes standard input as its own, then becomes the command.
LAUNCH = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""

# What a terminal takes for an instruction and does not show.
SEQUENCE = re.compile(
    r"\x1b\[[0-9;?]*[ -/]*[@-~]"  # CSI: colours, the modes of line editing
    r"|\x1b[=>]"
)


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """A plain environment: no key, no model, nothing about colours."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    plain = {
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "",
        "INPUTRC": os.devnull,
    }
    return kept | plain | dict(extra or {})


class Terminal:
    """A terminal of 80 columns with `perdure` running in it.

    Use it as `with Terminal("chat", ...) as screen:`; leaving kills what still runs.

    Attributes:
        raw: Every byte that was written, decoded.
    """

    def __init__(
        self, *arguments: str, env: Mapping[str, str] | None = None, cwd: str | None = None
    ) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self._tty = theirs
        self.raw = ""
        self._seen = 0
        self.process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, sys.executable, "-m", "perdure", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment(env),
            cwd=cwd,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._tty)
        os.close(self._ours)

    # --- what a person does ------------------------------------------------------------

    def type(self, text: str) -> None:
        """Type; `\\r` is the Enter key."""
        os.write(self._ours, text.encode())

    def interrupt(self) -> None:
        """Press Ctrl-C, once the command waits for something.

        Python's line editing loses a signal that comes directly before it begins to wait.
        """
        self._until(self._waits, "it does not come to rest")
        self.type("\x03")

    def end(self) -> None:
        """Press Ctrl-D."""
        self.type("\x04")

    def prompt(self) -> str:
        """Wait until the chat asks for a line. Returns what came before."""
        before = self.expect("\n> ")
        self._until(lambda: not self._mode(termios.ICANON), "the prompt takes no keys")
        return before

    # --- what a person sees ------------------------------------------------------------

    def expect(self, text: str) -> str:
        """Wait until `text` shows up after what was expected before. Returns what came until it."""
        never = f"{text!r} never came"
        self._until(lambda: self.text.find(text, self._seen) >= 0, never)
        at = self.text.index(text, self._seen)
        before = self.text[self._seen : at]
        self._seen = at + len(text)
        return before

    def ends(self, code: int) -> None:
        """Wait for the command to end with this exit code, as a shell would say it."""
        self._until(lambda: self.process.poll() is not None, "it does not end")
        self._read_all()
        ended = self.process.returncode
        ended = 128 - ended if ended < 0 else ended
        assert ended == code, f"it ended with {ended}; the screen has:\n{self.text}"

    @property
    def text(self) -> str:
        """What was written, without escape sequences and with plain ends of lines."""
        return SEQUENCE.sub("", self.raw).replace("\r\n", "\n").replace("\r", "")

    @property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    def echoes(self) -> bool:
        """Whether the terminal shows what is typed, as a shell needs it."""
        return self._mode(termios.ECHO)

    def hidden(self) -> None:
        """Wait until what is typed is not shown, as while an answer runs."""
        self._until(lambda: not self.echoes(), "what is typed is shown")

    def _waits(self) -> bool:
        """Whether the command sleeps, as far as the system tells."""
        stat = Path(f"/proc/{self.process.pid}/stat")
        if not stat.exists():
            time.sleep(0.2)
            return True
        return stat.read_text().rpartition(")")[2].split()[0] == "S"

    def _mode(self, flag: int) -> bool:
        return bool(termios.tcgetattr(self._tty)[3] & flag)

    def _until(self, true: Callable[[], bool], otherwise: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not true():
            ended = self.process.poll() is not None
            if not self._read(0.01):
                late = ended or time.monotonic() > deadline
                assert not late, f"{otherwise}; the screen has:\n{self.text}"

    def _read_all(self) -> None:
        while self._read(0):
            pass

    def _read(self, wait: float) -> bool:
        if not select.select([self._ours], [], [], wait)[0]:
            return False
        self.raw += os.read(self._ours, 65536).decode("utf-8", "replace")
        return True


class Piped:
    """What `perdure` wrote into pipes, and how it ended."""

    def __init__(
        self,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        given: bytes = b"",
        cwd: str | None = None,
    ) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "perdure", *arguments],
            input=given,
            capture_output=True,
            env=environment(env),
            cwd=cwd,
            timeout=PATIENCE,
            check=False,
        )
        self.code = done.returncode
        self.out = done.stdout.decode()
        self.err = done.stderr.decode()


class Server:
    """A loopback server on a thread of its own. `model` is its model string for the command."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.server = LoopbackServer(self._model)
        self._do(self.server.__aenter__())
        self.model = f"openresponses:{self.server.base_url}#scripted"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._do(self.server.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def abandoned(self) -> int:
        """How many streams the command has left before their end; waits for the first."""
        deadline = time.monotonic() + PATIENCE
        while not self.server.abandoned and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.server.abandoned

    def inputs(self) -> list[list[Item]]:
        """The input of each request that came."""
        return [_items(decode_request(one.body)) for one in self.server.received]

    def _do(self, work: Coroutine[object, object, object]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)


def _items(request: Request) -> list[Item]:
    given = request.input or ()
    return [user(given)] if isinstance(given, str) else list(given)


class Halting:
    """A scripted model whose stream stops after a delta with the word `at`, until it is let go."""

    def __init__(self, script: Script, at: str) -> None:
        self._model = ScriptedModel(script)
        self._at = at
        self.go = threading.Event()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        async for event in self._model.stream(request):
            yield event
            halts = isinstance(event, OutputTextDelta) and self._at in event.delta
            while halts and not self.go.is_set():  # noqa: ASYNC110 - another thread sets it
                await asyncio.sleep(0.01)
