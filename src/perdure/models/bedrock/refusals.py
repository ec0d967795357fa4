"""What Bedrock says when it refuses."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.errors import (
    ContextTooLong,
    Overloaded,
    QuotaExhausted,
    RateLimited,
    Rejected,
    ServerFailed,
)
from perdure.models.http import failures

_NAMED: dict[str, type[Rejected]] = {
    "ThrottlingException": RateLimited,
    "ModelNotReadyException": Overloaded,
    "ModelErrorException": ServerFailed,
}
_TOO_LONG = ("input is too long", "too many input tokens", "exceed context limit")


def refusal(status: int, headers: Mapping[str, str], body: bytes, *, now: float) -> Rejected:
    """The error of an HTTP answer that is not a success. Arguments as `failures.refusal`."""
    error = failures.refusal(status, headers, body, now=now)
    named = next((v for n, v in headers.items() if n.lower() == "x-amzn-errortype"), "")
    code = named.partition(":")[0] or error.code
    said = error.message.lower()
    cls: type[Rejected] = type(error)
    if code == "ServiceQuotaExceededException" or (status == 429 and "per day" in said):
        cls = QuotaExhausted
    elif code in _NAMED:
        cls = _NAMED[code]
    elif status == 400 and any(words in said for words in _TOO_LONG):
        cls = ContextTooLong
    return failures.as_class(cls, error, code=code)
