"""The interchange layout: what the file of a session is called."""

from __future__ import annotations

import re

from perdure.log.header import Header

_FILE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


def is_file_id(session: str) -> bool:
    """Whether a session id may be part of a file's name."""
    return _FILE_ID.fullmatch(session) is not None


def project(cwd: str) -> str:
    """The directory for the sessions of a working directory."""
    key = re.sub(r"[/\\:]", "-", cwd)
    return key if key.strip(".") else "default"


def file_name(header: Header) -> str:
    """The name of a session's file: when it was made, to the millisecond, and its id."""
    moment, _, fraction = header.created_at.removesuffix("Z").partition(".")
    stamp = f"{moment.replace(':', '-')}.{fraction[:3].ljust(3, '0')}Z"
    return f"{stamp}_{header.id}.jsonl"
