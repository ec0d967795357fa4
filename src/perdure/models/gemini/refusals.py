"""What Gemini says when it refuses."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
from msgspec import Raw

from perdure.errors import AuthFailed, ContextTooLong, QuotaExhausted, Rejected
from perdure.models.http import failures
from perdure.wire.jsontext import members_of, text_of_raw


class _Detail(msgspec.Struct, rename="camel"):
    """One of the details of an error: a reason, a wait, or quotas that are used up."""

    reason: str | None = None
    retry_delay: str | None = None
    violations: list[dict[str, Raw]] = []


_LONGEST = 365 * 24 * 3600.0  # seconds
_DELAY = re.compile(r"(\d+(?:\.\d+)?)s")


def refusal(status: int, headers: Mapping[str, str], body: bytes, *, now: float) -> Rejected:
    """The error of an HTTP answer that is not a success. Arguments as `failures.refusal`."""
    error = failures.refusal(status, headers, body, now=now)
    details = _details(body)
    code = next((one.reason for one in details if one.reason), error.code)
    delays = [_DELAY.fullmatch(one.retry_delay or "") for one in details]
    delay = next((min(float(found[1]), _LONGEST) for found in delays if found), None)
    quotas = [text_of_raw(v.get("quotaId")) or "" for one in details for v in one.violations]
    cls: type[Rejected] = type(error)
    if status == 429 and any("PerDay" in quota for quota in quotas):
        cls = QuotaExhausted
    elif code == "API_KEY_INVALID":
        cls = AuthFailed
    elif status == 400 and "exceeds the maximum number of tokens" in error.message:
        cls = ContextTooLong
    return failures.as_class(cls, error, code=code, retry_after=delay)


def _details(body: bytes) -> list[_Detail]:
    inner = members_of(body.strip().removeprefix(b"[").removesuffix(b"]")).get("error", b"{}")
    raw = members_of(inner).get("details", b"[]")
    try:
        return msgspec.json.decode(raw, type=list[_Detail])
    except msgspec.DecodeError:
        return []
