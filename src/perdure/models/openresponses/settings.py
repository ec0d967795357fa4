"""The settings of a request as the members of an Open Responses body, all but its input.

Members that nobody here knows go as they are (DESIGN 6.9), but for what `Settings` has a name for
and the specification has not: a server refuses it. `perdure:openresponses` on the settings holds
members for a server that takes them all the same.
"""

from __future__ import annotations

from msgspec.structs import replace

from perdure.models.mapping.kept import is_makers, kept, kept_object, without_marks
from perdure.models.mapping.losses import Lost
from perdure.models.mapping.settings import refuse_held
from perdure.wire import (
    ABSENT,
    Kept,
    Request,
    ToolChoice,
    ToolDefinition,
    UnknownTool,
    UnknownToolChoice,
    encode,
)
from perdure.wire.marks import is_mark, mark_of, slug_of

OWN = mark_of("openresponses")
"""The mark of settings that holds members of the body."""

_NOT_TAKEN = frozenset({"stop", "seed", "top_k"})


def settings_members(settings: Request, lost: Lost, *, stream: bool) -> bytes:
    """A body without its input, as the text of an object.

    Raises:
        ConfigError: The settings name a conversation that a server holds.
    """
    refuse_held(settings)
    made = replace(settings, input=ABSENT, stream=stream, store=False)
    if settings.tools:
        made = replace(made, tools=_tools(settings.tools, lost) or ABSENT)
    if settings.tool_choice:
        made = replace(made, tool_choice=_choice(settings.tool_choice, lost))
    if settings.kept:
        made = replace(made, kept=_unknown(settings, lost))
    return encode(made)


def _unknown(settings: Request, lost: Lost) -> Kept:
    members = dict(kept(settings))
    own = {name: bytes(raw) for name, raw in kept_object(settings, OWN).items()}
    for name in list(members):
        if is_mark(name):
            del members[name]
        elif name in _NOT_TAKEN:
            raw = members.pop(name)
            if raw != b"null" and name not in own:
                lost.add(name, "Open Responses has no such setting", name)
    return Kept(members | own, settings.kept.absent if settings.kept else frozenset())


def _tools(tools: tuple[ToolDefinition, ...], lost: Lost) -> tuple[ToolDefinition, ...]:
    found: list[ToolDefinition] = []
    for index, tool in enumerate(tools):
        at = f"tools[{index}]"
        if isinstance(tool, UnknownTool):
            if is_makers(tool.type):
                lost.add(tool.type, f"only {slug_of(tool.type)} has it", at)
                continue
            found.append(tool)
        else:
            found.append(without_marks(tool, lost, at))
    return tuple(found)


def _choice(choice: ToolChoice, lost: Lost) -> ToolChoice:
    if isinstance(choice, UnknownToolChoice) and is_makers(choice.type):
        lost.add(choice.type, f"only {slug_of(choice.type)} has it", "tool_choice")
        return "auto"
    return choice
