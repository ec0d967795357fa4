"""Items that wait to join a drive.

What is *steered* joins after the batch that runs, before the next model call. What is *followed
up* joins when the drive would otherwise end. What is *delivered* waits with what is steered, and
whoever delivered it hears when a request has carried it. Queueing never waits for anything.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from perdure.loop.events import Queued, QueueMode
from perdure.loop.trigger import Trigger
from perdure.wire import Item


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class Waiting:
    """One item in a queue."""

    id: str
    item: Item
    mode: QueueMode
    hidden: bool = False
    trigger: Trigger | None = None
    skip: bool = False
    """Calls of a sequential batch that have not started are skipped because of it."""
    taken: asyncio.Future[bool] | None = None
    """For a delivery: True once a request has carried the item, False if the drive that took it
    ended before one did."""


class Report(NamedTuple):
    """That an item was accepted, on its way to whoever listens."""

    event: Queued
    noted: bool
    """It is written down already."""


class Queues:
    """The queues of a session, or of one low-level drive, which has nobody to fill them."""

    def __init__(self) -> None:
        self.steering: deque[Waiting] = deque()
        self.follow_ups: deque[Waiting] = deque()
        self._reports: deque[Queued] = deque()
        self._noted = 0
        """How many of them, from the oldest on, are written down already."""
        self._steered: asyncio.Future[None] | None = None

    def put(self, waiting: Waiting, run_id: str) -> None:
        """Accept an item. `run_id` is the drive that will take it, empty if none is running."""
        queue = self.follow_ups if waiting.mode == "follow_up" else self.steering
        queue.append(waiting)
        self._reports.append(
            Queued(
                run_id=run_id,
                queue_id=waiting.id,
                item=waiting.item,
                mode=waiting.mode,
                hidden=waiting.hidden,
                trigger=waiting.trigger,
            )
        )
        if queue is self.steering and self._steered is not None and not self._steered.done():
            self._steered.set_result(None)

    def next_report(self) -> Report | None:
        """Take the oldest report that was not delivered yet."""
        if not self._reports:
            return None
        noted, self._noted = self._noted > 0, max(self._noted - 1, 0)
        return Report(self._reports.popleft(), noted)

    def note_reports(self, note: Callable[[Queued], object]) -> None:
        """Have the reports written down, between drives; the next drive delivers them."""
        while self._noted < len(self._reports):
            _ = note(self._reports[self._noted])
            self._noted += 1

    @property
    def has_reports(self) -> bool:
        """Whether a report waits to be delivered."""
        return bool(self._reports)

    def owe(self, waiting: Waiting) -> None:
        """Take back what a record says is owed; it was reported when it was accepted."""
        queue = self.follow_ups if waiting.mode == "follow_up" else self.steering
        queue.append(waiting)

    def take_steering(self) -> list[Waiting]:
        """Everything that is steered or delivered."""
        return _drain(self.steering)

    def take_follow_ups(self) -> list[Waiting]:
        """Everything that follows up."""
        return _drain(self.follow_ups)

    def give_back(self, waiting: Sequence[Waiting]) -> None:
        """Put items that were taken and have not joined back to the front of their queues."""
        for one in reversed(waiting):
            queue = self.follow_ups if one.mode == "follow_up" else self.steering
            queue.appendleft(one)

    def steered(self) -> asyncio.Future[None]:
        """Done as soon as something is steered that no drive has taken yet."""
        if self._steered is None or (self._steered.done() and not self.steering):
            self._steered = asyncio.get_running_loop().create_future()
        if self.steering and not self._steered.done():
            self._steered.set_result(None)
        return self._steered


def _drain(queue: deque[Waiting]) -> list[Waiting]:
    waiting = list(queue)
    queue.clear()
    return waiting
