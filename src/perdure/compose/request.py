"""The settings of a request, in layers.

From the bottom: the *base*, which the caller gave as values; what the caller gave as functions,
asked for every request; what tools changed for the requests after them, which lasts for the run;
and what the engine forces for one request. A layer never touches the ones below it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import cast

import msgspec

from perdure.compose.kinds import ClientTool, ServerTool
from perdure.compose.turns import Dynamic, TurnContext, settled
from perdure.errors import ConfigError, PerdureError
from perdure.wire import (
    ABSENT,
    AllowedTools,
    FunctionChoice,
    Kept,
    Request,
    ToolChoice,
    ToolDefinition,
    Wire,
    canonical_json,
    decode_request,
    encode,
)

EXTENSIONS = frozenset(
    {"models", "provider", "plugins", "transforms", "route", "top_k", "session_id", "user"}
)
"""Members that a provider knows and the specification does not."""

_LOOPS = frozenset({"input", "tools", "store", "stream", "previous_response_id", "background"})
"""Members that belong to the loop."""

MEMBERS = frozenset(Request.__struct_fields__) - {"kept"} - _LOOPS

NONE_AT_ALL: Mapping[str, object] = MappingProxyType({})


def check_members(given: Mapping[str, object]) -> None:
    """Refuse members that no request has.

    Raises:
        ConfigError: There is one; nothing is sent under a name that nobody knows.
    """
    for name in given:
        if name in _LOOPS:
            raise ConfigError(f"{name!r} belongs to the loop and cannot be given")
        if name not in MEMBERS and name not in EXTENSIONS:
            raise ConfigError(
                f"a request has no member {name!r}; a provider's own goes into "
                "request=with_unknown(Request(), ...)"
            )


def apply(base: Request, members: Mapping[str, object]) -> Request:
    """A request with members in place of its own; None takes a member out.

    Raises:
        ConfigError: A value is none that the member may have.
    """
    changed: dict[str, object] = {}
    unknown = dict(base.kept.members) if base.kept else {}
    for name, value in members.items():
        if name in MEMBERS:
            changed[name] = ABSENT if value is None else _wire_value(name, value)
        elif value is None:
            unknown.pop(name, None)
        else:
            unknown[name] = msgspec.json.encode(value)
    kept = base.kept.absent if base.kept else frozenset[str]()
    if unknown or base.kept:
        changed["kept"] = Kept(unknown, kept)
    return msgspec.structs.replace(base, **changed)


def _wire_value(name: str, value: object) -> object:
    if isinstance(value, Wire | str | bool | int | float):
        return value
    try:
        decoded = decode_request(msgspec.json.encode({name: value}))
    except (PerdureError, TypeError, ValueError) as error:
        raise ConfigError(f"the member {name!r} cannot be {value!r}: {error}") from error
    return cast("object", getattr(decoded, name))


class Layers:
    """The layers of one run.

    Args:
        dynamic: The functions, by the member they give.
        additional_instructions: What is said after the instructions, whoever gave them.
        tools: The tools in the caller's order, the provider's own among them.
        consumed: The forced tool choice that has had its call, in an earlier run.
    """

    def __init__(
        self,
        *,
        dynamic: Mapping[str, Dynamic],
        additional_instructions: str = "",
        tools: Sequence[ClientTool | ServerTool] = (),
        consumed: str = "",
    ) -> None:
        self._dynamic = dynamic
        self._additional = additional_instructions
        self._tools = tools
        self._resolved: Mapping[str, object] = NONE_AT_ALL
        self.sticky: dict[str, object] = {}
        """What tools changed; None for a member that is to be left out."""
        self.consumed = consumed
        """The forced tool choice that is relaxed, as canonical JSON; empty if none is."""
        self._sent = ""
        self._last = Request()

    async def resolve(self, turn: TurnContext) -> None:
        """Ask the functions.

        Raises:
            ConfigError: One failed; the message names its member.
        """
        resolved: dict[str, object] = {}
        for name, function in self._dynamic.items():
            try:
                resolved[name] = await settled(function(turn))
            except Exception as error:
                raise ConfigError(f"the function that gives {name!r} failed: {error}") from error
        self._resolved = resolved

    def settings(self, base: Request, *, forbid_tools: bool = False) -> Request:
        """The settings of the next request.

        Args:
            base: The lowest layer, with the definitions of the tools that run here.
            forbid_tools: The engine forbids calls in this request. The tools stay in it, so that a
                provider's cache of the beginning holds.
        """
        made = apply(apply(base, self._resolved), self.sticky)
        if self._additional:
            said = "\n\n".join(text for text in (made.instructions, self._additional) if text)
            made = msgspec.structs.replace(made, instructions=said)
        made = msgspec.structs.replace(made, tools=self._definitions(made) or ABSENT)
        if forbid_tools:
            self._sent = ""
            choice: object = "none" if made.tools else made.tool_choice
        else:
            choice = self._choice(made.tool_choice)
        made = msgspec.structs.replace(made, tool_choice=choice)
        if made != self._last:  # the same settings are the same object: adapters keep their bytes
            self._last = made
        return self._last

    def view(self, sent: Request) -> Mapping[str, object]:
        """The settings as they stand, by name: what was sent last, and what tools changed since."""
        made = apply(sent, self.sticky)
        known = {name: getattr(made, name) for name in MEMBERS}
        return {
            **made.unknown,
            **{name: value for name, value in known.items() if value is not ABSENT},
        }

    def _definitions(self, made: Request) -> tuple[ToolDefinition, ...]:
        own = {getattr(one, "name", ""): one for one in made.tools or ()}
        return tuple(
            tool.definition() if isinstance(tool, ServerTool) else own[tool.name]
            for tool in self._tools
            if isinstance(tool, ServerTool) or tool.name in own
        )

    # --- a forced tool choice is for one call ------------------------------------------

    def _choice(self, given: object) -> object:
        """The tool choice to send: a forced one only until it has had its call."""
        key = forced_key(given)
        if not key:
            self._sent = self.consumed = ""  # a turn that forces nothing arms it again
            return given
        if key == self.consumed:
            self._sent = ""
            return relaxed(cast("ToolChoice", given))
        self._sent = key
        return given

    def responded(self, *, called: bool) -> None:
        """A response came; whether it called tools."""
        if called and self._sent:
            self.consumed = self._sent
        self._sent = ""


def forced_key(choice: object) -> str:
    """What tells a choice that forces a call from others; empty for one that forces nothing."""
    forces = (
        choice == "required"
        or isinstance(choice, FunctionChoice)
        or (isinstance(choice, AllowedTools) and choice.mode == "required")
    )
    if not forces:
        return ""
    if isinstance(choice, str):
        return choice
    return canonical_json(msgspec.json.decode(encode(cast("Wire", choice)))).decode()


def relaxed(choice: ToolChoice) -> ToolChoice:
    """A forced choice that forces no more. A set of allowed tools stays the set."""
    if isinstance(choice, AllowedTools):
        return msgspec.structs.replace(choice, mode="auto")
    return "auto"
