"""Migration: sessions of formats before 0.5, whose entries had short ids and no hashes.

It happens in memory, in the order of the file, and never in place: each entry gets the id its line
hashes to, its references are rewritten, its timestamp is spelled as it is now, and the id it had
stays as `legacy_id`. What names an entry that is not there stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping

from perdure.log.entries import AnyEntry, Json
from perdure.log.ids import ENVELOPE, ParentRef
from perdure.log.timestamps import respelled
from perdure.log.writing import Draft, seal

_REFERENCES = ("target", "first_kept", "from", "queued_from")
"""Members of a body that name an entry."""


class Migration:
    """The entries of one session, migrated one after the other."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}

    def __contains__(self, legacy_id: str) -> bool:
        return legacy_id in self._ids

    def migrate(self, entry: AnyEntry) -> AnyEntry:
        """The entry as today's format has it.

        Raises:
            ValueError: Its timestamp is none.
            NotIJson: Its body cannot be hashed.
            EntryRefused: A member of its body has a name that the format keeps.
        """
        body = {name: value for name, value in entry.members.items() if name not in ENVELOPE}
        draft = Draft(
            entry.type, self._rewritten(body, entry.id), parents=self._refs(entry.parents)
        )
        parent = self._ids.get(entry.parent, entry.parent) if entry.parent else None
        migrated = seal(draft, parent, respelled(entry.ts))
        if entry.id:
            self._ids[entry.id] = migrated.id
        return migrated

    def _rewritten(self, body: Mapping[str, object], legacy_id: str) -> Json:
        rewritten = dict(body)
        for name in _REFERENCES:
            value = rewritten.get(name)
            if isinstance(value, str):
                rewritten[name] = self._ids.get(value, value)
        return {**rewritten, "legacy_id": legacy_id} if legacy_id else rewritten

    def _refs(self, parents: tuple[ParentRef, ...]) -> tuple[ParentRef, ...]:
        return tuple(
            ref if ref.session else ParentRef(entry=self._ids.get(ref.entry, ref.entry))
            for ref in parents
        )
