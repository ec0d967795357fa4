"""A recorded session on files: a crash at every byte, and what goes on from there."""

# ruff: noqa: ASYNC240 - a test may look at a file while nothing else runs
from __future__ import annotations

import os
from pathlib import Path

import pytest

from perdure.log.entries import DispatchEntry
from perdure.log.reading import read_session
from perdure.log.recording import go_on
from perdure.stores.jsonl import JsonlStore
from perdure.stores.session_file import SessionFile
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


async def test_a_crash_at_any_byte_leaves_the_whole_lines_before_it(tmp_path: Path) -> None:
    """So there are as many sessions to go on from as lines: the next test does, from each.

    A file begins whole, header and all, so none is cut within its header.
    """
    data, _, path = await whole(tmp_path)
    header, *lines = data.splitlines()
    ends = [len(header) + 1]
    for line in lines:
        ends.append(ends[-1] + len(line) + 1)
    for size in range(len(data), ends[0] - 1, -1):
        os.truncate(path, size)
        left = sum(end - 1 <= size for end in ends[1:])  # one that lacks its line end is whole
        file = SessionFile(path)
        file.refresh()
        assert file.lines == lines[:left], size
        assert (file.torn is None) == (size in (ends[left], ends[left] - 1)), size
        assert file.size == min(ends[left], size), size  # what goes on writes behind that


@pytest.mark.parametrize("torn", [0, 40, -1], ids=["between two lines", "in one", "before its end"])
async def test_a_session_goes_on_from_a_crash_at_any_byte(tmp_path: Path, torn: int) -> None:
    data, session, path = await whole(tmp_path)
    header = data.index(b"\n") + 1
    ends = [at + 1 for at, byte in enumerate(data) if byte == ord("\n")]
    for size in (end + torn for end in ends if header <= end + torn <= len(data)):
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
        written = path.read_bytes()
        assert written.startswith(data[: max(end - 1 for end in ends if end - 1 <= size)])
        assert read_session(written).faults == ()


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
