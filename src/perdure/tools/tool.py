"""The contract of a tool.

A *tool* has a name, a description, parameters and `execute`. Everything else about it is a
*trait* with a default, so that a tool written by hand needs nothing more; traits are read through
`traits`, never from the tool.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Protocol, TypeAlias, runtime_checkable

from perdure.errors import ConfigError
from perdure.seconds import check_seconds
from perdure.tools.approval import Approval, as_approval
from perdure.tools.arguments import parse_arguments, plain_arguments
from perdure.tools.call import Call
from perdure.tools.compensation import Compensator
from perdure.tools.effect import Effect, EffectOf, is_effect
from perdure.tools.result import ToolResult

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@runtime_checkable
class Tool(Protocol):
    """What the loop can run. Any object with these four is one."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def parameters(self) -> Mapping[str, object] | None:
        """A JSON Schema object; None for no arguments."""
        ...

    async def execute(self, call: Call) -> ToolResult:
        """Run the call.

        A `ToolError` it raises is what the model reads; anything else it raises is a `ToolPanic`.
        Told to stop, through `call.cancelled`, it should return what it has or raise; it is
        cancelled when its grace is over.
        """
        ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ToolAnnotations:
    """What a tool says of itself to people and policies; None is unstated.

    They may make a policy stricter and never stand in for the effect: `idempotent` here lets
    nothing run twice.
    """

    title: str = ""
    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None


NO_ANNOTATIONS = ToolAnnotations()
NO_SECRETS: Mapping[str, str] = MappingProxyType({})


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """What a reconciler found: the call took effect, and this is what its tool gave.

    Args:
        output: Anything that the tool could have returned.
        evidence: Any JSON value: where it was found.
    """

    output: object
    evidence: object = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NeverRan:
    """What a reconciler found: the call took no effect, and none is on its way.

    Args:
        evidence: Any JSON value: where it was looked for.
        min_age: Seconds after which the tool has ended for certain. A tool with a timeout needs no
            word; without either, nobody can know, and the call stays halted.
    """

    evidence: object = None
    min_age: float | None = None


Reconciled: TypeAlias = Found | NeverRan | None
"""What came of a call; None if it could not be found out."""

Reconciler: TypeAlias = Callable[[Call], Reconciled] | Callable[[Call], Awaitable[Reconciled]]
"""Looks up what came of a call, by its arguments and its idempotency key, and changes nothing."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What a tool may say beyond its four members, with what holds where it says nothing."""

    strict: bool = False
    """The provider is to enforce the schema. The only trait on the wire."""
    effect: Effect | EffectOf = "once"
    """What it does to the world, always or depending on the arguments."""
    sequential: bool = False
    """A batch with this tool runs one call at a time."""
    resource: str | None = None
    """Calls of tools that name the same resource run one after another."""
    timeout: float | None = None
    """Seconds a call may take."""
    annotations: ToolAnnotations = NO_ANNOTATIONS
    secrets: Mapping[str, str] = dataclasses.field(default_factory=lambda: NO_SECRETS)
    """The references of its secret parameters, by parameter."""
    check: Callable[[str], object] | None = None
    """Raises `InvalidArguments` for arguments that do not fit, without running anything."""
    subsession: bool = False
    """It works in a session of its own, which the record links before the tool is entered."""
    reconciler: Reconciler | None = None
    """Looks up what came of a call that may have run, before a person is asked."""
    compensator: Compensator | None = None
    """Undoes what a call did, where the run is a saga and is rolled back."""
    approval: Approval | None = None
    """Who has to agree before a call enters it; True stands for anybody who gives a name."""
    aclose: Callable[[], Awaitable[None]] | None = None
    """Releases what outlives the calls. Whoever made the tool calls it, a run never does."""


TRAITS: tuple[str, ...] = tuple(field.name for field in dataclasses.fields(Traits))


def traits(tool: Tool) -> Traits:
    """The traits of a tool, with the defaults of those it does not state."""
    stated = {name: getattr(tool, name) for name in TRAITS if hasattr(tool, name)}
    return dataclasses.replace(Traits(**stated), approval=approval_of(tool))


def approval_of(tool: Tool) -> Approval | None:
    """The trait `approval`.

    Raises:
        ConfigError: The tool states something else.
    """
    return as_approval(getattr(tool, "approval", None), tool.name)


def timeout_of(tool: Tool) -> float | None:
    """The trait `timeout`."""
    timeout: float | None = getattr(tool, "timeout", None)
    return timeout


def resource_of(tool: Tool) -> str | None:
    """The trait `resource`."""
    resource: str | None = getattr(tool, "resource", None)
    return resource


def is_subsession(tool: Tool) -> bool:
    """The trait `subsession`."""
    subsession: bool = getattr(tool, "subsession", False)
    return subsession


def reconciler_of(tool: Tool) -> Reconciler | None:
    """The trait `reconciler`."""
    reconciler: Reconciler | None = getattr(tool, "reconciler", None)
    return reconciler


def compensator_of(tool: Tool) -> Compensator | None:
    """The trait `compensator`."""
    compensator: Compensator | None = getattr(tool, "compensator", None)
    return compensator


def is_sequential(tool: Tool) -> bool:
    """The trait `sequential`."""
    sequential: bool = getattr(tool, "sequential", False)
    return sequential


def effect_of(tool: Tool, arguments: str) -> Effect:
    """The effect of a call with these arguments.

    `once`, the strictest, where the tool's function fails or returns no effect.
    """
    effect: Effect | EffectOf = getattr(tool, "effect", "once")
    if isinstance(effect, str):
        return effect if is_effect(effect) else "once"
    try:
        answer: object = effect(plain_arguments(arguments))
    except Exception:  # noqa: BLE001 - the tool's own function; not knowing is `once`
        return "once"
    return answer if is_effect(answer) else "once"


def check_arguments(tool: Tool, arguments: str) -> None:
    """Refuse arguments that do not fit the tool, without running it.

    Of a tool written by hand, without a `check` of its own, only that they are a JSON object is
    known.

    Raises:
        InvalidArguments: They do not fit.
    """
    check: Callable[[str], object] | None = getattr(tool, "check", None)
    if check is not None:
        check(arguments)
        return
    required = (tool.parameters or {}).get("required")
    parse_arguments(arguments, required=bool(required))


def check_name(name: str) -> None:
    """Refuse a name that no request can carry.

    Raises:
        ConfigError: It is empty, longer than 64 characters, or has others than A-Z a-z 0-9 _ -.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} cannot name a tool: 1 to 64 letters, digits, '_' and '-'; give name=..."
        )


def check_timeout(timeout: float | None, tool: str) -> None:
    """Refuse a timeout that is none, or that no record could hold.

    Raises:
        ConfigError: It is not.
    """
    if timeout is not None:
        check_seconds(f"the timeout of tool {tool!r}", timeout)
