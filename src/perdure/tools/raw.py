"""Tools whose schema is known only when the program runs."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping

from perdure.tools.approval import Approval
from perdure.tools.arguments import parse_arguments
from perdure.tools.call import Call
from perdure.tools.compensation import Compensator
from perdure.tools.effect import Effect, EffectOf, check_effect
from perdure.tools.function import check_parameters, run_function
from perdure.tools.json_schema import check_value
from perdure.tools.result import ToolResult
from perdure.tools.tool import NO_ANNOTATIONS, ToolAnnotations, check_name, check_timeout
from perdure.tools.values import Json, member, plain


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RawTool:
    """A function over a dict of plain JSON values, with a schema of somebody else's making.

    The schema is shown as it is. Arguments are held to it as far as it is understood here; a
    keyword that is not known is not checked.

    Raises:
        ConfigError: The name, the schema or an option cannot be used.
    """

    name: str
    description: str
    parameters: Mapping[str, object] | None = None
    fn: Callable[[dict[str, object]], object]
    """Async or sync; a sync one runs on a daemon thread."""
    strict: bool = False
    effect: Effect | EffectOf = "once"
    sequential: bool = False
    resource: str | None = None
    timeout: float | None = None
    annotations: ToolAnnotations = NO_ANNOTATIONS
    approval: Approval | None = None
    compensator: Compensator | None = None

    def __post_init__(self) -> None:
        check_name(self.name)
        check_effect(self.effect, self.name)
        check_timeout(self.timeout, self.name)
        check_parameters(self.parameters or {}, self.name)

    def check(self, arguments: str) -> None:
        """Refuse arguments that do not fit, without running anything.

        Raises:
            InvalidArguments: They do not fit.
        """
        self._members(arguments)

    async def execute(self, call: Call) -> ToolResult:
        """Run the function with the call's arguments.

        Raises:
            InvalidArguments: They do not fit; the function was not called.
            ToolError: Its result is not JSON.
        """
        members = self._members(call.arguments)
        arguments = {name: plain(value, member("", name)) for name, value in members.items()}
        return await run_function(functools.partial(self.fn, arguments), call)

    def _members(self, arguments: str) -> dict[str, Json]:
        schema = self.parameters or {}
        members = parse_arguments(arguments, required=bool(schema.get("required")))
        check_value(schema, members)
        return members
