"""`perdure log repair | fork | diff | gc | reindex | erase` and `perdure doctor`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import click
import pytest
from click.testing import CliRunner, Result

from perdure.cli import log as log_commands, store_commands
from perdure.log import read_lines
from perdure.log.header import Origin, decode_header, new_header
from perdure.log.store import Message, Store, Summary
from perdure.stores import open_store
from perdure.stores.jsonl import JsonlStore
from perdure.testing.store_kit import chain, header
from tests.log.building import Built, message

T = TypeVar("T")


def invoke(command: click.Command, *arguments: str | Path) -> Result:
    return CliRunner().invoke(command, [str(one) for one in arguments], standalone_mode=False)


def code(result: Result) -> int:
    error = result.exception
    return int(getattr(error, "exit_code", 99)) if error else int(result.return_value)


def within(url: str, work: Callable[[Store], Awaitable[T]]) -> T:
    async def run() -> T:
        store = open_store(url)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(run())


def conversation() -> Built:
    built = Built()
    built.config(model="m")
    built.start()
    built.user("my card is 4111")
    built.answer("noted")
    built.response()
    built.end()
    return built


@pytest.fixture(params=["jsonl", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store with a conversation in it that is called `chat`."""
    if request.param == "jsonl":
        named = f"file://{tmp_path}/sessions"
    elif request.param == "sqlite":
        named = f"sqlite:///{tmp_path}/s.db"
    else:
        server: str = request.getfixturevalue("postgres_server")
        schema: str = request.getfixturevalue("postgres_schema")
        named = f"{server}{'&' if '?' in server else '?'}schema={schema}"
    built = conversation()

    async def put(store: Store) -> None:
        await store.create(
            built.header,
            name="chat",
            batch=built.session.entries,
            summary=Summary(status="done", leaf=built.session.leaf),
        )

    within(named, put)
    return named


def test_repair_of_a_session_in_a_store(url: str) -> None:
    result = invoke(store_commands.repair, "chat", "--store", url)
    assert (code(result), result.stdout) == (0, "session: 6 entries, all whole\n")


def test_repair_trims_a_torn_file_and_keeps_what_it_trimmed(tmp_path: Path) -> None:
    built = conversation()
    lines = [built.header.line, *(entry.line for entry in built.session.entries)]
    whole = b"".join(line + b"\n" for line in lines)
    path = tmp_path / "x.jsonl"
    path.write_bytes(whole + b'{"id":"sha')
    result = invoke(store_commands.repair, path)
    assert code(result) == 0
    assert "trimmed 10 bytes of line 8" in result.stdout
    assert path.read_bytes() == whole
    assert (tmp_path / "x.jsonl.torn").read_bytes() == b'{"id":"sha'


def test_repair_changes_nothing_in_the_middle(tmp_path: Path) -> None:
    built = conversation()
    lines = [built.header.line, *(entry.line for entry in built.session.entries)]
    lines[3] = lines[3].replace(b"4111", b"4112")
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    before = path.read_bytes()
    result = invoke(store_commands.repair, path)
    assert code(result) == 1
    assert "line 4: hash" in result.stdout
    assert path.read_bytes() == before


def test_fork_and_diff(url: str) -> None:
    entries = conversation().session.entries
    base = entries[2].id.removeprefix("sha256:")[:12]
    result = invoke(store_commands.fork, f"chat@{base}", "--store", url, "--name", "other")
    assert code(result) == 0
    made = result.stdout.strip()

    async def read(store: Store) -> list[str]:
        stored = await store.read(made)
        reading = read_lines(stored.header, stored.lines)
        assert reading.faults == ()
        assert stored.header.base == entries[2].id
        return [entry.id for entry in reading.session.entries]

    assert within(url, read)[:3] == [entry.id for entry in entries[:3]]
    result = invoke(store_commands.diff, "chat", "other", "--store", url)
    assert result.stdout.splitlines()[0] == f"3 entries are the same, up to {base[:8]}"
    assert "assistant: noted" in result.stdout
    assert [line[0] for line in result.stdout.splitlines()[1:4]] == ["-", "-", "-"]


