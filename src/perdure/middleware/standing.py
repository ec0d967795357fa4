"""Standing approvals: "always allow" and "never allow", per tool and per pattern of arguments.

They are policy: they answer in place of a middleware that would hold a call, and a decision for the
exact call wins over them (DESIGN 5). They never pass a gate of several people.
"""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from perdure.loop import Middleware, ToolCallInfo, ToolDecision
from perdure.tools import plain_arguments


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One standing approval."""

    verdict: Literal["always", "never"]
    tool: str
    """The tool's name, or a shell pattern over names, as `read_*`."""
    arguments: Mapping[str, object] = dataclasses.field(default_factory=dict[str, object])
    """What members of the arguments must be: a string is a shell pattern over the member's text,
    anything else must equal it. A member that is not there matches nothing."""
    reason: str = ""

    def matches(self, info: ToolCallInfo) -> bool:
        """Whether the rule speaks about a call."""
        if not fnmatch.fnmatchcase(info.call.name, self.tool):
            return False
        if not self.arguments:
            return True
        given = plain_arguments(info.arguments)
        return all(
            name in given and _fits(given[name], wanted) for name, wanted in self.arguments.items()
        )


def always(tool: str, reason: str = "", **arguments: object) -> Rule:
    """Let calls proceed without asking: `always("read_file", path="/srv/*")`."""
    return Rule(verdict="always", tool=tool, arguments=arguments, reason=reason)


def never(tool: str, reason: str = "", **arguments: object) -> Rule:
    """Reject calls without asking: `never("shell", command="rm *")`."""
    return Rule(verdict="never", tool=tool, arguments=arguments, reason=reason)


class StandingApprovals(Middleware):
    """Rules that answer before a policy asks.

    A `never` rejects the call whatever the policy says. An `always` lets it proceed where the
    policy would hold it; where the policy rejects, it is rejected. A call that no rule matches is
    the policy's. Of several rules that match, a `never` stands.

    Args:
        ask: The policy that holds calls for a person.
        rules: The rules. More can be added while agents run; they hold for calls decided later.
    """

    def __init__(self, ask: Middleware, rules: Iterable[Rule] = ()) -> None:
        self._ask = ask
        self._rules = list(rules)

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules in force."""
        return tuple(self._rules)

    def add(self, rule: Rule) -> None:
        """Add a rule, as when a person answers "always"."""
        self._rules.append(rule)

    def remove(self, rule: Rule) -> None:
        """Take a rule back; one that is not in force is ignored."""
        if rule in self._rules:
            self._rules.remove(rule)

    async def before_tool_call(self, info: ToolCallInfo) -> ToolDecision | None:
        """Decide by the rules, then by the policy."""
        matching = [rule for rule in self._rules if rule.matches(info)]
        forbidden = next((rule for rule in matching if rule.verdict == "never"), None)
        if forbidden is not None:
            reason = forbidden.reason or f"{info.call.name} is never allowed here"
            return ToolDecision(action="reject", reason=reason, by="policy")
        decision = await self._ask.before_tool_call(info)
        if decision is None or decision.action != "hold" or not matching:
            return decision
        return _allowed(decision, matching[0])


def _allowed(decision: ToolDecision, rule: Rule) -> ToolDecision:
    """The hold of a policy, lifted by a rule; what else it decided stands."""
    reason = rule.reason or f"{rule.tool} is always allowed"
    return msgspec.structs.replace(decision, action="proceed", reason=reason, by="policy")


def _fits(value: object, wanted: object) -> bool:
    if isinstance(wanted, str):
        return isinstance(value, str) and fnmatch.fnmatchcase(value, wanted)
    return type(value) is type(wanted) and value == wanted
