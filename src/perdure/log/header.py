"""Headers: the first line of a session, about the whole of it. It is never hashed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec
from msgspec import Raw, Struct, field

from perdure.errors import CorruptLog, UnsupportedFormat
from perdure.log.entries import Json
from perdure.log.writing import json_text

FORMAT = "agentsession/0.11"
"""What perdure writes."""

PAYLOAD = "openresponses/2026-04-24"

PROGRAM = "program"
"""The kind of a run that is a program without a model: its steps have no call (LOG 5.5)."""

RECORDS = (
    "run",
    "dispatch",
    "decision",
    "queued",
    "perdure:step",
    "perdure:wait",
    "perdure:vote",
    "perdure:tally",
    "perdure:compensation",
)
"""The record types that perdure always writes, so that their absence means something (LOG 5.9)."""

_NEWEST_MINOR = 11
_FIRST_HASHED_MINOR = 5

Media = Literal["inline", "sidecar"]


class RunIdentity(Struct, frozen=True, kw_only=True):
    """Which run by id a session is (LOG 4.1)."""

    id: str
    kind: str = ""
    saga: bool = False
    """It is all or nothing."""


class Header(Struct, frozen=True, kw_only=True):
    """What a session is. `line` keeps what has no place here."""

    type: str = ""
    format: str = ""
    id: str = ""
    created_at: str = ""
    payload: str = ""
    harness: Json = field(default_factory=dict[str, object])
    records: tuple[str, ...] = ()
    cwd: str = ""
    parent_session: str = ""
    """Where it comes from. Provenance, never checked."""
    base: str = ""
    """The entry it continues from; everything up to it is the prefix."""
    spawned_by: str = ""
    """The call of the parent session whose tool it is."""
    media: Media = "inline"
    redacted: bool = False
    root: str = field(default="", name="perdure:root")
    """The session whose lease covers it; empty if it is a root itself (LOG 2.1)."""
    name: str = field(default="", name="perdure:name")
    run: RunIdentity | None = field(default=None, name="perdure:run")
    agent: str = field(default="", name="perdure:agent")
    """The name of the agent that drives a run by id."""
    principal: str = field(default="", name="perdure:principal")
    """For whom a run by id works."""
    line: bytes = field(default=b"", name="\x7fline")

    @property
    def minor(self) -> int:
        return int(self.format.rpartition(".")[2])

    @property
    def legacy(self) -> bool:
        """Whether its entries have no hashes; they are migrated in memory, never in place."""
        return self.minor < _FIRST_HASHED_MINOR

    @property
    def is_program(self) -> bool:
        """Whether it is the run of a program without a model."""
        return self.run is not None and self.run.kind == PROGRAM

    @property
    def is_saga(self) -> bool:
        """Whether it is a run that is all or nothing, or a sub-agent's session below one."""
        return self.run is not None and self.run.saga

    @property
    def lease_root(self) -> str:
        """The session whose lease and fence hold for this one."""
        return self.root or self.id

    def promises(self, record: str) -> bool:
        """Whether the writer says that it always writes this type of record."""
        return record in self.records


_DECODER = msgspec.json.Decoder(Header)


def decode_header(line: bytes) -> Header:
    """The header of a session's first line.

    Raises:
        CorruptLog: The line is no header.
        UnsupportedFormat: It names a format this version does not read.
    """
    try:
        header = _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptLog(f"not a header: {error}", line=1) from None
    if header.type != "session" or not header.id:
        raise CorruptLog("not a header: no session, or no id", line=1)
    _check_format(header.format)
    msgspec.structs.force_setattr(header, "line", line)
    return header


def _check_format(name: str) -> None:
    family, _, version = name.partition("/")
    major, _, minor = version.partition(".")
    read = family == "agentsession" and major == "0" and minor.isdecimal()
    if not read or not 1 <= int(minor) <= _NEWEST_MINOR:
        raise UnsupportedFormat(name)


class Origin(NamedTuple):
    """The session that another comes from."""

    session: str
    base: str = ""
    """The entry that it goes on from, if it is a fork."""


def new_header(
    session: str,
    created_at: str,
    *,
    records: Sequence[str] = RECORDS,
    name: str = "",
    run: RunIdentity | None = None,
    agent: str = "",
    principal: str = "",
    cwd: str = "",
    origin: Origin | None = None,
    spawned_by: str = "",
    root: str = "",
    media: Media = "inline",
    extra: Mapping[str, object] | None = None,
) -> Header:
    """A header as perdure writes it.

    Args:
        session: The id.
        created_at: A timestamp.
        records: The record types that the writer always writes.
        name: The name the store knows it by.
        run: For a run by id, which.
        agent: The name of the agent that drives it.
        principal: For whom it works.
        cwd: The working directory, if it has one.
        origin: The session that it is a fork or a child of.
        spawned_by: For a sub-agent's session, the call it serves.
        root: For a child, the session whose lease covers it; a detached child has none.
        media: Where binary content stands.
        extra: Further members, each a JSON value.

    Raises:
        NotIJson: A further member is not JSON.
    """
    members: dict[str, object] = {
        "type": "session",
        "format": FORMAT,
        "id": session,
        "created_at": created_at,
        "payload": PAYLOAD,
        "harness": {"name": "perdure", "version": ""},
        "records": list(records),
    }
    optional = {
        "perdure:name": name,
        "perdure:root": root,
        "perdure:agent": agent,
        "perdure:principal": principal,
        "cwd": cwd,
        "spawned_by": spawned_by,
        "parent_session": origin.session if origin else "",
        "base": origin.base if origin else "",
        "media": media if media != "inline" else "",
        "perdure:run": _run_member(run) if run is not None else None,
    }
    members |= {member: value for member, value in optional.items() if value}
    return decode_header(json_text({**members, **(extra or {})}))


def _run_member(run: RunIdentity) -> dict[str, object]:
    return {"id": run.id, "kind": run.kind, **({"saga": True} if run.saga else {})}


def raised(header: Header) -> Header:
    """The header with the format that perdure writes, as before its first append to the session.

    Sessions without hashes stay as they are, and so does what is newer.
    """
    if header.legacy or header.minor >= _NEWEST_MINOR:
        return header
    members = msgspec.json.decode(header.line, type=dict[str, Raw])
    members["format"] = Raw(msgspec.json.encode(FORMAT))
    return decode_header(msgspec.json.encode(members))
