"""Where other people's data lies that tests read in place: `../shared`, or PERDURE_SHARED.

Tests take the fixture `shared`; what has to read at collection time takes `find()`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def location() -> Path:
    """Where the folder is expected."""
    named = os.environ.get("PERDURE_SHARED")
    return Path(named) if named else ROOT.parent / "shared"


def find() -> Path | None:
    """The folder, or None where it is absent."""
    path = location()
    return path if path.is_dir() else None


def reason() -> str:
    """Why a test that needs the folder is skipped."""
    return f"no shared data at {str(location())!r}; set PERDURE_SHARED to where it lies"


needs_shared = pytest.mark.skipif(find() is None, reason=reason())
"""For tests that are generated from the folder."""
