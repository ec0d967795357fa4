"""Which conversation a run of `call_model` goes on with, and what is decided about its calls."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import cast

from perdure.compose.accessors import StateAccessor, clear_interruption, interruption_of
from perdure.compose.logged import LogState
from perdure.compose.state import ConversationState
from perdure.errors import ConfigError


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A conversation that an accessor keeps, that the log keeps, or that nobody does."""

    accessor: StateAccessor | None = None
    logged: LogState | None = None
    initial: ConversationState | None = None
    """What to begin from, where nobody keeps it."""
    approve: frozenset[str] = frozenset()
    """Calls of it that may run now."""
    reject: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    """Calls of it that must not, with the reasons."""

    @property
    def is_kept(self) -> bool:
        """Whether it outlives the run."""
        return self.accessor is not None or self.logged is not None

    @property
    def decides(self) -> bool:
        """Whether the run goes on with decisions about calls that wait."""
        return bool(self.approve or self.reject)

    async def interruption(self) -> str | None:
        """Who asked the run to stop; None if nobody did."""
        return await interruption_of(self.accessor or self.logged)

    async def clear_interruption(self) -> None:
        """Forget that somebody asked the run to stop."""
        await clear_interruption(self.accessor or self.logged)


def conversation_of(
    state: StateAccessor | ConversationState | None,
    approve: Collection[str],
    reject: Collection[str] | Mapping[str, str],
    *,
    says: bool,
) -> Conversation:
    """The conversation that a caller means.

    Args:
        state: Who keeps it, or what to begin from.
        approve: Calls of it that may run now.
        reject: Calls of it that must not.
        says: Whether the caller says something as well.

    Raises:
        ConfigError: It is none, or the decisions do not fit it.
    """
    approved, rejected = _decisions(approve, reject)
    if (approved or rejected) and state is None:
        raise ConfigError("approve and reject speak about calls of a state; give state=...")
    if (approved or rejected) and says:
        raise ConfigError("decisions go on without an input; say it in the next call_model")
    if isinstance(state, LogState):
        return Conversation(logged=state, approve=approved, reject=rejected)
    if state is None or isinstance(state, ConversationState):
        return Conversation(initial=state, approve=approved, reject=rejected)
    if not isinstance(cast("object", state), StateAccessor):
        raise ConfigError(f"a state accessor has load and save, got {state!r}")
    return Conversation(accessor=state, approve=approved, reject=rejected)


def _decisions(
    approve: Collection[str], reject: Collection[str] | Mapping[str, str]
) -> tuple[frozenset[str], Mapping[str, str]]:
    if isinstance(approve, str) or isinstance(reject, str):
        raise ConfigError("approve and reject are collections of call ids")
    rejected = dict.fromkeys(reject, "")
    if isinstance(reject, Mapping):
        rejected |= cast("Mapping[str, str]", reject)
    both = sorted(set(approve) & rejected.keys())
    if both:
        raise ConfigError(f"call {both[0]!r} is both approved and rejected")
    return frozenset(approve), MappingProxyType(rejected)
