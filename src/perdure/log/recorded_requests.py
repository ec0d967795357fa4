"""What a recorder keeps of requests: config entries, and hashes that the log can rebuild.

A *delta* of settings is held until something else is written, so that the settings of an attempt
that failed are replaced by those of the next. A hash is recorded only if the path rebuilds exactly
the request that was sent (DESIGN 7: that costs the items since the last one).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import msgspec
from msgspec import Struct

from perdure.errors import NotIJson
from perdure.log.context import OTHER_MODELS
from perdure.log.entries import Json
from perdure.log.settings import Settings, tool_name
from perdure.log.writing import Draft
from perdure.loop import Compaction, Items, ModelRequest
from perdure.wire import Item, Request, canonical_json, encode
from perdure.wire.normal import RequestHash

_NOT_SETTINGS = frozenset(
    {"input", "store", "stream", "stream_options", "background", "previous_response_id"}
)
_OWN_MEMBERS = ("model", "instructions", "reasoning", "text", "tools")


def settings_of(request: Request) -> Json:
    """The settings of a request, as a config that replaces all says them."""
    members = msgspec.json.decode(
        encode(msgspec.structs.replace(request, input=msgspec.UNSET)), type=Json
    )
    given = {
        name: value
        for name, value in members.items()
        if name not in _NOT_SETTINGS and not (value is None or value in ("", [], {}))
    }
    settings: Json = {name: given.pop(name) for name in _OWN_MEMBERS if name in given}
    return {**settings, "extra": given} if given else settings


def base_hash(settings: Request) -> str:
    """What tells an agent's settings from others; empty where they are not I-JSON."""
    try:
        return RequestHash(settings).digest()
    except NotIJson:
        return ""


def settings_json(settings: Settings) -> Json:
    """Settings in force, in the same shape."""
    shown = settings.as_json()
    return {n: shown[n] for n in (*_OWN_MEMBERS, "extra") if n in shown}


def config_body(before: Json, now: Json) -> Json:
    """The config entry that makes `now` of `before`, whichever way is smaller; empty if none."""
    if _same(before, now):
        return {}
    whole = _whole(now)
    delta = _delta(before, now)
    if not before or delta is None:
        return whole
    return delta if len(canonical_json(delta)) < len(canonical_json(whole)) else whole


def _whole(now: Json) -> Json:
    members = {name: value for name, value in now.items() if name != "tools"}
    tools = now.get("tools")
    return {**members, "replace": True, **({"tools_added": tools} if tools else {})}


def _delta(before: Json, now: Json) -> Json | None:
    """Only what differs; None if something is to go that no delta can remove."""
    delta: Json = {}
    for name in ("model", "instructions", "reasoning", "text"):
        if _same(before.get(name), now.get(name)):
            continue
        if name not in now:
            return None
        delta[name] = now[name]
    tools = _tools_delta(_tools(before), _tools(now))
    if tools is None:
        return None
    return {**delta, **tools, **_extra_delta(_extra(before), _extra(now))}


def _tools(settings: Json) -> list[Json]:
    return list(cast("Sequence[Json]", settings.get("tools", ())))


def _extra(settings: Json) -> Json:
    return cast("Json", settings.get("extra", {}))


def _tools_delta(before: list[Json], now: list[Json]) -> Json | None:
    """What is added stands at the end, so a tool in the middle takes all behind it along."""
    rest = iter(before)
    kept: list[Json] = []
    for tool in now:
        if not any(_same(tool, other) for other in rest):
            break
        kept.append(tool)
    added = now[len(kept) :]
    names = {tool_name(tool) for tool in (*kept, *added)}
    gone = [tool for tool in before if not any(_same(tool, other) for other in kept)]
    if any(not tool_name(tool) for tool in (*gone, *added)):
        return None
    removed = [tool_name(tool) for tool in gone if tool_name(tool) not in names]
    delta: Json = {"tools_removed": removed, "tools_added": added}
    return {name: value for name, value in delta.items() if value}


def _extra_delta(before: Json, now: Json) -> Json:
    changed = {n: v for n, v in now.items() if n not in before or not _same(before[n], v)}
    gone = dict.fromkeys(name for name in before if name not in now)
    return {"extra": {**changed, **gone}} if changed or gone else {}


def _same(one: object, other: object) -> bool:
    if one == other and type(one) is type(other):
        return True
    try:
        return canonical_json(one) == canonical_json(other)
    except NotIJson:
        return False


class Placed(Struct, frozen=True, gc=False):
    """An item of the context."""

    item: Item
    thinker: str = ""
    """The model that thought it, if it is a thought."""
    entry: Draft | str = ""
    """Its own entry; empty if it stands in a compaction's."""


class Unplaced(Exception):
    """A compaction of what is not on the path."""


