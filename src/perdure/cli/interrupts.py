"""Ctrl-C while a run goes on: it stops the run, which then winds down and tells everything."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager

from perdure.cli.page import Page
from perdure.stream import RunStream

PATIENCE = 0.3
"""Seconds that a run which was told to stop may take before somebody says what it waits for."""


def _nothing() -> None:
    pass


@contextmanager
def stopped_by_ctrl_c(
    stream: RunStream, page: Page, says: str, *, then: Callable[[], None] = _nothing
) -> Generator[None]:
    """Let Ctrl-C stop a run for as long as the block runs, instead of raising.

    Args:
        stream: The run.
        page: Where it is shown.
        says: What to say if it does not stop at once.
        then: What else to do.
    """
    loop = asyncio.get_running_loop()
    patience: list[asyncio.TimerHandle] = []

    def stop() -> None:
        page.interrupted()
        if not patience:
            patience.append(loop.call_later(PATIENCE, page.note, says))
            stream.abort("interrupted")
            then()

    loop.add_signal_handler(signal.SIGINT, stop)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        for timer in patience:
            timer.cancel()


def die_of_next_interrupt() -> None:
    """Let the next Ctrl-C end the process at once."""
    asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
