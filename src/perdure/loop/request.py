"""Building the request of a turn."""

from __future__ import annotations

import inspect

import msgspec

from perdure.loop.config import Config
from perdure.loop.model import ModelRequest
from perdure.loop.state import Drive
from perdure.loop.transcript import filtered
from perdure.tools import ToolSet
from perdure.wire import ABSENT, Request


async def resolve_tools(config: Config) -> ToolSet:
    """The tools of a turn; asked once, so that a call resolves against what the model was offered.

    Raises:
        DuplicateTool: Two of them share a name.
    """
    if config.tool_provider is None:
        return ToolSet(config.tools)
    given = config.tool_provider()
    return ToolSet(await given if inspect.isawaitable(given) else given)


async def build_request(drive: Drive) -> ModelRequest:
    """The request of this turn, before `before_model_call` has seen it.

    The order: `transform` on the whole transcript, then the filter, then what other models thought
    goes; what is left is the input.
    """
    settings = _settings(drive)
    name = settings.model or ""
    if not drive.hooks.transforms:
        return ModelRequest(settings=settings, input=drive.visible(name))
    edited = await drive.hooks.transform(drive.transcript.snapshot(), drive.info())
    kept = filtered(edited.items, lambda item: drive.is_for(name, item))
    return ModelRequest(settings=settings, input=kept, compaction=edited.compaction)


def for_its_model(drive: Drive, request: ModelRequest, before: ModelRequest) -> ModelRequest:
    """A request that somebody made of another, without the thoughts its model did not think."""
    if request.compaction is None and before.compaction is not None:  # it was made anew
        request = msgspec.structs.replace(request, compaction=before.compaction)
    name = request.settings.model or ""
    if request is before or name == (before.settings.model or ""):
        return request
    kept = filtered(request.input, lambda item: drive.is_for(name, item))
    return (
        request if len(kept) == len(request.input) else msgspec.structs.replace(request, input=kept)
    )


def _settings(drive: Drive) -> Request:
    """The settings of this turn: the same value as the last one's if the tools are the same."""
    if drive.settings is not None and drive.settings[0] is drive.tools:
        return drive.settings[1]
    settings = request_settings(drive.config, drive.tools)
    drive.settings = (drive.tools, settings)
    return settings


def request_settings(config: Config, tools: ToolSet) -> Request:
    """The members of every request of a drive but its input.

    They do not vary within a drive unless its tools do, so a provider's prompt cache holds
    (DESIGN 6.8).
    """
    return msgspec.structs.replace(
        config.settings,
        model=config.model_name or config.settings.model,
        instructions=config.instructions or config.settings.instructions,
        tools=tools.definitions() or ABSENT,
        store=False,
        stream=ABSENT,
    )
