"""A line of the program's log for each call of a tool."""

from __future__ import annotations

import logging
from collections.abc import Callable

from perdure.clock import Clock, SystemClock
from perdure.loop import Middleware, NextTool, ToolCallInfo
from perdure.middleware.redact import Redactor
from perdure.tools import ToolResult, effect_of
from perdure.wire import text_of


class ToolLog(Middleware):
    """Logs each call when it has ended: tool, effect, seconds, and the kind of its error.

    Arguments, results and the text of errors hold what users say and what systems hide, so they are
    logged only where `text` asks for it, and redacted then.

    Args:
        logger: Where to; `perdure.tools` unless given.
        level: Of calls that succeed; those that fail are warnings.
        text: Log arguments, results and the text of errors, too.
        redact: What takes the secrets out of them; those of URLs unless given.
        clock: Where the time comes from.
    """

    def __init__(
        self,
        logger: logging.Logger | None = None,
        *,
        level: int = logging.INFO,
        text: bool = False,
        redact: Callable[[str], str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._logger = logger or logging.getLogger("perdure.tools")
        self._level = level
        self._text = text
        self._redact = redact or Redactor()
        self._clock: Clock = clock or SystemClock()

    async def wrap_tool_call(self, info: ToolCallInfo, next: NextTool) -> ToolResult:  # noqa: A002
        """Run the call and log it."""
        started = self._clock.monotonic()
        try:
            result = await next()
        except BaseException as error:
            said = f": {error}" if self._text else ""
            self._log(logging.WARNING, info, started, type(error).__name__ + said)
            raise
        self._log(self._level, info, started, text_of(result.output) if self._text else "")
        return result

    def _log(self, level: int, info: ToolCallInfo, started: float, outcome: str) -> None:
        effect = effect_of(info.tool, info.arguments) if info.tool is not None else "once"
        given = f"({self._redact(info.arguments)})" if self._text else ""
        self._logger.log(
            level,
            "tool %s%s of call %s, effect %s, %.3f s%s",
            info.call.name,
            given,
            info.call.call_id,
            effect,
            self._clock.monotonic() - started,
            f": {self._redact(outcome)}" if outcome else "",
        )
