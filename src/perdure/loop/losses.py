"""What of a request its provider does not get.

A transcript moves between providers, and none of them takes all that the others gave. What a model
leaves out, or sends in another form, it names here with the reason; the event that carries the
request tells it. Nothing is left out in silence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from perdure.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.loop.model import Model, ModelRequest


class Loss(NamedTuple):
    """Something of a request that its provider does not get.

    Attributes:
        at: Where it stands, as `input[3].content[1]` or `temperature`.
        what: What it is, as `input_image` or `reasoning`.
        reason: Why it was left out, or what went in its place.
    """

    at: str
    what: str
    reason: str


def losses_of(model: Model, request: ModelRequest) -> tuple[Loss, ...]:
    """What a model says that a request to it leaves out; nothing if it never says.

    A request that the model refuses leaves nothing out: sending it raises.

    Args:
        model: Who is asked.
        request: The request. A model that it goes to in place of that one (`via`) is asked instead.
    """
    asked: object = request.via or model
    ask = cast("Callable[[ModelRequest], tuple[Loss, ...]] | None", getattr(asked, "losses", None))
    if ask is None:
        return ()
    try:
        return ask(request)
    except ConfigError:
        return ()
