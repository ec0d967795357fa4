"""How one agent gets answers of its type: what its requests say, and what an answer is.

What a run's answer is follows from its transcript alone, so that a run that is taken up again after
a crash has the answer that the record shows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Generic, TypeVar, cast

import msgspec

from perdure.errors import ConfigError, InvalidArguments, OutputInvalid, OutputRefused
from perdure.loop import (
    Answering,
    Config,
    Items,
    resolve_tools,
)
from perdure.models.capabilities import Capabilities
from perdure.output.contract import FINAL_TOOL, Output
from perdure.output.form import Form, form_of, unfenced
from perdure.tools import Call, Effect, Tool, ToolResult
from perdure.wire import (
    ABSENT,
    FunctionCall,
    FunctionCallOutput,
    Item,
    JsonSchemaFormat,
    Message,
    Refusal,
    Request,
    TextConfig,
    is_extension,
    user,
)

PlanT_co = TypeVar("PlanT_co", covariant=True)

TOOL_DESCRIPTION = "Give the final answer. It ends the conversation, so call it once, at the end."
TOOL_INSTRUCTIONS = f"Give your final answer by calling the tool {FINAL_TOOL}, not as text."


class Answered(msgspec.Struct, frozen=True):
    """An answer that a transcript ends with, as the model gave it."""

    text: str
    """Its JSON."""
    by_tool: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Generic[PlanT_co]):
    """A form, and how answers of it are had."""

    form: Form[PlanT_co]
    native: bool
    required: bool
    """The model is told that it has to call a tool."""
    retries: int

    # --- what requests say -------------------------------------------------------------------

    def configured(self, config: Config) -> Config:
        """A config whose requests ask for such answers."""
        if self.native:
            return dataclasses.replace(config, settings=self._with_format(config.settings))
        words = [config.instructions or config.settings.instructions or "", TOOL_INSTRUCTIONS]
        settings = config.settings
        if self.required and not settings.tool_choice:
            settings = msgspec.structs.replace(settings, tool_choice="required")
        return dataclasses.replace(
            config,
            settings=settings,
            instructions="\n\n".join(filter(None, words)),
            tools=self.with_tool(config.tools),
            tool_provider=self._provider(config),
        )

    def with_tool(self, tools: Sequence[Tool]) -> tuple[Tool, ...]:
        """Tools with the final one among them, by name.

        Raises:
            ConfigError: One of them has its name.
        """
        if any(tool.name == FINAL_TOOL for tool in tools):
            raise ConfigError(
                f"a tool is named {FINAL_TOOL!r}, which is how a typed answer is given; "
                "give it another name"
            )
        return tuple(sorted((*tools, FinalTool(self.form)), key=lambda tool: tool.name))

    def judge(self) -> Answering:
        """What judges the answers of one drive."""
        return _Judge(self)

    def _with_format(self, settings: Request) -> Request:
        text = settings.text or TextConfig()
        if text.format:
            raise ConfigError("the settings hold a format for the text, and so does output")
        form = JsonSchemaFormat(
            name=self.form.name,
            description=self.form.description or ABSENT,
            schema=self.form.enforced_schema(),
            strict=True,
        )
        return msgspec.structs.replace(settings, text=msgspec.structs.replace(text, format=form))

    def _provider(self, config: Config) -> _Provider | None:
        return None if config.tool_provider is None else _Provider(self, config)

    # --- what an answer is ---------------------------------------------------------------------

    def answered(self, items: Items) -> Answered | None:
        """The answer that a transcript ends with, if it fits."""
        last = _last(items)
        if isinstance(last, FunctionCallOutput):
            return None if self.native else self._by_tool(items)
        if not isinstance(last, Message) or last.role != "assistant":
            return None
        return None if self._fault(last.text) else Answered(unfenced(last.text), by_tool=False)

    def read(self, answered: Answered) -> PlanT_co:
        """The value of an answer."""
        return self.form.read(answered.text)

    def correction(self, items: Items) -> Item | None:
        """What the model is told of the text that a transcript ends with; None if it fits."""
        last = _last(items)
        if not isinstance(last, Message) or last.role != "assistant":
            return None
        fault = self.fault_in(last)
        words = "Answer again" if self.native else "Call it"
        text = f"The answer was not taken: {fault}. {words}, with JSON that fits the schema."
        return user(text) if fault else None

    def fault_in(self, message: Message) -> str:
        """What is wrong with a text as an answer; empty if nothing is."""
        fault = self._fault(message.text)
        return f"it has to be given by calling {FINAL_TOOL}" if fault and not self.native else fault

    def _fault(self, text: str) -> str:
        try:
            self.form.read(text)
        except InvalidArguments as error:
            return f"{error.path}: {error.reason}" if error.path else error.reason
        return ""

    def _by_tool(self, items: Items) -> Answered | None:
        """The first accepted call of the final tool in the batch that a transcript ends with.

        The tool gives its arguments back, so its output is the answer; anything else is an error.
        """
        outputs: dict[str, str] = {}
        place = len(items)
        while place and not _is_said(items[place - 1]):
            place -= 1
            item = items[place]
            if isinstance(item, FunctionCallOutput):
                outputs[item.call_id] = item.text
            elif isinstance(item, FunctionCall):
                break
        return self._first_accepted(_calls_before(items, place + 1), outputs)

    def _first_accepted(
        self, calls: Sequence[FunctionCall], outputs: dict[str, str]
    ) -> Answered | None:
        for call in calls:
            text = outputs.get(call.call_id)
            if call.name == FINAL_TOOL and text is not None and not self._fault(text):
                return Answered(text, by_tool=True)
        return None


def plan_of(output: object, can: Capabilities, *, has_tools: bool) -> Plan[object]:
    """How answers of a type are had from a model.

    Args:
        output: An `Output`, or a type.
        can: What the model can do.
        has_tools: Whether it has tools beside.

    Raises:
        ConfigError: The type has no schema, or none that a provider enforces where that was asked
            for.
    """
    asked = cast("Output[object]", output) if isinstance(output, Output) else Output(output)
    form = form_of(asked.form, name=asked.name, description=asked.description)
    if asked.mode == "native" and form.strict is None:
        raise ConfigError(f"output: no provider enforces the schema of {asked.form!r}")
    able = can.schema_with_tools if has_tools else can.schema
    native = asked.mode == "native" or (asked.mode == "auto" and able and form.strict is not None)
    return Plan(form=form, native=native, required=can.required, retries=asked.retries)


# --- the final tool -------------------------------------------------------------------------


class FinalTool:
    """The tool whose arguments are the answer."""

    name = FINAL_TOOL
    effect: Effect = "none"

    def __init__(self, form: Form[object]) -> None:
        self._form = form
        self.description = f"{TOOL_DESCRIPTION} {form.description}".strip()
        self.parameters = form.schema()

    def check(self, arguments: str) -> None:
        """Refuse an answer that does not fit. Raises `InvalidArguments`."""
        self._form.read(arguments)

    async def execute(self, call: Call) -> ToolResult:
        """Give the answer back. Raises as `check`."""
        self._form.read(call.arguments)
        return ToolResult(call.arguments)


class _Provider:
    """Another's tools, with the final one among them."""

    def __init__(self, plan: Plan[object], config: Config) -> None:
        self._plan = plan
        self._config = config

    async def __call__(self) -> Sequence[Tool]:
        return self._plan.with_tool(tuple(await resolve_tools(self._config)))


