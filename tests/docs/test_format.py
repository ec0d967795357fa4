"""docs/format.md names every member and type that the log and its drivers write as perdure's."""

from __future__ import annotations

import re

from tests.docs.test_coming_from import ROOT

TEXT = (ROOT / "docs" / "format.md").read_text("utf-8")
PACKAGES = ("log", "durable", "loop")
NAME = re.compile(r'"(perdure:[a-z_]+)"')


def written() -> set[str]:
    """The names in the packages that write entries."""
    sources = [path for name in PACKAGES for path in (ROOT / "src" / "perdure" / name).glob("*.py")]
    return {name for path in sources for name in NAME.findall(path.read_text("utf-8"))}


NO_MEMBER = {"perdure:item"}
"""The type that stands in for a missing one."""


def test_the_page_names_every_member_and_type() -> None:
    named = set(re.findall(r"`(perdure:[a-z_]+)`", TEXT))
    assert written() - NO_MEMBER - named == set()


def test_names_are_found_where_they_are_written() -> None:
    assert {"perdure:closed", "perdure:salt", "perdure:wait", "perdure:who"} <= written()
