"""Lists of sessions: which match, and in pages."""

from __future__ import annotations

from collections.abc import Iterable

from perdure.log.store import Filters, Listed, Page


def matches(listed: Listed, filters: Filters) -> bool:
    """Whether a session is among those asked for."""
    header = listed.header
    kind = header.run.kind if header.run is not None else ""
    wanted = (
        (filters.name, listed.name),
        (filters.kind, kind),
        (filters.parent, header.parent_session),
        (filters.root, header.lease_root),
        (filters.cwd, header.cwd),
    )
    return (
        all(not asked or asked == has for asked, has in wanted)
        and (not filters.statuses or listed.summary.status in filters.statuses)
        and not (filters.roots_only and header.root)
        and not (filters.runs_only and header.run is None)
    )


def page(listed: Iterable[Listed], after: str, limit: int) -> Page:
    """One page, in the order of creation."""
    ordered = sorted(listed, key=place_of)
    rest = [one for one in ordered if not after or place_of(one) > after]
    shown = tuple(rest[:limit])
    return Page(shown, place_of(shown[-1]) if shown and len(rest) > limit else "")


def place_of(listed: Listed) -> str:
    """Where a session stands in a list, to go on behind it."""
    return f"{listed.header.created_at}/{listed.id}"
