"""JSONL files: the layout, crashes at every byte, locks."""

# ruff: noqa: ASYNC240 - a test may look at a file while nothing else runs
from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from perdure.errors import CorruptLog, EntryRefused, FenceLost, Leased, StoreFailed
from perdure.log.entries import AnyEntry
from perdure.log.header import new_header
from perdure.log.reading import read_session
from perdure.log.store import Fence, Filters, Message
from perdure.stores.jsonl import JsonlStore
from perdure.stores.locks import Lock
from perdure.testing.store_kit import chain, header
from tests.log.building import Built


def only_file(directory: Path) -> Path:
    (found,) = directory.glob("*/*.jsonl")
    return found


async def recorded(directory: Path, entries: list[AnyEntry], acknowledged: list[int]) -> None:
    """A session whose appends were acknowledged at these versions, then a crash."""
    store = JsonlStore(directory)
    await store.create(header())
    lease = await store.lease("s1", holder="gone")
    for start, end in zip([0, *acknowledged], acknowledged, strict=False):
        await store.append("s1", start, lease.fence, entries[start:end])
    await store.release(lease)
    await store.close()


def conversation() -> list[AnyEntry]:
    built = Built(header())
    built.config(model="m")
    built.start()
    built.user("\u20ac \U0001f600 \x00")
    built.call("c")
    built.response()
    built.dispatch("c", "k")
    built.output("c", "done")
    built.end()
    return built.session.entries


async def test_a_crash_at_any_byte_leaves_what_was_acknowledged(tmp_path: Path) -> None:
    entries = conversation()
    acknowledged = [1, 3, 5, 6, 8]
    await recorded(tmp_path / "whole", entries, acknowledged)
    whole = only_file(tmp_path / "whole")
    data = whole.read_bytes()
    ends = [i + 1 for i, byte in enumerate(data) if byte == ord("\n")]
    store = JsonlStore(tmp_path / "cut")
    cut = tmp_path / "cut" / whole.parent.name / whole.name
    cut.parent.mkdir(parents=True)
    sizes = range(ends[0], len(data) + 1)
    for size in (n for n in sizes if n % 9 == 0 or any(abs(n - end) < 9 for end in ends)):
        cut.write_bytes(data[:size])
        kept = sum(end <= size for end in ends) - 1
        entire = kept + (size + 1 in ends)  # a last line that lacks its line end alone
        before = await store.read("s1")
        assert before.version == entire
        assert list(before.lines) == [entry.line for entry in entries[:entire]]
        lease = await store.lease("s1", holder="next")
        # Whoever does not know what was written submits it again: whatever is there is held.
        appended = await store.append("s1", 0, lease.fence, entries)
        assert (appended.version, appended.held) == (len(entries), entire)
        await store.release(lease)
        assert cut.read_bytes() == data
        cut.write_bytes(b"")
    await store.close()


@pytest.mark.parametrize(
    "tail", [b'{"id":"sha', b'{"id":"sha\n', b"\x00\x00\x00", b'"text"\n', b"\n"]
)
async def test_a_torn_last_line_is_left_by_readers_and_trimmed_by_the_next_append(
    tmp_path: Path, tail: bytes
) -> None:
    entries = chain(3)
    await recorded(tmp_path, entries[:2], [2])
    path = only_file(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data + tail)
    store = JsonlStore(tmp_path)
    assert (await store.read("s1")).version == 2
    assert path.read_bytes() == data + tail
    lease = await store.lease("s1", holder="next")
    await store.append("s1", 2, lease.fence, entries[2:])
    assert path.read_bytes() == data + entries[2].line + b"\n"
    await store.close()


async def test_a_torn_line_is_trimmed_by_an_append_of_nothing_new(tmp_path: Path) -> None:
    entries = chain(2)
    await recorded(tmp_path, entries, [2])
    path = only_file(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data + b'{"id"')
    store = JsonlStore(tmp_path)
    lease = await store.lease("s1", holder="next")
    assert (await store.append("s1", 0, lease.fence, entries)).held == 2
    assert path.read_bytes() == data
    await store.close()


async def test_a_line_that_is_broken_in_the_middle_is_never_written_behind(tmp_path: Path) -> None:
    entries = chain(3)
    await recorded(tmp_path, entries, [3])
    path = only_file(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], lines[2][:30] + b"\n", *lines[3:]]))
    store = JsonlStore(tmp_path)
    stored = await store.read("s1")
    assert stored.version == 3
    lease = await store.lease("s1", holder="next")
    with pytest.raises(CorruptLog) as caught:
        await store.append("s1", 3, lease.fence, chain(1, under=entries[2].id, first=9))
    assert caught.value.line == 3
    await store.close()


