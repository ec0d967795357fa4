"""Types that agents of these tests answer with."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal, TypedDict

import msgspec
import pydantic


@dataclasses.dataclass
class Invoice:
    """What is to be paid.

    Attributes:
        total: In cents.
    """

    number: str
    total: int


class Place(TypedDict):
    city: str
    at: list[float]


class Verdict(msgspec.Struct, frozen=True):
    verdict: Literal["yes", "no"]
    reason: Annotated[str, msgspec.Meta(max_length=20)] = ""


class Person(pydantic.BaseModel):
    """Somebody."""

    name: str
    age: int = 0


INVOICE = '{"number": "A-1", "total": 4200}'
