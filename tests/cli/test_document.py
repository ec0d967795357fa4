"""What docs/cli.md shows can be typed, and what it lists is what there is."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.testing import ScriptedModel
from tests.cli.terminal import PATIENCE, Server, environment
from tests.cli.test_jsonlines import BASE, MEMBERS

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text("utf-8")
SHELL = re.findall(r"^```sh\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
TOOLS = re.findall(r"^```python\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)[0]


@pytest.mark.parametrize("block", SHELL, ids=[block.split("\n")[0] for block in SHELL])
def test_the_shell_blocks_can_be_typed(block: str, tmp_path: Path) -> None:
    (tmp_path / "parts.py").write_text(TOOLS)
    (tmp_path / "notes.txt").write_text("Bolts came, nuts did not.")
    # A directory with a colon in its name cannot be on PATH, and a checkout may lie in one.
    command = tmp_path / "bin" / "perdure"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m perdure "$@"\n')
    command.chmod(0o755)
    with Server(ScriptedModel(lambda turn: f"Answer {turn}.")) as server:
        env = environment(
            {
                "PATH": f"{command.parent}:{os.environ['PATH']}",
                "PERDURE_MODEL": server.model,
                "OPENAI_API_KEY": "sk-test",
                "OPENAI_BASE_URL": server.server.base_url,
            }
        )
        done = subprocess.run(
            ["/bin/sh", "-eu", "-c", block],
            cwd=tmp_path,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "perdure: " not in done.stderr
        asks = re.search(r"perdure (run|chat)\b", block) is not None
        assert bool(server.server.received) == asks


def test_the_lines_of_json_are_listed_with_their_members() -> None:
    table = TEXT.partition("## JSON lines")[2]
    listed: dict[str, set[str]] = {}
    for row in re.findall(r"^\| (`.*?) \| (.*) \|$", table, re.MULTILINE):
        members = set(re.findall(r"`(\w+)`", row[1]))
        listed |= dict.fromkeys(re.findall(r"`(\w+)`", row[0]), members)
    listed.pop("type")
    assert {kind: BASE | members for kind, members in listed.items()} == MEMBERS
