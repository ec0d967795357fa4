"""What somebody says of a halted call, of a step, or of what a rollback cannot undo: one thing."""

from __future__ import annotations

import dataclasses
import enum

from perdure.clock import Clock
from perdure.durable.addressing import Said, Target
from perdure.durable.sagas.settling import tell_settle
from perdure.durable.telling import tell_resolve, tell_step
from perdure.errors import ConfigError
from perdure.log import Store
from perdure.tools.result import given_json


class Unsaid(enum.Enum):
    """What stands for a value that nobody gave; None is one."""

    UNSAID = "unsaid"


UNSAID = Unsaid.UNSAID


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """What is said; `perdure.Runs.resolve` says what each means."""

    output: str | None = None
    failed: str | None = None
    step: str = ""
    value: object = UNSAID
    never_ran: bool = False
    compensated: bool = False
    left: bool = False
    evidence: object = None
    min_age: float | None = None

    def check(self) -> None:
        """Refuse what says nothing, or more than one thing.

        Raises:
            ConfigError: It does.
        """
        _ = given_json(self.evidence, "the evidence")
        gave = (self.output is not None) + (self.failed is not None)
        settles = self.compensated + self.left
        valued = self.value is not UNSAID
        if settles:
            if settles + gave + self.never_ran + valued != 1:
                raise ConfigError("a resolution says one thing: compensated or left, alone")
        elif self.step:
            if gave or self.never_ran + valued != 1:
                raise ConfigError("a step is resolved by either value=..., or never_ran=True")
        elif valued:
            raise ConfigError("value=... is what a step gave; a call gave output=...")
        elif gave + self.never_ran != 1:
            raise ConfigError("a resolution is output=..., failed=..., or never_ran=True")


async def tell_word(store: Store, target: Target, said: Said, word: Word, *, clock: Clock) -> None:
    """Say one thing of a call or of a step. Raises as `perdure.Runs.resolve`."""
    word.check()
    if word.compensated or word.left:
        await tell_settle(
            store,
            target,
            said,
            verdict="compensated" if word.compensated else "left",
            step=word.step,
            evidence=word.evidence,
        )
    elif word.step:
        await tell_step(
            store,
            target,
            said,
            word.step,
            clock=clock,
            value=word.value,
            never_ran=word.never_ran,
            evidence=word.evidence,
            min_age=word.min_age,
        )
    else:
        await tell_resolve(
            store,
            target,
            said,
            clock=clock,
            output=word.output,
            failed=word.failed,
            evidence=word.evidence,
            min_age=word.min_age,
        )
