"""Approvals: who has to agree before a call enters its tool.

An *approval* is what a tool's definition asks for. A *gate* is the same as one hold has it, with
the digest of the arguments and the times; the record keeps it, so that a changed definition does
not change what was asked.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias, cast

import msgspec

from perdure.ballots import (
    BadKey,
    Policy,
    Verifier,
    need_library,
    policy_fault,
    read_key,
    sharing,
    verifier_fault,
)
from perdure.errors import ConfigError
from perdure.seconds import check_seconds

KeySource: TypeAlias = Callable[[str], Verifier | None]
"""Says with what the signatures of an approver are checked; None if nobody knows."""

NO_KEYS: Mapping[str, Verifier] = MappingProxyType({})

_SECOND = 1_000_000_000


_STEP = 1 << 20
"""Nanoseconds, about a millisecond: a multiple of it is a number that every JSON reader holds."""


def coarse(nanoseconds: int) -> int:
    """A time of this century that JSON carries exactly: at most a millisecond before."""
    return nanoseconds // _STEP * _STEP


def _after(now: int, seconds: float) -> int:
    return coarse(now + round(seconds * _SECOND) + _STEP - 1)


class Gate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An approval as one hold asks for it."""

    need: int = 1
    of: tuple[str, ...] = ()
    signed: bool = False
    digest: str
    """SHA-256 of the canonical arguments that are held."""
    level: int = 0
    """How often it was escalated."""
    due: int | None = None
    """When it expires, in nanoseconds since the Unix epoch."""
    reminders: tuple[int, ...] = ()
    """When people are reminded, likewise."""

    @property
    def policy(self) -> Policy:
        """By what its votes are counted."""
        return Policy(need=self.need, approvers=self.of, signed=self.signed, due=self.due)

    @property
    def asks(self) -> str:
        """For whom it waits, in words."""
        return asks_for(self.need, self.of)