class RequestLog:
    """The settings and items that the path holds, beside those that are sent.

    Args:
        settings: The settings in force.
        items: The items of the context.
    """

    def __init__(self, settings: Settings, items: Iterable[Placed]) -> None:
        self._in_force = settings_json(settings)
        self._omits = settings.omit_reasoning == OTHER_MODELS
        self._left_out = settings.omit_items
        self._path: list[Placed] = list(items)
        self._compaction: Compaction | None = None
        self._expected: list[Item] = []  # of the path, what a request of the model holds
        self._looked = 0  # how much of the path it was made of
        self._model = str(self._in_force.get("model", ""))
        self._request: Request | None = None
        self._memo: object = None
        self._hash: RequestHash | None = None
        self._hashed = 0
        self.held: Json = {}
        """The config entry that is to be written before anything else."""

    def add(self, item: Item, entry: Draft | str, thinker: str = "") -> None:
        """An item joined the path."""
        self._path.append(Placed(item, thinker, entry))

    def compacted(self, compaction: Compaction | None) -> bool:
        """Whether there is nothing to fold: the path has the compaction, or there is none."""
        last = self._compaction
        return compaction is None or (last is not None and compaction.same(last))

    def compact(self, compaction: Compaction) -> Draft | str:
        """Fold the beginning of the path; the entry of the first item that stays.

        Raises:
            Unplaced: The path has none of the items that stay, or not what is pinned.
        """
        self._compaction = compaction
        at = self._first_kept(compaction)
        folded = self._path[:at]
        pinnable = folded if folded and folded[0].entry else folded[1:]  # no summary is pinned
        for item in compaction.pinned:
            if not any(one.item is item for one in pinnable):
                raise Unplaced("what it pins is not on the path before what it keeps")
        own = (Placed(item) for item in (compaction.summary, *compaction.pinned))
        first = self._path[at].entry
        self._path = [*own, *self._path[at:]]
        self._expected, self._looked = [], 0
        self._hash = None
        return first

    def _first_kept(self, compaction: Compaction) -> int:
        places = {id(one.item): at for at, one in enumerate(self._path) if one.entry}
        found = (places[id(item)] for item in compaction.kept if id(item) in places)
        at = next(found, None)
        if at is None:
            raise Unplaced("nothing that it keeps is on the path")
        return at

    @property
    def model(self) -> str:
        """The model of the last request."""
        return self._model

    def settle(self, settings: Request) -> None:
        """Hold the config entry that gives these settings, if they are not in force."""
        if settings is self._request:
            return
        self._request = settings
        now = settings_of(settings)
        self.held = config_body(self._in_force, now)
        model = str(now.get("model", ""))
        if model != self._model:
            self._expected, self._looked = [], 0
        self._model = model
        foreign = any(one.thinker not in ("", model) for one in self._path)
        self.held |= self._omit(foreign or self._omits, cleared=bool(self.held.get("replace")))
        self._hash = None

    def _omit(self, thoughts: bool, *, cleared: bool) -> Json:  # noqa: FBT001
        """What the held entry has to leave out; one that replaces all says it once more."""
        omit: Json = {}
        if thoughts and (cleared or not self._omits):
            omit["reasoning"] = OTHER_MODELS
        if cleared and self._left_out:
            omit["items"] = list(self._left_out)
        return {"omit": omit} if omit else {}

    def take_held(self) -> Json:
        """The config entry to write now; empty if there is none."""
        held, self.held = self.held, {}
        if held and self._request is not None:
            self._in_force = settings_of(self._request)
            self._omits = self._omits or "reasoning" in cast("Json", held.get("omit", {}))
        return held

    def drop_held(self) -> None:
        """Forget the settings of an attempt that nothing came of."""
        self.held = {}
        self._request = None

    def hash_of(self, request: ModelRequest) -> tuple[str, str]:
        """The hash of a request as it is sent, and why there is none.

        `settle` has been asked with its settings.
        """
        fault = self._differs(request.input)
        if fault:
            return "", fault
        try:
            if self._hash is None or self._memo is not request.input.memo:
                self._hash, self._hashed = RequestHash(request.settings), 0
                self._memo = request.input.memo
            self._hash.extend(request.input[self._hashed :])
            self._hashed = len(request.input)
            return self._hash.digest(), ""
        except NotIJson as error:
            self._hash = None
            return "", f"the request is not I-JSON: {error}"

    def _differs(self, sent: Items) -> str:
        """Why the path does not rebuild the input that is sent; empty if it does."""
        omits = self._omits or "reasoning" in cast("Json", self.held.get("omit", {}))
        before = len(self._expected)
        self._expected += [
            placed.item
            for placed in self._path[self._looked :]
            if not omits or placed.thinker in ("", self._model)
        ]
        self._looked = len(self._path)
        if self._memo is not sent.memo or self._hash is None or self._hashed > len(sent):
            before = 0
        before = min(before, self._hashed)
        if len(sent) != len(self._expected):
            return f"{len(sent)} items are sent, the path has {len(self._expected)}"
        pairs = zip(sent[before:], self._expected[before:], strict=True)
        for place, (one, other) in enumerate(pairs, before):
            if one is not other and one != other:
                return f"the item at {place} is not the path's"
        return ""


def trigger_json(members: Mapping[str, object]) -> Json:
    """A trigger's members, without those that are empty."""
    return {name: value for name, value in members.items() if value not in ("", None)}