async def test_the_layout_is_the_interchange_layout(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    made = new_header("id-1", "2026-10-01T12:00:00.25Z", cwd="/home/u/a:b")
    await store.create(made)
    await store.create(new_header("id-2", "2026-10-01T12:00:00Z"))
    data = b"blob"
    digest = await store.write_blob("id-1", data)
    names = {str(path.relative_to(tmp_path)) for path in tmp_path.glob("[!.]*/*")}
    assert names == {
        "-home-u-a-b/2026-10-01T12-00-00.250Z_id-1.jsonl",
        "-home-u-a-b/id-1",
        "default/2026-10-01T12-00-00.000Z_id-2.jsonl",
    }
    blob = tmp_path / "-home-u-a-b" / "id-1" / digest.removeprefix("sha256:")
    assert blob.read_bytes() == data
    await store.close()


async def test_export_and_import_give_the_same_bytes(tmp_path: Path, shared: Path) -> None:
    store = JsonlStore(tmp_path)
    folder = shared / "fixtures" / "agentsession" / "sessions"
    for name in ("basic", "converge", "normalised", "extensions", "parts"):
        session = read_session((folder / f"{name}.jsonl").read_bytes()).session
        await store.create(session.header, batch=session.entries)
        (path,) = tmp_path.glob(f"*/*_{session.id}.jsonl")
        assert path.read_bytes() == (folder / f"{name}.jsonl").read_bytes()
        await store.delete(session.id)
    await store.close()


async def test_the_header_of_an_older_format_is_raised_by_rewriting(tmp_path: Path) -> None:
    entries = chain(2)
    await recorded(tmp_path, entries[:1], [1])
    path = only_file(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"agentsession/0.11", b"agentsession/0.6"))
    inode = path.stat().st_ino
    store = JsonlStore(tmp_path)
    lease = await store.lease("s1", holder="next")
    await store.append("s1", 1, lease.fence, [])
    assert b"agentsession/0.6" in path.read_bytes()  # nothing was appended
    await store.append("s1", 1, lease.fence, entries[1:])
    assert path.stat().st_ino != inode
    lines = path.read_bytes().splitlines()
    assert b"agentsession/0.11" in lines[0]
    assert lines[1:] == [entry.line for entry in entries]
    await store.close()


async def test_a_session_without_hashes_is_read_only(tmp_path: Path) -> None:
    await recorded(tmp_path, [], [])
    path = only_file(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"agentsession/0.11", b"agentsession/0.4"))
    store = JsonlStore(tmp_path)
    lease = await store.lease("s1", holder="next")
    with pytest.raises(EntryRefused):
        await store.append("s1", 0, lease.fence, chain(1))
    await store.close()


# --- locks -----------------------------------------------------------------------------


def lock_path(directory: Path) -> Path:
    path = only_file(directory)
    return path.with_name(path.name + ".lock")


def dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


async def test_the_lock_of_a_dead_process_is_taken_over_and_told(tmp_path: Path) -> None:
    await recorded(tmp_path, [], [])
    pid = dead_process()
    lock = {"pid": pid, "host": socket.gethostname(), "since": "2026-10-01T12:00:00Z"}
    lock_path(tmp_path).write_text(json.dumps(lock))
    told: list[tuple[str, Lock]] = []
    store = JsonlStore(tmp_path, on_takeover=lambda root, dead: told.append((root, dead)))
    lease = await store.lease("s1", holder="next")
    assert [(root, dead.pid) for root, dead in told] == [("s1", pid)]
    await store.append("s1", 0, lease.fence, chain(1))
    await store.close()


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"pid": 1, "host": socket.gethostname(), "since": ""}),
        json.dumps({"pid": 999_999_999, "host": "elsewhere", "since": ""}),
        "not JSON",
        "",
    ],
)
async def test_any_other_lock_is_respected_until_it_is_broken(tmp_path: Path, text: str) -> None:
    await recorded(tmp_path, [], [])
    lock_path(tmp_path).write_text(text)
    store = JsonlStore(tmp_path)
    with pytest.raises(Leased):
        await store.lease("s1", holder="next")
    with pytest.raises(FenceLost):
        await store.append("s1", 0, Fence(1, ""), chain(1))
    await store.break_lock("s1")
    await store.lease("s1", holder="next")
    await store.close()


