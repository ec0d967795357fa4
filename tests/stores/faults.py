"""What tests call stores' stop points with: it counts, and breaks or holds at one of them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

from perdure.stores.points import Point


class Faults:
    """Breaks where it was told to. By default it counts."""

    def __init__(self) -> None:
        self.counts: Counter[Point] = Counter()
        self._errors: dict[tuple[Point, int], Callable[[], Exception]] = {}

    def __call__(self, point: Point) -> None:
        self.counts[point] += 1
        error = self._errors.pop((point, self.counts[point]), None)
        if error is not None:
            raise error()

    def fail(self, point: Point, error: Callable[[], Exception], *, nth: int = 1) -> None:
        """Raise at the nth time from now that a point is reached."""
        self._errors[point, self.counts[point] + nth] = error


class Gate(Faults):
    """Holds the thread that reaches a point, once it was told to."""

    def __init__(self) -> None:
        super().__init__()
        self._point: Point | None = None
        self._open = threading.Event()
        self._reached = threading.Event()

    def __call__(self, point: Point) -> None:
        if point == self._point:
            self._reached.set()
            assert self._open.wait(60)
        super().__call__(point)

    def hold(self, point: Point) -> None:
        self._open.clear()
        self._reached.clear()
        self._point = point

    def release(self) -> None:
        self._point = None
        self._open.set()

    def wait(self) -> None:
        """Until somebody is held."""
        assert self._reached.wait(60)
