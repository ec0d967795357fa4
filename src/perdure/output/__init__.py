"""Typed answers: a model's last word as a value of a type, checked.

Words. A *form* is a type with the JSON schema that a model is held to, and reads an answer into a
value of the type. An answer is *native* where the provider holds the model to the schema; elsewhere
the model gives it as the arguments of the *final tool*. A *plan* is a form and which of the two. A
*correction* is what a model reads whose answer does not fit.
"""

from perdure.output.contract import FINAL_TOOL, Mode, Output
from perdure.output.form import Form
from perdure.output.partial import JsonValue, PartialJson
from perdure.output.plan import Plan, plan_of

__all__ = [
    "FINAL_TOOL",
    "Form",
    "JsonValue",
    "Mode",
    "Output",
    "PartialJson",
    "Plan",
    "plan_of",
]
