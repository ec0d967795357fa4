"""The log: what a session is, what is projected from it, and what writes it.

Words. A *session* is a tree of content-addressed *entries* under one id; a *path* runs from its
root to a *leaf*. *Context entries* decide what the model gets, *record entries* say what happened.
A *projection* is a pure function of a path's entries; a *view* holds all of them and follows new
entries one by one. A *store* keeps sessions. A *draft* is an entry that has no parent yet; the
*appender* gives it one, and a *recorder* makes drafts of a drive's events.

The format is agentsession 0.11. What is perdure's own in it stands in `docs/format.md`.
"""

from perdure.log.appender import Appender, AppendTicket
from perdure.log.calls import Call
from perdure.log.context import Context, Omission, context_json
from perdure.log.drives import Drive
from perdure.log.entries import AnyEntry, Entry, decode_entry
from perdure.log.environment import Env, EnvAsked, EnvSource
from perdure.log.header import Header, Origin, RunIdentity, decode_header, new_header
from perdure.log.ids import new_session_id, subsession_id
from perdure.log.path import View
from perdure.log.reading import Reading, read_lines, read_session
from perdure.log.recorder import Recorder
from perdure.log.recording import Recording, go_on, open_named, record
from perdure.log.session import Session
from perdure.log.settings import Settings
from perdure.log.spend import Spend, Tokens
from perdure.log.store import (
    Appended,
    Blobs,
    Erasure,
    Fence,
    Filters,
    Frames,
    Inbox,
    Lease,
    Leases,
    Listed,
    Log,
    Message,
    Page,
    Put,
    Redaction,
    Renewing,
    Store,
    Stored,
    Summary,
    Transactions,
)
from perdure.log.verify import Fault, FaultKind
from perdure.log.writing import Draft, seal

__all__ = [
    "AnyEntry",
    "AppendTicket",
    "Appended",
    "Appender",
    "Blobs",
    "Call",
    "Context",
    "Draft",
    "Drive",
    "Entry",
    "Env",
    "EnvAsked",
    "EnvSource",
    "Erasure",
    "Fault",
    "FaultKind",
    "Fence",
    "Filters",
    "Frames",
    "Header",
    "Inbox",
    "Lease",
    "Leases",
    "Listed",
    "Log",
    "Message",
    "Omission",
    "Origin",
    "Page",
    "Put",
    "Reading",
    "Recorder",
    "Recording",
    "Redaction",
    "Renewing",
    "RunIdentity",
    "Session",
    "Settings",
    "Spend",
    "Store",
    "Stored",
    "Summary",
    "Tokens",
    "Transactions",
    "View",
    "context_json",
    "decode_entry",
    "decode_header",
    "go_on",
    "new_header",
    "new_session_id",
    "open_named",
    "read_lines",
    "read_session",
    "record",
    "seal",
    "subsession_id",
]
