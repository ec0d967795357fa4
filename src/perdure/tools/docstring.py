"""What a Google-style docstring says: a summary, and a description for each parameter."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import NamedTuple

_SECTION = re.compile(
    r"(?:Args|Arguments|Parameters|Attributes|Keyword Args|Keyword Arguments):\s*"
)
_ENTRY = re.compile(r"\*{0,2}(?P<name>\w+)\s*(?:\([^)]*\))?\s*:\s*(?P<text>.*)")


class Documented(NamedTuple):
    """A docstring, read."""

    summary: str
    members: dict[str, str]
    """Descriptions by the name of the parameter or attribute."""


def read_docstring(text: str | None) -> Documented:
    """The first paragraph, and what the sections for parameters say, each on one line."""
    lines = inspect.cleandoc(text or "").splitlines()
    members: dict[str, str] = {}
    for section in _sections(lines):
        members.update(_entries(section))
    return Documented(_summary(lines), members)


def _summary(lines: list[str]) -> str:
    paragraph: list[str] = []
    for line in lines:
        if not line.strip() or _SECTION.fullmatch(line):
            break
        paragraph.append(line.strip())
    return " ".join(paragraph)


def _sections(lines: list[str]) -> Iterator[list[str]]:
    """The bodies of the sections that describe members."""
    body: list[str] | None = None
    for line in lines:
        if line and not line[0].isspace():
            if body is not None:
                yield body
            body = [] if _SECTION.fullmatch(line) else None
        elif body is not None:
            body.append(line)
    if body is not None:
        yield body


def _entries(body: list[str]) -> dict[str, str]:
    """`name (type): text`, with continuation lines indented further."""
    entries: dict[str, str] = {}
    indent = min((_indent(line) for line in body if line.strip()), default=0)
    name = ""
    for line in body:
        entry = _ENTRY.fullmatch(line.strip()) if _indent(line) == indent else None
        if entry is not None:
            name = entry["name"]
            entries[name] = entry["text"].strip()
        elif name and line.strip():
            entries[name] = f"{entries[name]} {line.strip()}".strip()
    return entries


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
