"""Wire values as a program makes them, in the normal forms of the wire.

`user("hi")` is the message that `{"type": "message", "role": "user", "content": [...]}` decodes to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from perdure.wire.items import FunctionCall, FunctionCallOutput, Message, Reasoning
from perdure.wire.parts import InputFile, InputImage, InputText, OutputText, Part, SummaryText
from perdure.wire.requests import JsonSchemaFormat
from perdure.wire.tools import FunctionTool
from perdure.wire.values import ABSENT, Absent

Content = str | Part | Sequence[Part]
"""What a message may be made of: a text, a part, or parts."""


def user(content: Content) -> Message:
    """What the user says."""
    return Message(role="user", content=_input(content))


def system(content: Content) -> Message:
    """What the system says."""
    return Message(role="system", content=_input(content))


def developer(content: Content) -> Message:
    """What the developer says."""
    return Message(role="developer", content=_input(content))


def assistant(content: Content, *, id: str | Absent = ABSENT) -> Message:  # noqa: A002 - the wire's own name
    """What the assistant said, complete."""
    parts = _parts(content, output_text)
    return Message(id=id, status="completed", role="assistant", content=parts)


def function_call(call_id: str, name: str, arguments: str = "{}") -> FunctionCall:
    """A call, complete; `arguments` is JSON text."""
    return FunctionCall(call_id=call_id, name=name, arguments=arguments, status="completed")


def function_call_output(call_id: str, output: str | Sequence[Part]) -> FunctionCallOutput:
    """The output of a call: text, or parts."""
    value = output if isinstance(output, str) else tuple(output)
    return FunctionCallOutput(call_id=call_id, output=value)


def reasoning(summary: str = "", *, encrypted_content: str | Absent = ABSENT) -> Reasoning:
    """A thought, as its summary."""
    parts: tuple[Part, ...] = (SummaryText(text=summary),) if summary else ()
    return Reasoning(summary=parts, encrypted_content=encrypted_content)


def input_text(text: str) -> InputText:
    """Text that the model reads."""
    return InputText(text=text)


def input_image(url: str, *, detail: str = "auto") -> InputImage:
    """An image by its URL, `https:` or `data:`."""
    return InputImage(image_url=url, detail=detail)


def input_file(
    *,
    filename: str | Absent = ABSENT,
    file_data: str | Absent = ABSENT,
    file_url: str | Absent = ABSENT,
) -> InputFile:
    """A file: base64 data with its name, or a URL."""
    return InputFile(filename=filename, file_data=file_data, file_url=file_url)


def output_text(text: str) -> OutputText:
    """Text that a model wrote."""
    return OutputText(text=text, annotations=())


def function_tool(
    name: str,
    *,
    description: str = "",
    parameters: Mapping[str, object] | None = None,
    strict: bool | Absent = ABSENT,
) -> FunctionTool:
    """A function the model may call; `parameters` is a JSON Schema object."""
    schema = None if parameters is None else dict(parameters)
    return FunctionTool(name=name, description=description, parameters=schema, strict=strict)


def json_schema(
    name: str, schema: Mapping[str, object], *, strict: bool = True
) -> JsonSchemaFormat:
    """A format for answers that a schema describes."""
    return JsonSchemaFormat(name=name, schema=dict(schema), strict=strict)


def _input(content: Content) -> tuple[Part, ...]:
    return _parts(content, input_text)


def _parts(content: Content, of_text: Callable[[str], Part]) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (of_text(content),)
    if isinstance(content, Part):
        return (content,)
    return tuple(content)
