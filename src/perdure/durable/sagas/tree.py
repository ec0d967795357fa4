"""The tree of a saga: its session and those of its sub-agents, each with the tools of today."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import cast

import msgspec

from perdure.durable.cancelling import tree_of
from perdure.durable.driven import Driven, SubAgent
from perdure.durable.state import read_run
from perdure.log import Call, Header, Recording, Session, Store, View
from perdure.log.entries import AnyEntry, CustomEntry, Json
from perdure.tools import ToolSet, unwrap

NESTED = "perdure:nested_call"
"""The custom entry that tells of a call which a tool makes."""


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class Branch:
    """A session of a saga."""

    session: Session
    views: tuple[View, ...]
    """What each of its roots came to, the last made last."""
    tools: ToolSet
    driven: Driven | None
    """The agent of today; None if its parent has no such tool any more."""
    path: tuple[str, ...] = ()
    """The calls that lead to it."""
    below: dict[str, list[Branch]] = dataclasses.field(default_factory=dict[str, "list[Branch]"])
    """The sub-agents' sessions, by the call that made each."""

    @property
    def view(self) -> View:
        """What it says at its leaf."""
        return self.views[-1]

    def whole(self) -> Iterator[Branch]:
        """Everything below it, the last made first, and then itself."""
        for branches in reversed(list(self.below.values())):
            for branch in reversed(branches):
                yield from branch.whole()
        yield self


async def grow(store: Store, recording: Recording, driven: Driven) -> Branch:
    """The tree of a saga, as it is on the record.

    Raises:
        LogError: The store refuses.
    """
    root = recording.session
    children: dict[str, list[Header]] = {}
    async for listed in tree_of(store, root.id):
        if listed.id != root.id:
            children.setdefault(listed.header.parent_session, []).append(listed.header)
    tree = Branch(
        session=root, views=(recording.view,), tools=await driven.tools_now(), driven=driven
    )
    await _add_children(store, tree, children)
    return tree


async def _add_children(store: Store, branch: Branch, children: Mapping[str, list[Header]]) -> None:
    for header in children.get(branch.session.id, ()):
        name, maker = _maker(branch, header.spawned_by)
        found = branch.tools.get(name)
        tool = unwrap(found) if found is not None else None
        driven = tool.driven if isinstance(tool, SubAgent) else None
        session = await read_run(store, header.id)
        child = Branch(
            session=session,
            views=_views(session),
            tools=await driven.tools_now() if driven is not None else ToolSet(),
            driven=driven,
            path=(*branch.path, maker),
        )
        branch.below.setdefault(maker, []).append(child)
        await _add_children(store, child, children)


def _views(session: Session) -> tuple[View, ...]:
    """The view at the leaf, behind those at the ends of roots that were left (LOG 5.9)."""
    others = [head for head in session.heads if head != session.leaf]
    return (*(session.at(head) for head in others), session.view())


def _maker(branch: Branch, call_id: str) -> tuple[str, str]:
    """The tool of a call that has a session of its own, and the call of the model that made it."""
    for view in reversed(branch.views):
        call = view.calls.named(call_id)
        if call is not None:
            return call.call.name, call_id
        for entry in view.path:
            data = nested_call(entry)
            if data.get("call_id") == call_id and data.get("phase") == "start":
                return str(data.get("name")), _maker(branch, str(data.get("parent")))[1]
    return "", call_id


def nested_call(entry: AnyEntry) -> Json:
    """What an entry tells of a call that a tool makes; empty if it is of something else."""
    if not isinstance(entry, CustomEntry) or entry.ns != NESTED:
        return {}
    found: object = msgspec.json.decode(entry.data)
    return cast("Json", found) if isinstance(found, dict) else {}


def calls_of(branch: Branch) -> Iterator[tuple[View, Call]]:
    """The calls that entered a tool, the last dispatched first."""
    found = [
        (branch.session.place(call.last_dispatch.id), view, call)
        for view in branch.views
        for call in view.calls
        if call.last_dispatch is not None and call.last_dispatch.id in branch.session
    ]
    seen: set[str] = set()
    for _, view, call in sorted(found, key=lambda one: one[0], reverse=True):
        if call.entry not in seen:
            seen.add(call.entry)
            yield view, call
