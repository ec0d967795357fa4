"""Stop points: named places in a store's writing at which a test can halt, kill or break it.

```
begin       the transaction is about to begin
checked     an append has passed its checks and has written nothing
written     one member of the transaction has written all it will
commit      the commit is about to be sent
committed   the commit has returned; nobody has been told
told        everybody has been told
```

An error raised at `commit` or `committed` is an error of the commit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias, get_args

Point = Literal["begin", "checked", "written", "commit", "committed", "told"]

POINTS: tuple[Point, ...] = get_args(Point)

At: TypeAlias = Callable[[Point], None]
"""Called at each point, by whatever thread writes."""


def passing(point: Point) -> None:
    """Go on: what stores do at every point unless a test says otherwise."""
