"""Compactions that a hook makes, in the record: the requests behind one can be rebuilt."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pytest

from perdure.log import read_lines
from perdure.log.context import item_of
from perdure.log.entries import CompactionEntry, CustomEntry, ResponseEntry
from perdure.log.reading import Reading
from perdure.log.recording import Recording
from perdure.loop import Compacted, Compaction, Config, Middleware, ModelRequest, RunInfo, transform
from perdure.stores.memory import MemoryStore
from perdure.testing.scripted import TurnLike, call
from perdure.wire import Item, Message, Usage, developer, user
from tests.log.core_checker import Checker
from tests.log.driving import Counted, config_of, crashed_after, drive, fresh, reading

SCRIPT: Sequence[TurnLike] = [*(call("act", {"n": n}) for n in range(5)), "one", "two", "three"]


class Folds(Middleware):
    """Folds all but the last items of a transcript, as soon as it is long, and keeps to that."""

    def __init__(
        self, *, over: int = 5, keep: int = 2, pin: Callable[[Item], bool] | None = None
    ) -> None:
        self.over = over
        self.keep = keep
        self.pin = pin
        self.made: list[Compaction] = []

    async def transform(self, items: Sequence[Item], info: RunInfo) -> Sequence[Item]:
        shown = self.made[-1].applied(items) if self.made else None
        if len(shown or items) <= self.over:
            return shown or items
        folded, kept = items[: -self.keep], items[-self.keep :]
        self.made.append(
            Compaction(
                summary=user(f"Summary {len(self.made) + 1} of {len(folded)}."),
                pinned=tuple(one for one in folded if self.pin is not None and self.pin(one)),
                kept=tuple(kept),
                tokens_before=1000,
                usage=Usage(input_tokens=70, output_tokens=7, total_tokens=77),
                model="small",
            )
        )
        return self.made[-1].applied(items) or items


def config(*middleware: Middleware, script: Sequence[TurnLike] = ("after", "that")) -> Config:
    """A model that goes by how often it was asked: what it is shown is not all that was said."""
    turns = iter(script)
    return config_of(lambda _: next(turns), [Counted(effect="none")], middleware=middleware)


async def chat(recording: Recording, folds: Middleware, *more: Middleware) -> None:
    settings = config(*more, folds, script=SCRIPT)
    await drive(recording, settings, "go")
    await drive(recording, settings, "and")
    await drive(recording, settings, "and more")


def compactions(read: Reading) -> list[CompactionEntry]:
    return [one for one in read.session.entries if isinstance(one, CompactionEntry)]


def verified(read: Reading) -> Reading:
    """Nothing is wrong with it, and each of its requests can be rebuilt."""
    assert read.faults == ()
    responses = [one for one in read.session.entries if isinstance(one, ResponseEntry)]
    assert responses
    for response in responses:
        if not response.incomplete:  # a crash cut it, and nobody knows what was sent
            read.session.check_request(response.id)
    return read


def spoken(items: Sequence[Item]) -> list[str]:
    return [one.text for one in items if isinstance(one, Message)]


async def test_each_compaction_is_an_entry_and_every_request_behind_it_has_its_hash() -> None:
    recording = await fresh()
    folds = Folds()
    await chat(recording, folds)
    read = verified(await reading(recording))
    lines = [read.session.header.line, *(one.line for one in read.session.entries)]
    assert Checker(b"\n".join(lines)).faults == []
    found = compactions(read)
    assert len(found) == len(folds.made) > 1
    first = found[0].members
    assert item_of(found[0].summary) == folds.made[0].summary
    assert first["tokens_before"] == 1000
    assert first["fold"] == {"model": "small"}
    assert first["config"]["model"] == "m"  # type: ignore[index]
    assert read.session.entry(found[0].first_kept).type == "item"
    assert read.session.spend().by_model["m"].total >= 77 * len(found)


async def test_a_crash_anywhere_around_a_compaction_leaves_a_session_that_goes_on() -> None:
    recording = await fresh()
    await chat(recording, Folds())
    entries = (await reading(recording)).session.entries
    places = [place for place, one in enumerate(entries) if one.type == "compaction"]
    for keep in sorted({place + by for place in places for by in (0, 1, 2)}):
        again = await crashed_after(recording, keep)
        await drive(again, config(Folds()), "go on")
        verified(await reading(again))


async def test_who_goes_on_begins_with_the_summary() -> None:
    recording = await fresh()
    folds = Folds()
    await chat(recording, folds)
    count = len((await reading(recording)).session)
    again = await crashed_after(recording, count)
    shown = again.transcript.snapshot()
    assert shown[0] == folds.made[-1].summary
    assert len(shown) < len(recording.transcript)
    await drive(again, config(Folds(over=3)), "after")
    read = verified(await reading(again))
    assert len(compactions(read)) == len(folds.made) + 1  # one that folds the summary, too


async def test_what_is_pinned_stands_in_the_entry_and_behind_the_summary() -> None:
    recording = await fresh()

    def pin(item: Item) -> bool:
        return isinstance(item, Message) and item.text == "go"

    folds = Folds(pin=pin)
    await chat(recording, folds)
    read = verified(await reading(recording))
    assert len(compactions(read)) > 1
    for entry in compactions(read):  # a later one states it again
        (pinned,) = entry.pinned
        assert msgspec.json.decode(pinned)["content"][0]["text"] == "go"
    assert spoken(read.session.context().items)[1] == "go"
    again = await crashed_after(recording, len(read.session))
    assert spoken(again.transcript.snapshot())[1] == "go"
    await drive(again, config(Folds(over=3, pin=pin)), "after")
    later = verified(await reading(again))
    assert spoken(later.session.context().items)[1] == "go"  # also what a record pinned before


async def test_what_a_hook_keeps_beside_a_summary_without_saying_so_has_no_hash() -> None:
    recording = await fresh()

    class Keeps(Folds):
        async def transform(self, items: Sequence[Item], info: RunInfo) -> Sequence[Item]:
            shown = list(await super().transform(items, info))
            return [shown[0], items[0], *shown[1:]] if self.made else shown

    await chat(recording, Keeps())
    read = await reading(recording)
    assert read.faults == ()
    assert compactions(read) == []
    hashes = [one.request_hash for one in read.session.entries if isinstance(one, ResponseEntry)]
    assert any(hashes)
    assert not all(hashes)


async def test_a_hook_in_front_may_drop_items_and_the_compaction_still_names_what_it_kept() -> None:
    @transform
    async def without_notes(items: Sequence[Item], info: RunInfo) -> Sequence[Item]:
        return [one for one in items if not (isinstance(one, Message) and one.text == "go")]

    recording = await fresh()
    folds = Folds()
    await chat(recording, folds, without_notes)
    read = await reading(recording)
    assert read.faults == ()
    for entry, made in zip(compactions(read), folds.made, strict=True):
        kept = msgspec.json.decode(read.session.entry(entry.first_kept).line)["item"]
        assert kept["type"] == made.kept[0].type
    last = [one for one in read.session.entries if isinstance(one, ResponseEntry)][-1]
    assert last.request_hash  # all that was dropped is folded by then


async def test_a_compaction_of_items_that_are_not_the_records_is_told_once_and_not_written() -> (
    None
):
    @transform
    async def redacted(items: Sequence[Item], info: RunInfo) -> Sequence[Item]:
        return [msgspec.structs.replace(one) for one in items]

    class Once(Middleware):
        made: Compaction | None = None

        async def transform(self, items: Sequence[Item], info: RunInfo) -> Sequence[Item]:
            if self.made is None:
                self.made = Compaction(summary=user("All of it."), kept=(items[-1],))
            return Compacted(self.made, items[-1:])

    recording = await fresh()
    await chat(recording, Once(), redacted)
    read = await reading(recording)
    assert read.faults == ()
    assert compactions(read) == []
    customs = [one for one in read.session.entries if isinstance(one, CustomEntry)]
    unplaced = [one for one in customs if one.ns == "perdure:compaction_unplaced"]
    assert [msgspec.json.decode(one.data) for one in unplaced] == [
        {"reason": "nothing that it keeps is on the path"}
    ]


@pytest.mark.parametrize("pinned", [user("never said"), developer("nor this")])
async def test_what_was_never_said_cannot_be_pinned(pinned: Item) -> None:
    class Pins(Middleware):
        async def transform(self, items: Sequence[Item], info: RunInfo) -> Sequence[Item]:
            made = Compaction(summary=user("S"), kept=(items[-1],), pinned=(pinned,))
            return made.applied(items) or items

    recording = await fresh()
    await drive(recording, config_of(["done"], middleware=[Pins()]), "a", "b")
    read = await reading(recording)
    assert (read.faults, compactions(read)) == ((), [])
    assert any(b"compaction_unplaced" in one.line for one in read.session.entries)


async def test_the_settings_of_a_request_stand_before_its_compaction_and_in_its_checkpoint() -> (
    None
):
    class Warmer(Middleware):
        async def before_model_call(self, request: ModelRequest) -> ModelRequest:
            warm = msgspec.structs.replace(request.settings, temperature=0.5)
            return ModelRequest(settings=warm, input=request.input)

    recording = await fresh()
    await chat(recording, Folds(), Warmer())
    read = verified(await reading(recording))
    for entry in compactions(read):
        assert entry.config["extra"]["temperature"] == 0.5  # type: ignore[index]
    assert read.session.context().settings.extra["temperature"] == 0.5
    stored = await recording.store.read(recording.session.id)
    assert read_lines(stored.header, stored.lines).faults == ()
    assert isinstance(recording.store, MemoryStore)
