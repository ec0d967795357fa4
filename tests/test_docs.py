"""Every Python snippet in the documents runs, and every link between files leads somewhere.

A block stands alone, and may use `await` at the top level. One that cannot run here has
`<!-- not run: why -->` on the line before it.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

BLOCK = re.compile(
    r"(?P<skip><!-- not run: [^\n]+ -->\n)?"
    r"^(?P<indent> *)```python[^\n]*\n(?P<code>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)
LINK = re.compile(r"\]\((?!https?:|mailto:|#)(?P<target>[^)#\s]+)(?:#[^)]*)?\)")


class Snippet(NamedTuple):
    document: str
    line: int
    code: str

    @property
    def name(self) -> str:
        return f"{self.document}:{self.line}"


def snippets(document: str, text: str) -> Iterator[Snippet]:
    """The Python blocks of a document that are to run."""
    for match in BLOCK.finditer(text):
        if match["skip"]:
            continue
        line = text.count("\n", 0, match.start("code"))
        code = re.sub(rf"^{match['indent']}", "", match["code"], flags=re.MULTILINE)
        # the blank lines make a traceback show the document's own line numbers
        yield Snippet(document, line + 1, "\n" * line + code)


def run(snippet: Snippet) -> None:
    """Run a block in a module of its own."""
    code = compile(snippet.code, snippet.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    module = ModuleType("perdure_snippet")
    sys.modules[module.__name__] = module
    try:
        if code.co_flags & inspect.CO_COROUTINE:
            asyncio.run(eval(code, module.__dict__))  # noqa: S307 - our own documents
        else:
            exec(code, module.__dict__)  # noqa: S102 - the same
    finally:
        del sys.modules[module.__name__]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


ALL = [s for path in DOCUMENTS for s in snippets(name_of(path), path.read_text("utf-8"))]


@pytest.mark.parametrize("snippet", ALL, ids=[s.name for s in ALL])
def test_snippet_runs(snippet: Snippet) -> None:
    run(snippet)


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_between_files_lead_somewhere(path: Path) -> None:
    targets = [m["target"] for m in LINK.finditer(path.read_text("utf-8"))]
    assert [t for t in targets if not (path.parent / t).exists()] == []


HEADING = re.compile(r"^#+ (?P<text>.+)$", re.MULTILINE)
ANCHOR = re.compile(r"\]\((?P<target>[^):\s#]*)#(?P<anchor>[^)\s]+)\)")
FENCED = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)


def anchors(path: Path) -> set[str]:
    """What links to the headings of a document are called, as GitHub makes them."""
    text = FENCED.sub("", path.read_text("utf-8"))
    heads = (re.sub(r"[^\w\- ]", "", match["text"].lower()) for match in HEADING.finditer(text))
    return {head.strip().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_to_headings_lead_to_one(path: Path) -> None:
    links = list(ANCHOR.finditer(FENCED.sub("", path.read_text("utf-8"))))
    lost = [
        m[0]
        for m in links
        if m["anchor"] not in anchors(path.parent / m["target"] if m["target"] else path)
    ]
    assert lost == []


def test_a_marked_snippet_is_left_out_and_others_keep_their_line() -> None:
    text = (
        "# x\n\n```python\na = 1\n```\n\n<!-- not run: it needs a key -->\n```python\nb\n```\n"
        "* indented:\n\n  ```python\n  if True:\n      c = 1\n  ```\n\n```sh\nd\n```\n"
    )
    assert list(snippets("x.md", text)) == [
        Snippet("x.md", 4, "\n\n\na = 1\n"),
        Snippet("x.md", 14, "\n" * 13 + "if True:\n    c = 1\n"),
    ]


def test_a_snippet_may_await_at_the_top_level() -> None:
    with pytest.raises(ZeroDivisionError):
        run(Snippet("x.md", 1, "import asyncio\nawait asyncio.sleep(0)\n1 / 0\n"))