async def test_a_lock_with_our_number_that_we_never_took_is_a_dead_process(tmp_path: Path) -> None:
    """A container that restarts has the same process number and the same host name."""
    await recorded(tmp_path, [], [])
    lock = {"pid": os.getpid(), "host": socket.gethostname(), "since": "", "nonce": "old"}
    lock_path(tmp_path).write_text(json.dumps(lock))
    store = JsonlStore(tmp_path)
    assert (await store.lease("s1", holder="next")).fence.nonce != "old"
    await store.close()


DRIVER = """
import asyncio, sys
from perdure.stores.jsonl import JsonlStore
from perdure.testing.store_kit import chain

async def main():
    store = JsonlStore(sys.argv[1])
    lease = await store.lease("s1", holder="the other process")
    await store.append("s1", 0, lease.fence, chain(1))
    print("driving", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_a_live_process_keeps_its_lease_and_a_killed_one_loses_it(tmp_path: Path) -> None:
    await recorded(tmp_path, [], [])
    process = subprocess.Popen(  # noqa: ASYNC220 - our own interpreter
        [sys.executable, "-c", DRIVER, str(tmp_path)], stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"driving\n"
        store = JsonlStore(tmp_path)
        with pytest.raises(Leased) as caught:
            await store.lease("s1", holder="next")
        assert caught.value.holder == "the other process"
        await store.put("s1", Message(id="m"))  # whoever does not drive may still tell
        process.send_signal(signal.SIGKILL)
        process.wait()
        lease = await store.lease("s1", holder="next")
        assert (await store.append("s1", 0, lease.fence, chain(1))).held == 1
        assert [message.id for message in await store.unconsumed("s1")] == ["m"]
        await store.close()
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


FULL_DISK = """
import asyncio, resource, signal, sys
from perdure.errors import StoreFailed
from perdure.stores.jsonl import JsonlStore
from perdure.testing.store_kit import chain

async def main():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    store = JsonlStore(sys.argv[1])
    lease = await store.lease("s1", holder="x")
    entries = chain(40)
    await store.append("s1", 0, lease.fence, entries[:2])
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
    try:
        await store.append("s1", 2, lease.fence, entries[2:])
    except StoreFailed:
        print("failed", (await store.read("s1")).version)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    appended = await store.append("s1", 2, lease.fence, entries[2:])
    print(appended.version, appended.held)

asyncio.run(main())
"""


async def test_a_full_disk_takes_the_append_back(tmp_path: Path) -> None:
    await recorded(tmp_path, [], [])
    done = subprocess.run(  # noqa: ASYNC221 - our own interpreter
        [sys.executable, "-c", textwrap.dedent(FULL_DISK), str(tmp_path)],
        capture_output=True,
        check=True,
    )
    assert done.stdout.split() == [b"failed", b"2", b"40", b"0"]
    assert read_session(only_file(tmp_path).read_bytes()).faults == ()


async def test_a_directory_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "default").write_text("a file where a directory should be")
    store = JsonlStore(tmp_path)
    with pytest.raises(StoreFailed):
        await store.create(header())
    await store.close()


async def test_a_name_without_its_session_is_free(tmp_path: Path) -> None:
    """A crash between taking the name and making the session."""
    store = JsonlStore(tmp_path)
    await store.create(header(), name="order")
    only_file(tmp_path).unlink()
    await store.create(header("s2"), name="order")
    assert [one.id for one in (await store.list(Filters(name="order"))).sessions] == ["s2"]
    await store.close()


async def test_a_torn_message_was_never_accepted(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    await store.create(header())
    await store.put("s1", Message(id="m1"))
    path = only_file(tmp_path)
    inbox = path.with_name(path.name + ".inbox")
    inbox.write_bytes(inbox.read_bytes() + b'{"id":"m2","bo')
    assert [message.id for message in await store.unconsumed("s1")] == ["m1"]
    assert (await store.put("s1", Message(id="m2"))).number == 2
    assert [message.id for message in await store.unconsumed("s1")] == ["m1", "m2"]
    await store.close()


async def test_files_of_others_are_left_alone(tmp_path: Path, shared: Path) -> None:
    folder = shared / "fixtures" / "agentsession" / "sessions"
    store = JsonlStore(tmp_path)
    await store.create(header())
    shutil.copy(folder / "unsupported-format.jsonl", tmp_path / "default" / "2026_other.jsonl")
    (tmp_path / "default" / "2026_empty.jsonl").write_text("")
    assert [one.id for one in (await store.list()).sessions] == ["s1"]
    await store.close()
