"""`perdure log`: what each command prints, and how it ends."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from perdure.cli.log import log
from perdure.log import read_session
from perdure.stores.jsonl import JsonlStore
from tests.log.building import Built


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(log, [str(one) for one in arguments], standalone_mode=False)


def code(result: Result) -> int:
    error = result.exception
    return int(getattr(error, "exit_code", 99)) if error else int(result.return_value)


@pytest.fixture
def stored(tmp_path: Path) -> str:
    """A store with a branched session that is called `chat`."""
    built = Built()
    built.config(model="m")
    root = built.user("first \x1b[2J")
    built.answer("one", "r1")
    built.response("r1")
    built.rewind(root)
    built.answer("two", "r2")
    built.response("r2")

    async def put() -> None:
        store = JsonlStore(tmp_path)
        await store.create(built.header, name="chat", batch=built.session.entries)
        await store.close()

    asyncio.run(put())
    return f"file://{tmp_path}"


def test_ls(stored: str) -> None:
    result = invoke("ls", "--store", stored)
    assert result.stdout.split()[:1] == ["session"]
    assert result.stdout.rstrip().endswith("chat")
    one = json.loads(invoke("ls", "--store", stored, "--json").stdout)
    assert (one["id"], one["name"], one["entries"]) == ("session", "chat", 7)
    assert invoke("ls", "--store", stored, "--status", "done").stdout == ""


def test_show_tells_the_path_to_the_leaf(stored: str) -> None:
    result = invoke("show", "chat", "--store", stored)
    assert code(result) == 0
    assert "assistant: two" in result.stdout
    assert "assistant: one" not in result.stdout
    assert "\x1b" not in result.stdout


@pytest.mark.parametrize("name", ["basic", "compaction", "omit", "converge"])
def test_context_of_a_file_as_json(sessions: Path, contexts: Path, name: str) -> None:
    expected = json.loads((contexts / f"{name}.json").read_bytes())
    for leaf, context in expected.items():
        result = invoke("context", sessions / f"{name}.jsonl", "--leaf", leaf[:20], "--json")
        assert json.loads(result.stdout) == context


def test_context_for_people(stored: str) -> None:
    result = invoke("context", "session", "--store", stored)
    assert "assistant: two" in result.stdout


def test_tree_shows_every_branch_and_the_leaf(stored: str) -> None:
    lines = invoke("tree", "chat", "--store", stored).stdout.splitlines()
    assert len(lines) == 7
    assert sum("assistant" in line for line in lines) == 2
    assert [line.endswith("<- leaf") for line in lines].count(True) == 1


def test_verify(sessions: Path, stored: str) -> None:
    assert code(invoke("verify", sessions / "runs.jsonl")) == 0
    assert code(invoke("verify", "chat", "--store", stored)) == 0
    wrong = invoke("verify", sessions / "bad-omit.jsonl")
    assert code(wrong) == 1
    assert wrong.stdout.startswith("line 16: request_hash")


def test_export_then_import_gives_the_same_bytes(sessions: Path, tmp_path: Path) -> None:
    store = f"file://{tmp_path}/other"
    file = sessions / "replay.jsonl"
    imported = invoke("import", file, "--store", store, "--name", "deploy")
    assert code(imported) == 0
    out = tmp_path / "out.jsonl"
    assert code(invoke("export", "deploy", "--store", store, "-o", out)) == 0
    assert out.read_bytes() == file.read_bytes()
    assert (
        invoke("export", imported.stdout.strip(), "--store", store).stdout_bytes == out.read_bytes()
    )


@pytest.mark.parametrize("name", ["bad-omit", "corrupt-middle", "truncated", "unsupported-format"])
def test_what_does_not_verify_is_not_imported(sessions: Path, tmp_path: Path, name: str) -> None:
    result = invoke("import", sessions / f"{name}.jsonl", "--store", f"file://{tmp_path}")
    assert code(result) != 0
    assert list(tmp_path.glob("*/*.jsonl")) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "nobody"),
        ("show", "no/such/file.jsonl"),
        ("ls",),
        ("context", "SESSION", "--leaf", "zzz"),
        ("verify", "UNSUPPORTED"),
    ],
)
def test_what_is_not_there_ends_with_two(
    sessions: Path, tmp_path: Path, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PERDURE_STORE", raising=False)
    places = {"SESSION": "basic", "UNSUPPORTED": "unsupported-format"}
    given = [str(sessions / f"{places[a]}.jsonl") if a in places else a for a in arguments]
    if given[1:] == ["nobody"]:
        given += ["--store", f"file://{tmp_path}"]
    assert code(invoke(*given)) == 2


def test_a_fork_is_read_with_its_origin(sessions: Path, tmp_path: Path) -> None:
    store = f"file://{tmp_path}"
    for name in ("basic", "fork"):
        assert code(invoke("import", sessions / f"{name}.jsonl", "--store", store)) == 0
    header = read_session((sessions / "fork.jsonl").read_bytes()).session.header
    assert code(invoke("verify", header.id, "--store", store)) == 0
