"""What the Messages API says when it refuses."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.errors import QuotaExhausted, Rejected
from perdure.models.http import failures
from perdure.wire.jsontext import members_of, text_of_raw


def refusal(status: int, headers: Mapping[str, str], body: bytes, *, now: float) -> Rejected:
    """The error of an HTTP answer that is not a success. Arguments as `failures.refusal`."""
    error = failures.refusal(status, headers, body, now=now)
    details = members_of(members_of(members_of(body).get("error", b"{}")).get("details", b"{}"))
    code = text_of_raw(details.get("error_code")) or error.code
    spent = "credit balance" in error.message or (code or "").endswith("spend_limit_reached")
    if spent or error.type == "billing_error":
        return failures.as_class(QuotaExhausted, error, code=code)
    return failures.as_class(type(error), error, code=code)
