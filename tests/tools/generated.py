"""Generated types, with values that fit them and values that do not."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import inspect
import json
from base64 import b64encode
from decimal import Decimal
from typing import Any, Literal, NamedTuple, TypedDict

import msgspec
from hypothesis import strategies as st

from perdure.tools import TypedTool, tool


class Good(NamedTuple):
    """A value that fits: as JSON text, and as the function must get it."""

    text: str
    value: Any


class Bad(NamedTuple):
    """A value that does not fit: as JSON text, and where the fault is."""

    text: str
    path: str


@dataclasses.dataclass(frozen=True)
class Kind:
    """A type, with strategies for what fits it and what does not."""

    annotation: Any
    good: st.SearchStrategy[Good]
    bad: st.SearchStrategy[Bad]
    said_by_schema: bool = True
    """The schema alone says what fits: it has no format, and no map, which strict mode lacks."""


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"
    SEVEN = 7


def bad(*texts: str) -> st.SearchStrategy[Bad]:
    return st.sampled_from([Bad(text, "") for text in texts])


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
WHOLE = st.integers() | st.sampled_from([2**53 + 1, -(2**63) - 1, 10**29 + 1])


def spelled(number: int) -> st.SearchStrategy[str]:
    """The ways to spell a whole number."""
    spellings = [f"{number}", f"{number}.0", f"{number}e0"]
    return st.sampled_from([*spellings, f"{number}0E-1"] if number else spellings)


def json_text(value: object) -> str:
    return json.dumps(value)


SCALARS = [
    Kind(
        bool,
        st.booleans().map(lambda value: Good(json_text(value), value)),
        bad("0", '"true"', "null", "[]"),
    ),
    Kind(
        int,
        WHOLE.flatmap(lambda n: spelled(n).map(lambda text: Good(text, n))),
        bad("1.5", "true", '"1"', "null", "1e-3", "{}"),
    ),
    Kind(
        float,
        st.floats(allow_nan=False, allow_infinity=False).map(lambda x: Good(repr(x), x)),
        bad('"1.5"', "true", "null", "1e999"),
    ),
    Kind(
        Decimal,
        st.decimals(allow_nan=False, allow_infinity=False, places=25).map(
            lambda x: Good(f"{x:f}", x)
        ),
        bad('"1.5"', "true", "null"),
    ),
    Kind(
        str,
        TEXT.map(lambda value: Good(json_text(value), value)),
        bad("1", "null", "[]", '"\\ud800"'),
    ),
    Kind(
        bytes,
        st.binary(max_size=6).map(lambda value: Good(json_text(b64encode(value).decode()), value)),
        bad("1", '"a"', '"a-b="'),
        said_by_schema=False,
    ),
    Kind(
        dt.datetime,
        st.datetimes(timezones=st.just(dt.UTC))
        .map(lambda value: value.replace(fold=0))
        .map(lambda value: Good(json_text(value.isoformat()), value)),
        bad('"today"', "1", '"2026-01-31"', '"2026-01-31T12:00:00"'),
        said_by_schema=False,
    ),
    Kind(
        dt.date,
        st.dates().map(lambda value: Good(json_text(value.isoformat()), value)),
        bad('"2026-13-01"', "1"),
        said_by_schema=False,
    ),
    Kind(
        Literal["a", "b", 3],
        st.sampled_from([Good('"a"', "a"), Good('"b"', "b"), Good("3.0", 3)]),
        bad('"c"', "4", "true", "null"),
    ),
    Kind(
        Color,
        st.sampled_from([Good('"red"', Color.RED), Good("7", Color.SEVEN)]),
        bad('"RED"', "8", "null"),
    ),
    Kind(
        int | str,
        st.sampled_from([Good('"x"', "x"), Good("5", 5)]),
        bad("1.5", "true", "[]"),
    ),
]


def optional(kind: Kind) -> Kind:
    good = st.one_of(st.just(Good("null", None)), kind.good)
    return Kind(
        kind.annotation | None,
        good,
        kind.bad.filter(lambda one: one.text != "null"),
        kind.said_by_schema,
    )


def array(kind: Kind) -> Kind:
    @st.composite
    def wrong(draw: st.DrawFn) -> Bad:
        items = [one.text for one in draw(st.lists(kind.good, max_size=3))]
        fault = draw(kind.bad)
        index = draw(st.integers(0, len(items)))
        items.insert(index, fault.text)
        return Bad(f"[{','.join(items)}]", f"[{index}]{fault.path}")

    good = st.lists(kind.good, max_size=3).map(
        lambda items: Good(f"[{','.join(i.text for i in items)}]", [i.value for i in items])
    )
    of: Any = list
    faulty = wrong() | bad("{}", "null", '"x"')
    return Kind(of[kind.annotation], good, faulty, kind.said_by_schema)


KEYS = st.sampled_from(["a", "b c", "ключ", "d"])


def mapping(kind: Kind) -> Kind:
    good = st.dictionaries(KEYS, kind.good, max_size=3).map(
        lambda members: Good(
            object_text({name: one.text for name, one in members.items()}),
            {name: one.value for name, one in members.items()},
        )
    )
    wrong = kind.bad.map(lambda fault: Bad(object_text({"k": fault.text}), f".k{fault.path}"))
    of: Any = dict
    return Kind(of[str, kind.annotation], good, wrong | bad("[]", "null"), said_by_schema=False)


def object_text(members: dict[str, str]) -> str:
    return "{" + ",".join(f"{json_text(name)}:{text}" for name, text in members.items()) + "}"


NAMES = ["alpha", "beta", "gamma", "delta", "epsilon"]


@st.composite
def record(draw: st.DrawFn, kinds: st.SearchStrategy[Kind]) -> Kind:
    members = {name: draw(kinds) for name in NAMES[: draw(st.integers(1, 3))]}
    style = draw(st.sampled_from(["dataclass", "typed dict", "struct"]))
    cls: Any
    if style == "dataclass":
        cls = dataclasses.make_dataclass("D", [(n, k.annotation) for n, k in members.items()])
    elif style == "struct":
        cls = msgspec.defstruct("S", [(n, k.annotation) for n, k in members.items()])
    else:
        make: Any = TypedDict
        cls = make("T", {n: k.annotation for n, k in members.items()})

    @st.composite
    def good(draw: st.DrawFn) -> Good:
        given = {name: draw(kind.good) for name, kind in members.items()}
        order = draw(st.permutations(list(given)))
        text = object_text({name: given[name].text for name in order})
        return Good(text, cls(**{name: one.value for name, one in given.items()}))

    return Kind(
        cls, good(), faulty_object(members), all(k.said_by_schema for k in members.values())
    )


@st.composite
def faulty_object(
    draw: st.DrawFn, members: dict[str, Kind], optional: frozenset[str] = frozenset()
) -> Bad:
    """An object with exactly one fault: a member that is wrong, missing, misspelt, or too many."""
    texts = {name: draw(kind.good).text for name, kind in members.items()}
    name = draw(st.sampled_from(sorted(members)))
    must = name not in optional and not _nullable(members[name].annotation)
    how = draw(st.sampled_from(["wrong", "unknown", "case", *(["missing"] if must else [])]))
    if how == "wrong":
        fault = draw(members[name].bad)
        return Bad(object_text({**texts, name: fault.text}), f".{name}{fault.path}")
    if how == "missing":
        return Bad(object_text({n: text for n, text in texts.items() if n != name}), f".{name}")
    extra = "zeta" if how == "unknown" else name.upper()
    return Bad(object_text({**texts, extra: "1"}), f".{extra}")


def _nullable(annotation: Any) -> bool:
    return type(None) in getattr(annotation, "__args__", ())


KINDS: st.SearchStrategy[Kind] = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: st.one_of(
        inner.map(array), inner.map(mapping), inner.map(optional), record(inner)
    ),
    max_leaves=5,
)


class Parameter(NamedTuple):
    kind: Kind
    has_default: bool


@dataclasses.dataclass
class Signed:
    """A function with a generated signature, as a tool, and what it was given."""

    parameters: dict[str, Parameter]
    tool: TypedTool[..., Any]
    got: list[dict[str, Any]]


DEFAULT = object()


@st.composite
def signatures(draw: st.DrawFn, *, strict: bool = False) -> Signed:
    kinds = KINDS.filter(lambda kind: kind.said_by_schema) if strict else KINDS
    names = NAMES[: draw(st.integers(0, 4))]
    parameters = {name: Parameter(draw(kinds), draw(st.booleans())) for name in names}
    got: list[dict[str, Any]] = []
    style = draw(
        st.sampled_from(
            [
                inspect.Parameter.POSITIONAL_ONLY,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                inspect.Parameter.KEYWORD_ONLY,
            ]
        )
    )
    ordered = sorted(names, key=lambda name: parameters[name].has_default)
    signature = inspect.Signature(
        [
            inspect.Parameter(
                name,
                style,
                default=DEFAULT if parameters[name].has_default else inspect.Parameter.empty,
            )
            for name in ordered
        ]
    )

    async def take(*args: Any, **kwargs: Any) -> None:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        got.append(bound.arguments)

    take.__signature__ = signature  # type: ignore[attr-defined]
    take.__annotations__ = {name: parameters[name].kind.annotation for name in ordered}
    return Signed(parameters, tool(take, strict=strict), got)


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["a", "b", "red", "", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
    ),
    max_leaves=6,
)
"""Values that know nothing of the type they are tried on."""
