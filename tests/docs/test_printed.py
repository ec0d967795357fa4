"""What a snippet says that it prints, in a comment behind `print(...)`, is what it prints."""

from __future__ import annotations

import re

import pytest

from tests.test_docs import ALL, Snippet, run

SAID = re.compile(r"^ *print\(.*\)(?:  |\n *)# (?P<line>.+)$", re.MULTILINE)

PRINTING = [snippet for snippet in ALL if SAID.search(snippet.code)]


def missing(said: list[str], printed: list[str]) -> list[str]:
    """The lines of `said` that do not stand in `printed`, in that order."""
    rest = iter(printed)
    return [line for line in said if line not in rest]


@pytest.mark.parametrize("snippet", PRINTING, ids=[snippet.name for snippet in PRINTING])
def test_a_snippet_prints_what_it_says(
    snippet: Snippet, capsys: pytest.CaptureFixture[str]
) -> None:
    run(snippet)
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert missing(SAID.findall(snippet.code), printed) == [], printed


def test_a_line_that_is_missing_or_out_of_order_is_found() -> None:
    assert missing(["a", "b"], ["a", "x", "b"]) == []
    assert missing(["a", "b"], ["b", "a"]) == ["b"]


def test_a_comment_behind_a_print_or_below_it_is_what_it_says() -> None:
    code = "x = 1  # one\nprint(x)  # 1\nif x:\n    print(x + x)\n    # 2\nprint()\n"
    assert SAID.findall(code) == ["1", "2"]
