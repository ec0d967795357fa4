"""Tables on a terminal."""

from __future__ import annotations


class Table:
    """Rows of figures under a title."""

    def __init__(self, title: str, *columns: str) -> None:
        self._title = title
        self._rows: list[tuple[str, ...]] = [columns]

    def row(self, name: object, *figures: float | str) -> None:
        """Add a row."""
        cells = (f if isinstance(f, str) else f"{f:,.2f}" for f in figures)
        self._rows.append((f"{name:,}" if isinstance(name, int) else str(name), *cells))

    def show(self) -> None:
        """Print it."""
        widths = [max(map(len, column)) for column in zip(*self._rows, strict=True)]
        print(self._title)
        for row in self._rows:
            cells = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
            print("  " + row[0].ljust(widths[0]) + "  " + "  ".join(cells))
        print()
