"""How long the parts of a request may take."""

from __future__ import annotations

import msgspec

from perdure.seconds import check_seconds


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one request, in seconds; None for no limit.

    Attributes:
        connect: Until the connection stands, names and TLS included.
        first_byte: Until the first byte of the answer's body.
        idle: Between two pieces of the body, while somebody waits for it.
        total: From sending the request to the end of its answer.

    Raises:
        ConfigError: One of them is no positive number of seconds.
    """

    connect: float | None = 10.0
    first_byte: float | None = 120.0
    idle: float | None = 300.0
    total: float | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            seconds: object = getattr(self, name)
            if seconds is not None:
                check_seconds(f"Timeouts({name}=...)", seconds)
