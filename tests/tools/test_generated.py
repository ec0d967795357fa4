"""For any signature: what the schema allows arrives exactly, and what it does not is refused."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from perdure.errors import InvalidArguments
from perdure.tools import Call, check_value
from perdure.tools.arguments import parse_arguments
from perdure.wire.canonical import canonical_json
from tests.tools.generated import (
    DEFAULT,
    JSON,
    Signed,
    faulty_object,
    object_text,
    signatures,
)
from tests.tools.test_schema import SCHEMAS

ROOT = Path(__file__).resolve().parents[2]


@given(st.data(), signatures())
def test_what_the_schema_allows_reaches_the_function_exactly(
    data: st.DataObject, signed: Signed
) -> None:
    expected: dict[str, Any] = {}
    texts: dict[str, str] = {}
    for name, parameter in signed.parameters.items():
        if parameter.has_default and data.draw(st.booleans()):
            expected[name] = DEFAULT
            continue
        good = data.draw(parameter.kind.good)
        texts[name], expected[name] = good
    order = data.draw(st.permutations(list(texts)))
    text = object_text({name: texts[name] for name in order})
    call = Call(id="c", name="take", arguments=text)
    asyncio.run(signed.tool.execute(call))
    assert signed.got == [expected]
    # 1, 1.0 and True are equal, and must still be told apart.
    assert {n: repr(v) for n, v in signed.got[0].items()} == {
        n: repr(v) for n, v in expected.items()
    }


@given(st.data(), signatures())
def test_what_the_schema_does_not_allow_is_refused_with_its_path(
    data: st.DataObject, signed: Signed
) -> None:
    if not signed.parameters:
        return
    members = {name: one.kind for name, one in signed.parameters.items()}
    optional = frozenset(name for name, one in signed.parameters.items() if one.has_default)
    fault = data.draw(faulty_object(members, optional))
    with pytest.raises(InvalidArguments) as caught:
        signed.tool.check(fault.text)
    assert caught.value.path == fault.path.removeprefix(".")
    assert not signed.got


@given(st.data(), signatures(strict=True))
def test_in_strict_mode_the_schema_and_the_reader_agree_on_any_value(
    data: st.DataObject, signed: Signed
) -> None:
    members: dict[str, Any] = {}
    for name, parameter in signed.parameters.items():
        if data.draw(st.integers(0, 9)):
            good = parameter.kind.good.map(lambda one: one.text)
            members[name] = data.draw(good | JSON.map(json.dumps))
    text = object_text(members)
    assert accepted_by_schema(signed.tool.parameters, text) == accepted_by_reader(signed, text)


def accepted_by_schema(schema: object, text: str) -> bool:
    try:
        check_value(schema, parse_arguments(text, required=False))
    except InvalidArguments:
        return False
    return True


def accepted_by_reader(signed: Signed, text: str) -> bool:
    return not refusal(signed, text)


@given(signatures())
def test_generation_gives_the_same_schema_twice(signed: Signed) -> None:
    parameters = signed.tool.signature.schema()
    assert json.dumps(parameters) == json.dumps(signed.tool.parameters)
    canonical_json(parameters)


@given(st.data(), signatures())
def test_the_first_error_does_not_depend_on_the_order_of_members(
    data: st.DataObject, signed: Signed
) -> None:
    texts = {name: data.draw(one.kind.bad).text for name, one in signed.parameters.items()}
    texts |= data.draw(st.sampled_from([{}, {"zeta": "1", "eta": "1"}]))
    orders = [dict(data.draw(st.permutations(list(texts.items())))) for _ in range(3)]
    assert len({refusal(signed, object_text(order)) for order in orders}) == 1


def refusal(signed: Signed, text: str) -> str:
    try:
        signed.tool.check(text)
    except InvalidArguments as error:
        return str(error)
    return ""


PRINT_SCHEMAS = """
import json
from perdure.tools import json_schema
from tests.tools.test_schema import SCHEMAS
print(json.dumps([json_schema(annotation) for annotation, _ in SCHEMAS]))
"""


@pytest.mark.parametrize("seed", ["0", "1", "4242"])
def test_generation_is_the_same_in_every_process(seed: str) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    printed = subprocess.run(
        [sys.executable, "-c", PRINT_SCHEMAS],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    from perdure.tools import json_schema

    assert printed.strip() == json.dumps([json_schema(annotation) for annotation, _ in SCHEMAS])
