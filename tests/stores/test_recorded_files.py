"""A recorded session on files: a crash at every byte, and what goes on from there."""

# ruff: noqa: ASYNC240 - a test may look at a file while nothing else runs
from __future__ import annotations

from pathlib import Path

from perdure.log.entries import DispatchEntry
from perdure.log.reading import read_session
from perdure.log.recording import go_on
from perdure.stores.jsonl import JsonlStore
from perdure.testing.scripted import Script, call
from tests.log.driving import Counted, config_of, drive, fresh
from tests.log.test_resuming import finish, paired

SCRIPT: Script = [call("act", {"n": 1}), "done"]


async def whole(directory: Path) -> tuple[bytes, str, Path]:
    store = JsonlStore(directory)
    recording = await fresh(store)
    await drive(recording, config_of(SCRIPT, [Counted()]), "go \u20ac")
    await recording.close()
    await store.close()
    (path,) = directory.glob("*/*.jsonl")
    return path.read_bytes(), recording.session.id, path


async def test_a_session_goes_on_from_a_crash_at_any_byte(tmp_path: Path) -> None:
    data, session, path = await whole(tmp_path)
    header = data.index(b"\n") + 1
    ends = {i + 1 for i, byte in enumerate(data) if byte == ord("\n")}
    near = {end + by for end in ends for by in (-2, -1, 0, 1, 40)}
    for size in sorted(
        {*range(header, len(data) + 1, 97), *near} & set(range(header, len(data) + 1))
    ):
        path.write_bytes(data[:size])
        path.with_name(path.name + ".summary").unlink(missing_ok=True)
        store = JsonlStore(tmp_path)
        again = await go_on(store, session)
        before = again.session.entries
        dispatched = any(isinstance(entry, DispatchEntry) for entry in before)
        act = Counted()
        await finish(again, config_of(SCRIPT, [act]))
        assert len(act.entered) + dispatched <= 1 + (dispatched and not act.entered)
        assert not (dispatched and act.entered)
        paired(list(again.transcript.snapshot()))
        await again.close()
        await store.close()
        assert read_session(path.read_bytes()).faults == ()


async def test_it_is_found_again_by_its_name_with_all_it_had(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    recording = await fresh(store, name="chat-7")
    await drive(recording, config_of(SCRIPT, [Counted()]), "go")
    await recording.close()
    await store.close()
    store = JsonlStore(tmp_path)
    (listed,) = (await store.list()).sessions
    assert (listed.name, listed.summary.status) == ("chat-7", "done")
    again = await go_on(store, listed.id)
    assert list(again.transcript.snapshot()) == list(recording.transcript.snapshot())
    assert again.recorder.appender.view.context.settings.model == "m"
    await drive(again, config_of([call("act", {"n": 1}), "done", "more"], [Counted()]), "and")
    await again.close()
    await store.close()
