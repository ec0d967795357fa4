"""Another model for one call."""

from __future__ import annotations

from collections.abc import Callable

from perdure.loop import Middleware, ModelRequest
from perdure.models.others.targets import Target, aimed, target_of

Choose = Callable[[ModelRequest], Target | None]
"""Who answers a request; None leaves it to the agent's own model."""


class Route(Middleware):
    """Lets a function say who answers each request.

    ```python
    def small_at_first(request: ModelRequest) -> str | None:
        return "openai:gpt-5-nano" if len(request.input) < 10 else None

    agent = Agent("openai:gpt-5", middleware=[Route(small_at_first)])
    ```

    The request that is told and recorded names who is asked. Thoughts of other models are left out
    of it. What a retry sends again goes to the same model.

    Args:
        choose: Asked once for each turn.
    """

    def __init__(self, choose: Choose) -> None:
        self._choose = choose

    async def before_model_call(self, request: ModelRequest) -> ModelRequest | None:
        """The request, for whoever is chosen. Raises what `choose` does, and `UnknownModel`."""
        chosen = self._choose(request)
        return None if chosen is None else aimed(request, target_of(chosen))
