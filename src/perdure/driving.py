"""What the drives of an agent are configured with, beside what its definition says."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import msgspec

from perdure.loop import Config, Limits, Settings
from perdure.loop.account import Account
from perdure.loop.config import NO_LIMITS
from perdure.wire import ABSENT, Request

if TYPE_CHECKING:
    from perdure.log import Recording

SEALED_REASONING = "reasoning.encrypted_content"


def charged(config: Config, account: Account, limits: Limits | None) -> Config:
    """A config whose requests are charged to an account.

    Args:
        config: The config.
        account: The account.
        limits: What is left of the limits of a run; None if it has just begun.

    Raises:
        ConfigError: Money is limited, and nobody knows what the model costs.
    """
    account.check(config.model_name or config.settings.model or "")
    left = limits or NO_LIMITS
    seconds = config.max_seconds if left.seconds is None else left.seconds
    if seconds is not None:
        clock = config.clock
        account.end_at(clock, clock.monotonic() + seconds, seconds=config.max_seconds or seconds)
    return dataclasses.replace(config, account=account, left=left)


def recorded(config: Config, recording: Recording) -> Config:
    """A config whose tools' records and questions go into the log too."""
    from perdure.durable.steps import nested_step

    asks = config.elicitor
    recording.recorder.deployment = config.deployment
    recording.recorder.principal = config.principal
    return dataclasses.replace(
        config,
        recorder=config.recorder or recording.write_record,
        elicitor=recording.elicitor(asks) if asks is not None else None,
        on_unknown="halt" if recording.halts else "tell",
        on_failure="trip" if recording.session.header.is_saga else "tell",
        on_late=recording.on_late,
        memo=nested_step,
        gates=recording.standing,
        fence=recording.lease.fence.nonce,
    )


def with_sealed_reasoning(settings: Settings | Request) -> Request:
    """Settings that ask for thoughts in the sealed form in which they can be sent back.

    No server holds the conversation, so what a model thought has to travel with it (DESIGN 5).
    Settings that say what to include stay as they are.
    """
    if isinstance(settings, Settings):
        settings = settings.request()
    if settings.include is not ABSENT:
        return settings
    return msgspec.structs.replace(settings, include=(SEALED_REASONING,))
