"""A client for providers that want their key in a header of their own, and errors of theirs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar

from perdure.clock import Clock
from perdure.errors import Rejected
from perdure.models.client import ERROR_LIMIT, Hooks, HttpClient, Key, Timeouts

if TYPE_CHECKING:
    from perdure.models.transport import Answer

RejectedT = TypeVar("RejectedT", bound=Rejected)


class Refusal(Protocol):
    """What makes the error of an answer that is not a success."""

    def __call__(
        self, status: int, headers: Mapping[str, str], body: bytes, *, now: float
    ) -> Rejected: ...


class KeyedClient(HttpClient):
    """Sends requests with the key in a header of the provider's own.

    Args:
        key_header: The header. One that `headers` gives, or an `Authorization` there, wins over it.
        refusal: What makes the error of an answer that is not a success.
    """

    def __init__(
        self,
        base_url: str | Callable[[], str],
        *,
        api_key: Key | None,
        key_header: str,
        refusal: Refusal,
        headers: Mapping[str, str] | None,
        user_agent: str | None,
        timeouts: Timeouts | None,
        hooks: Hooks | None,
        clock: Clock | None,
    ) -> None:
        super().__init__(
            base_url,
            api_key=api_key,
            headers=headers,
            user_agent=user_agent,
            timeouts=timeouts,
            hooks=hooks,
            clock=clock,
        )
        self._key_header = key_header
        self._refusal = refusal
        given = {name.lower() for name in headers or ()}
        self._has_key = not given.isdisjoint({"authorization", key_header.lower()})
        if self._has_key:
            self._api_key = None

    async def _both_headers(self, accept: str) -> tuple[dict[str, str], dict[str, str]]:
        shown, secret = await super()._both_headers(accept)
        if not self._has_key and (bearer := secret.pop("Authorization", "")):
            secret[self._key_header] = bearer.removeprefix("Bearer ")
        return shown, secret

    async def _check(self, answer: Answer) -> None:
        if 200 <= answer.status < 300:
            return
        try:
            body = await answer.read_some(ERROR_LIMIT)
        finally:
            answer.abort()
        raise self._refusal(answer.status, answer.headers, body, now=self._clock.wall() / 1e9)


def as_class(
    cls: type[RejectedT], error: Rejected, *, code: str | None, retry_after: float | None = None
) -> RejectedT:
    """An error as one of another class, with another code, or with a wait where it has none."""
    return cls(
        error.message,
        status=error.status,
        type=error.type,
        code=code,
        param=error.param,
        retry_after=retry_after if error.retry_after is None else error.retry_after,
        headers=error.headers,
    )
