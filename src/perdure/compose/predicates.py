"""What a tool is: questions about it, with yes and no for answers."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.compose.kinds import AnyTool, ClientTool, Kind, ServerTool


def is_client_tool(tool: AnyTool) -> bool:
    """Whether it runs here or at the caller's, and not at the provider's."""
    return not isinstance(tool, ServerTool)


def is_server_tool(tool: AnyTool) -> bool:
    """Whether the provider runs it."""
    return isinstance(tool, ServerTool)


def _kind(tool: AnyTool) -> Kind | None:
    if isinstance(tool, ServerTool):
        return None
    return tool.kind if isinstance(tool, ClientTool) else "regular"


def is_manual_tool(tool: AnyTool) -> bool:
    """Whether the caller runs it."""
    return _kind(tool) == "manual"


def is_hitl_tool(tool: AnyTool) -> bool:
    """Whether a person answers it."""
    return _kind(tool) == "hitl"


def is_generator_tool(tool: AnyTool) -> bool:
    """Whether it shows preliminary results."""
    return _kind(tool) == "generator"


def is_regular_tool(tool: AnyTool) -> bool:
    """Whether it only gives a result."""
    return _kind(tool) == "regular"


def has_execute(tool: AnyTool) -> bool:
    """Whether a function of it runs here."""
    return _kind(tool) in ("regular", "generator")


def is_auto_resolvable(tool: AnyTool) -> bool:
    """Whether its calls may get an output without the caller."""
    return _kind(tool) in ("regular", "generator", "hitl")


def is_long_running(tool: AnyTool) -> bool:
    """Whether its result may come after its call."""
    return isinstance(tool, ClientTool) and tool.lifecycle != "sync"


def is_mcp_tool(tool: AnyTool) -> bool:
    """Whether it came from an MCP server."""
    return isinstance(tool, ClientTool) and tool.source == "mcp"


def has_approval_configured(tool: AnyTool) -> bool:
    """Whether some of its calls may need approval."""
    return isinstance(tool, ClientTool) and bool(tool.require_approval)


def has_approval_required_tools(tools: Sequence[AnyTool]) -> bool:
    """Whether calls of some of the tools may need approval."""
    return any(has_approval_configured(tool) for tool in tools)
