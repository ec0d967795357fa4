"""Falling back to another model where one fails."""

from __future__ import annotations

from collections.abc import Callable

from perdure.errors import AuthFailed, ConfigError, ModelError, NotFound, QuotaExhausted
from perdure.loop import ModelRequest, Retry, is_retryable
from perdure.models.others.targets import Target, aimed, is_at, target_of


def is_another_models_chance(error: Exception) -> bool:
    """Whether another model may answer what one failed to.

    True for what a retry is for, and for a key, a quota or a model that is not there. A request
    that is wrong, or too long, is wrong for the next one as well.
    """
    return is_retryable(error) or isinstance(error, QuotaExhausted | AuthFailed | NotFound)


class Fallback(Retry):
    """A retry policy that asks the next model: `Agent(..., retry=Fallback("anthropic:NAME"))`.

    Each model is asked once, in order, beginning with the agent's own, and without a pause.
    Thoughts of one are not sent to another. As with every retry, an answer that has begun is not
    replaced, and every request is told as a `model_retry` and counted.

    Args:
        models: Who is asked next.
        when: Whether an error is worth asking the next; `is_another_models_chance` unless given.

    Raises:
        UnknownModel: A string names nobody.
        ConfigError: There is no model, or something is none.
    """

    def __init__(
        self,
        *models: Target,
        when: Callable[[Exception], bool] = is_another_models_chance,
    ) -> None:
        if not models:
            raise ConfigError("Fallback(...) names no model to fall back to")
        chain = [target_of(one) for one in models]

        def revise(attempt: int, request: ModelRequest, error: Exception) -> ModelRequest:
            del attempt, error
            at = next((i for i, one in enumerate(chain) if is_at(request, one)), -1)
            return aimed(request, chain[at + 1])

        super().__init__(
            max_attempts=len(chain) + 1,
            retryable=lambda error: isinstance(error, ModelError) and when(error),
            backoff=lambda _attempt, _error: 0.0,
            revise=revise,
            max_retry_after=float("inf"),  # the next model need not wait for this one
        )
