"""Forms: schemas of types, and reading answers into values."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import pydantic
import pytest

from perdure.errors import ConfigError, InvalidArguments
from perdure.output import Output
from perdure.output.form import form_of
from tests.output.forms import INVOICE, Invoice, Person, Place, Verdict

VALUES: list[tuple[object, str, object]] = [
    (Invoice, INVOICE, Invoice("A-1", 4200)),
    (Invoice, f"```json\n{INVOICE}\n```", Invoice("A-1", 4200)),
    (Place, '{"city": "Oslo", "at": [59.9, 10.7]}', {"city": "Oslo", "at": [59.9, 10.7]}),
    (Verdict, '{"verdict": "yes", "reason": ""}', Verdict("yes")),
    (Person, '{"name": "Ann", "age": 3}', Person(name="Ann", age=3)),
    (int, '{"value": 42}', 42),
    (list[str], '{"value": ["a", "b"]}', ["a", "b"]),
    (int | None, '{"value": null}', None),
    (Literal["a", "b"], '{"value": "b"}', "b"),
    (Invoice | Place, '{"value": {"city": "Oslo", "at": []}}', {"city": "Oslo", "at": []}),
    (dict[str, int], '{"value": {"a": 1}}', {"a": 1}),
]


@pytest.mark.parametrize(("annotation", "text", "value"), VALUES)
def test_an_answer_is_read_into_a_value_of_the_type(
    annotation: object, text: str, value: object
) -> None:
    assert form_of(annotation).read(text) == value


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "nothing"),
        ("It is 42.", "not valid JSON"),
        ("[1]", "expected a JSON object"),
        ('{"number": "A-1"}', "total: missing"),
        ('{"number": "A-1", "total": "4200"}', "total: expected integer"),
        ('{"number": "A-1", "total": 1, "tax": 2}', "tax: "),
        ('{"number": "A-1", "total": 1, "total": 2}', "twice"),
        (INVOICE + INVOICE, "more text"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(text: str, fault: str) -> None:
    with pytest.raises(InvalidArguments, match=fault):
        form_of(Invoice).read(text)


def test_the_schema_is_of_an_object_and_enforceable() -> None:
    form = form_of(Invoice)
    assert form.name == "Invoice"
    assert form.description == "What is to be paid."
    assert form.strict is not None
    assert form.enforced_schema() == {
        "type": "object",
        "properties": {
            "number": {"type": "string"},
            "total": {"type": "integer", "description": "In cents."},
        },
        "required": ["number", "total"],
        "additionalProperties": False,
    }


def test_a_type_that_is_no_object_is_wrapped_in_one() -> None:
    form = form_of(list[int])
    assert form.wrapped
    assert form.schema()["required"] == ["value"]
    assert form_of(int | None).name == "answer"


def test_free_member_names_are_nothing_a_provider_enforces() -> None:
    assert form_of(dict[str, int]).strict is None
    assert form_of(Invoice).strict is not None


def test_a_member_with_a_default_may_be_missing_and_is_asked_for_where_schemas_are_enforced() -> (
    None
):
    form = form_of(Person)
    assert form.schema()["required"] == ["name"]
    assert form.enforced_schema()["required"] == ["name", "age"]
    assert form.read('{"name": "Ann"}') == Person(name="Ann")


def test_limits_that_some_provider_refuses_are_told_in_words_and_checked_here() -> None:
    form = form_of(Verdict)
    properties = form.enforced_schema()["properties"]
    assert properties["reason"] == {"type": "string", "description": "{maxLength: 20}"}  # type: ignore[index]
    with pytest.raises(InvalidArguments, match="reason"):
        form.read('{"verdict": "no", "reason": "because of this and of that"}')


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]
    name: Annotated[str, pydantic.Field(min_length=1, max_length=5)]


class Home(pydantic.BaseModel):
    pets: list[Annotated[Cat | Dog, pydantic.Field(discriminator="kind")]] = []
    built: dt.date | None = None
    price: decimal.Decimal = decimal.Decimal(1)


class Point(pydantic.BaseModel):
    at: tuple[float, float]


def refused(schema: Any) -> Iterator[str]:
    """What a provider that enforces schemas refuses in one."""
    if isinstance(schema, list):
        for one in schema:
            yield from refused(one)
    if not isinstance(schema, dict):
        return
    if schema.get("type") == "object":
        if schema.get("additionalProperties") is not False:
            yield "an open object"
        if schema["required"] != list(schema["properties"]):
            yield "an optional member"
    for name, value in schema.items():
        if name in {"oneOf", "default", "minLength", "maxLength", "prefixItems", "$ref"}:
            yield name
        inner = list(value.values()) if name == "properties" else value
        yield from refused(inner)


@pytest.mark.parametrize(
    "annotation", [Invoice, Place, Verdict, Person, Home, list[Home], Invoice | Place, int | None]
)
def test_what_is_enforced_is_what_providers_take(annotation: object) -> None:
    form = form_of(annotation)
    assert form.strict is not None
    assert list(refused(form.enforced_schema())) == []


class Loose(pydantic.BaseModel):
    anything: object


def test_what_no_provider_takes_is_not_enforced_and_read_all_the_same() -> None:
    assert form_of(Loose).strict is None
    assert form_of(list[object]).strict is None
    form = form_of(Point)
    assert form.strict is None
    assert form.read('{"at": [1, 2]}') == Point(at=(1, 2))


def test_what_has_no_schema_is_refused_when_it_is_asked_for() -> None:
    with pytest.raises(ConfigError, match="output"):
        form_of(object())
    with pytest.raises(ConfigError, match="retries"):
        Output(Invoice, retries=-1)
    with pytest.raises(ConfigError, match="mode"):
        Output(Invoice, mode="json")  # type: ignore[call-overload]
