"""Bytes or values are not Open Responses."""

from __future__ import annotations

from perdure.errors.base import PerdureError


class WireError(PerdureError, ValueError):
    """Bytes or values are not Open Responses."""


class DecodeError(WireError):
    """JSON that cannot be read as what it should be.

    Attributes:
        path: Where, as `output[0].content[1].text`; empty at the root.
        reason: What is wrong there.
        source: The bytes that were given.
    """

    def __init__(self, reason: str, *, path: str = "", source: bytes = b"") -> None:
        self.path = path
        self.reason = reason
        self.source = source
        super().__init__(f"{path}: {reason}" if path else reason)


class FrameTooLarge(WireError):
    """An SSE frame is larger than the limit.

    Attributes:
        limit: The limit in bytes.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(f"an SSE frame exceeds {limit} bytes")


class NotIJson(WireError):
    """A value that canonical JSON cannot carry (RFC 7493).

    Attributes:
        path: A JSON pointer to the value.
    """

    def __init__(self, reason: str, *, path: str = "") -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}" if path else reason)


class InvalidRequest(WireError):
    """A request that a server must refuse.

    Attributes:
        param: The member at fault, as `input[3].call_id`.
        code: `missing_required_parameter`, `invalid_value` or another wire code.
    """

    def __init__(
        self, message: str, *, param: str | None = None, code: str = "invalid_value"
    ) -> None:
        self.param = param
        self.code = code
        super().__init__(f"{param}: {message}" if param else message)
        self.message = message


class TerminalSent(WireError):
    """An event was to follow the terminal one."""

    def __init__(self) -> None:
        super().__init__("the terminal event was already sent; nothing may follow it")