def test_gc_removes_what_ended_long_ago_children_first(url: str) -> None:
    async def put(store: Store) -> None:
        ended = Summary(status="done")
        for name in ("a", "busy", "told", "forked"):
            made = new_header(name, "1990-01-01T00:00:00Z")
            await store.create(made, summary=ended)
        lease = await store.lease("a", holder="x")
        for name in ("a1", "a2"):
            made = new_header(name, "1990-01-01T00:00:01Z", root="a", origin=Origin("a"))
            await store.create(made, fence=lease.fence)
        await store.release(lease)
        await store.create(
            new_header("waits", "1990-01-01T00:00:00Z"), summary=Summary(status="input_required")
        )
        await store.put("told", Message(id="m"))
        await store.lease("busy", holder="somebody")
        entries = chain(1)
        lease = await store.lease("forked", holder="x")
        await store.append("forked", 0, lease.fence, entries)
        await store.release(lease)
        made = new_header("fork", "1990-01-01T00:00:00Z", origin=Origin("forked", entries[0].id))
        await store.create(made, batch=entries, summary=Summary(status="suspended"))

    within(url, put)
    dry = invoke(store_commands.gc, "--store", url, "--older-than", "5000d", "--dry-run")
    assert "would be removed" in dry.stdout
    result = invoke(store_commands.gc, "--store", url, "--older-than", "5000d")
    assert code(result) == 0
    lines = result.stdout.splitlines()
    order = [line.split()[0] for line in lines if line.startswith("a")]
    assert order == ["a1", "a2", "a"]
    assert "busy stays: it is driven by" in result.stdout
    assert "told stays: messages wait in it" in result.stdout
    assert lines[-1].startswith("3 sessions, ")

    async def left(store: Store) -> set[str]:
        return {one.id for one in (await store.list()).sessions}

    assert within(url, left) == {"busy", "told", "forked", "fork", "waits", "session"}


def test_reindex_recomputes_what_lists_show(url: str) -> None:
    async def spoil(store: Store) -> None:
        lease = await store.lease("session", holder="x")
        stale = Summary(status="wrong", leaf="sha256:no", due=7)
        await store.append("session", 6, lease.fence, (), summary=stale)
        await store.release(lease)

    within(url, spoil)
    result = invoke(store_commands.reindex, "--store", url)
    assert (code(result), result.stdout) == (0, "1 summaries were wrong\n")

    async def summary(store: Store) -> Summary:
        return (await store.list()).sessions[0].summary

    found = within(url, summary)
    built = conversation()
    assert (found.status, found.leaf, found.due) == ("done", built.session.leaf, 7)
    assert invoke(store_commands.reindex, "--store", url).stdout == "0 summaries were wrong\n"


def test_erase_follows_copies_and_forks_and_the_session_verifies(url: str) -> None:
    built = conversation()
    secret = built.session.entries[2]
    copy = Built(built.header, built.session.entries)
    copy.add("queued", {"item": message("my card is 4111"), "mode": "steer"})
    more = copy.session.entries[len(built.session.entries) :]

    async def put(store: Store) -> None:
        lease = await store.lease("session", holder="x")
        await store.append("session", 6, lease.fence, more)
        await store.release(lease)

    within(url, put)
    invoke(store_commands.fork, "chat", "--store", url, "--name", "other")
    prefix = secret.id.removeprefix("sha256:")[:10]
    result = invoke(store_commands.erase, "chat", prefix, "--store", url, "--yes")
    assert code(result) == 0
    assert [line.split(": ")[1] for line in result.stdout.splitlines()] == ["2 bodies erased"] * 2

    async def check(store: Store) -> None:
        for one in (await store.list()).sessions:
            stored = await store.read(one.id)
            assert read_lines(stored.header, stored.lines).faults == ()
            assert not any(b"4111" in line for line in stored.lines)

    within(url, check)
    exported = invoke(log_commands.export, "chat", "--store", url)
    head, *lines = exported.stdout.encode().splitlines()
    assert decode_header(head).redacted
    assert read_lines(decode_header(head), lines).faults == ()
    assert b"4111" not in exported.stdout.encode()


def test_doctor(url: str) -> None:
    result = invoke(store_commands.doctor, "--store", url)
    if url.startswith("postgresql:"):
        assert code(result) == (1 if "fsync is 'off'" in result.stdout else 0)
    else:
        assert code(result) == 0
        assert result.stdout.startswith("ok")


def test_doctor_names_a_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    url = f"sqlite:///{path}"

    async def fill(store: Store) -> None:
        for number in range(40):
            await store.create(header(f"s{number}"), batch=chain(20))

    within(url, fill)
    data = bytearray(path.read_bytes())
    middle = len(data) // 2 // 4096 * 4096
    data[middle : middle + 4096] = b"\x55" * 4096
    path.write_bytes(data)
    result = invoke(store_commands.doctor, "--store", url)
    assert code(result) == 1
    assert "error" in result.stdout


def test_what_cannot_begin_says_why(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/sessions"
    JsonlStore(tmp_path / "sessions")
    for result in (
        invoke(store_commands.repair, "nosuch"),
        invoke(store_commands.fork, "nosuch", "--store", url),
        invoke(store_commands.diff, "a", "b", "--store", url),
        invoke(store_commands.gc, "--store", url, "--older-than", "soon"),
        invoke(store_commands.doctor, "--store", "nosuch:"),
    ):
        assert code(result) == 2