def asks_for(need: int, names: Sequence[str]) -> str:
    """Whose approval is needed, in words."""
    if not names:
        return "somebody"
    return names[0] if len(names) == 1 else f"{need} of {', '.join(names)}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """Who has to agree before a call enters its tool.

    Without names, any one person who gives theirs approves by a word. With them, only those do. One
    approval may be a word; several are signed, and so is one whose approvers have keys here.

    Args:
        need: How many have to approve.
        of: The names of those who may, or their public keys by name, as `perdure keys new` prints
            them. Names that look alike are refused.
        signed: Whether only signatures count; if None, that follows from `need` and `of`.
        expires: Seconds after which it is too late. The model then reads that it expired, unless it
            escalates.
        remind: Seconds after which `Agent(on_reminder=...)` hears that it waits; several for
            several times.
        escalate: Whom it asks when it has expired, anew: votes given before do not count there.

    Raises:
        ConfigError: Nothing can be decided by it; the message says why.
    """

    need: int = 1
    of: Sequence[str] | Mapping[str, str | Verifier] = ()
    signed: bool | None = None
    expires: float | None = None
    remind: float | Sequence[float] = ()
    escalate: Approval | None = None
    keys: Mapping[str, Verifier] = dataclasses.field(init=False, repr=False, compare=False)
    """What checks the signatures of those whose keys were given with their names."""

    def __post_init__(self) -> None:
        keys = checked_keys(self.of) if isinstance(self.of, Mapping) else NO_KEYS
        given = cast("Iterable[object]", self.of)
        if isinstance(given, str) or not all(isinstance(name, str) for name in given):
            raise ConfigError(f"Approval(of=...) is a list of names, got {self.of!r}")
        object.__setattr__(self, "keys", keys)
        object.__setattr__(self, "of", tuple(self.of))
        if not isinstance(cast("object", self.signed), bool | None):
            raise ConfigError(f"Approval(signed=...) is True, False or None, got {self.signed!r}")
        need = cast("object", self.need)
        if not isinstance(need, int) or isinstance(need, bool):
            raise ConfigError(f"Approval(need=...) is a whole number of people, got {need!r}")
        if self.signed is None:
            object.__setattr__(self, "signed", self.need > 1 or bool(keys))
        if fault := policy_fault(self.policy):
            raise ConfigError(f"an approval by {self.asks}: {fault}")
        self._check_times()

    def _check_times(self) -> None:
        if self.expires is not None:
            check_seconds("Approval(expires=...)", self.expires)
        remind = cast("object", self.remind)
        if isinstance(remind, str | bytes) or not isinstance(remind, Iterable):
            remind = (remind,)
        for seconds in cast("Iterable[object]", remind):
            check_seconds("Approval(remind=...)", seconds)
        escalate = cast("object", self.escalate)
        if escalate is not None and not isinstance(escalate, Approval):
            raise ConfigError(f"Approval(escalate=...) is an Approval, got {escalate!r}")
        if escalate is not None and self.expires is None:
            raise ConfigError("an approval that never expires never escalates; give expires=...")

    @property
    def policy(self) -> Policy:
        """By what its votes are counted."""
        return Policy(need=self.need, approvers=tuple(self.of), signed=bool(self.signed))

    @property
    def asks(self) -> str:
        """For whom it waits, in words."""
        return asks_for(self.need, tuple(self.of))

    @property
    def reminders(self) -> tuple[float, ...]:
        """After how many seconds people are reminded."""
        remind = self.remind
        return (remind,) if isinstance(remind, int | float) else tuple(sorted(remind))

    @property
    def levels(self) -> Iterator[Approval]:
        """It, and what it escalates to, in order."""
        level: Approval | None = self
        while level is not None:
            yield level
            level = level.escalate

    def at(self, level: int) -> Approval | None:
        """What it asks for after so many escalations; None if it does not go so far."""
        return next((one for place, one in enumerate(self.levels) if place == level), None)

    def gate(self, digest: str, now: int, level: int = 0) -> Gate:
        """The gate of a hold.

        Args:
            digest: Of the arguments that are held.
            now: Nanoseconds since the Unix epoch.
            level: How often it was escalated.
        """
        expires = self.expires
        return Gate(
            need=self.need,
            of=tuple(self.of),
            signed=bool(self.signed),
            digest=digest,
            level=level,
            due=None if expires is None else _after(now, expires),
            reminders=tuple(_after(now, seconds) for seconds in self.reminders),
        )

    def accepts(self, approved_by: Sequence[str], *, signed: bool) -> bool:
        """Whether those who approved, by a word or signed, are enough for it."""
        names = frozenset(self.of)
        enough = sum(not names or name in names for name in approved_by) >= self.need
        return enough and (signed or not self.signed)


def as_approval(stated: object, tool: str) -> Approval | None:
    """What a tool says of who has to agree.

    Args:
        stated: True for anybody's word, None or False for nobody's.
        tool: The tool's name.

    Raises:
        ConfigError: It is nothing of that kind.
    """
    if isinstance(stated, Approval):
        return stated
    if stated is None or isinstance(stated, bool):
        return Approval() if stated else None
    raise ConfigError(f"tool {tool!r} has the approval {stated!r}; give True or an Approval")


class Keyring:
    """The public keys of approvers, for `Agent(approvers=...)`.

    Args:
        keys: By name: the text of an Ed25519 key, or a verifier of your own.

    Raises:
        ConfigError: A name or a key cannot be used, or two approvers share a key.
    """

    def __init__(self, keys: Mapping[str, str | Verifier]) -> None:
        self._keys = checked_keys(keys)

    def __repr__(self) -> str:
        return f"Keyring({', '.join(self._keys)})"

    def __call__(self, approver: str) -> Verifier | None:
        return self._keys.get(approver)


def as_key_source(given: KeySource | Mapping[str, str] | None) -> KeySource | None:
    """What an agent's definition says of keys: a source as it is, keys by name as a ring.

    Raises:
        ConfigError: It is neither, or a key cannot be used.
    """
    if inspect.iscoroutinefunction(given):
        raise ConfigError(
            "Agent(approvers=...) is asynchronous, and keys are looked up at once; give a function "
            "that is not, or keys by name"
        )
    if given is None or callable(given):
        return given
    try:
        return Keyring(dict(given))
    except (TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"Agent(approvers=...) is keys by name, or a Keyring: {error}") from None


def checked_keys(given: Mapping[str, str | Verifier]) -> Mapping[str, Verifier]:
    """Verifiers by name.

    Raises:
        ConfigError: A name or a key cannot be used, or two approvers share a key.
    """
    if fault := policy_fault(Policy(approvers=tuple(given))):
        raise ConfigError(f"these cannot be the approvers: {fault}")
    keys: dict[str, Verifier] = {}
    for name, key in given.items():
        try:
            keys[name] = read_key(key) if isinstance(key, str) else key
        except BadKey as error:
            raise ConfigError(f"the key of {name!r}: {error}") from None
        if fault := verifier_fault(keys[name]):
            raise ConfigError(f"the key of {name!r}: {fault}")
    if shared := sharing(keys):
        names = " and ".join(sorted(shared))
        raise ConfigError(f"{names} share a key, or have none of their own")
    if any(isinstance(key, str) for key in given.values()):
        _need_library()
    return MappingProxyType(keys)


def _need_library() -> None:
    try:
        need_library()
    except ModuleNotFoundError as error:
        raise ConfigError(str(error)) from None


def check_approval(approval: Approval, tool: str, source: KeySource | None) -> None:
    """Refuse an approval that nobody could give.

    Args:
        approval: What the tool asks for.
        tool: The tool's name.
        source: Whose keys are known beside those in the approval.

    Raises:
        ConfigError: An approver has no key, or two share one.
    """
    for level in approval.levels:
        if not level.signed:
            continue
        keys = keys_of(level, source)
        missing = [name for name in level.of if name not in keys]
        if missing:
            raise ConfigError(
                f"tool {tool!r} counts signatures, and nobody says the key of {missing[0]!r}; "
                "give Agent(approvers=Keyring({...}))"
            )
        for name, key in keys.items():
            if fault := verifier_fault(key):
                raise ConfigError(f"tool {tool!r}, the key of {name!r}: {fault}")
        if shared := sharing(keys):
            raise ConfigError(f"tool {tool!r}: {' and '.join(sorted(shared))} share a key")


def keys_of(approval: Approval, source: KeySource | None) -> dict[str, Verifier]:
    """The keys of those whom an approval names, as far as they are known."""
    return keys_for(tuple(approval.of), approval, source)


def keys_for(
    names: Sequence[str], approval: Approval | None, source: KeySource | None
) -> dict[str, Verifier]:
    """The keys of approvers: those that today's approval gives, else the agent's."""
    own = approval.keys if approval is not None else NO_KEYS
    found = {name: own.get(name) or (source(name) if source else None) for name in names}
    return {name: key for name, key in found.items() if key is not None}