# --- the judge ------------------------------------------------------------------------------


class _Judge:
    """Has answers that do not fit sent back, so often and no more."""

    def __init__(self, plan: Plan[object]) -> None:
        self._plan = plan
        self._misses = 0

    def given(self, items: Items) -> bool:
        """Whether the final tool has taken an answer."""
        answered = self._plan.answered(items)
        return answered is not None and answered.by_tool

    def judge(self, items: Items, *, final: bool) -> Item | None:
        """Count the answers that do not fit.

        Raises:
            OutputInvalid: Another one did not.
            OutputRefused: The model refuses.
        """
        if not final:
            tried = _attempt(items)
            if tried:
                self._miss(_output_of(items, tried) or "it was not taken")
            return None
        last = _last(items)
        correction = self._plan.correction(items)
        if correction is not None and isinstance(last, Message):
            refused = _refusal(last)
            if refused:
                raise OutputRefused(refused)
            self._miss(self._plan.fault_in(last))
        return correction

    def _miss(self, fault: str) -> None:
        self._misses += 1
        if self._misses > self._plan.retries:
            raise OutputInvalid(fault, attempts=self._misses)


def _refusal(message: Message) -> str:
    """What a model says that refuses; empty if it says anything else."""
    said = [part.refusal for part in message.content if isinstance(part, Refusal)]
    return "".join(said) if said and not message.text else ""


def _attempt(items: Items) -> str:
    """The last batch's first attempt to answer by the tool; empty if there is none."""
    place = len(items)
    while place and not isinstance(items[place - 1], FunctionCall):
        if _is_said(items[place - 1]):
            return ""
        place -= 1
    calls = _calls_before(items, place)
    return next((call.call_id for call in calls if call.name == FINAL_TOOL), "")


def _output_of(items: Items, call_id: str) -> str:
    for item in reversed(items):
        if isinstance(item, FunctionCallOutput) and item.call_id == call_id:
            return item.text
    return ""


def _last(items: Items) -> Item | None:
    """The last item that is none of an extension type, nor a note behind a batch."""
    for item in reversed(items):
        if not (is_extension(item) or (isinstance(item, Message) and item.role == "developer")):
            return item
    return None


def _is_said(item: Item) -> bool:
    return isinstance(item, Message) and item.role != "developer"


def _is_told(item: Item) -> bool:
    return isinstance(item, Message) and item.role != "assistant"


def _calls_before(items: Items, stop: int) -> list[FunctionCall]:
    """The calls of the response that ends before a place, in order."""
    calls: list[FunctionCall] = []
    for place in range(stop - 1, -1, -1):
        item = items[place]
        if isinstance(item, FunctionCall):
            calls.append(item)
        elif isinstance(item, FunctionCallOutput) or _is_told(item):
            break
    return calls[::-1]
