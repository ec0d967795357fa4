"""Channels: messages for a run that are handled one after the other, each until it is done with.

A message stays the first of its channel until it is acknowledged, over any number of crashes. So
handle it in steps, and acknowledge it last: what was handled twice was then handled once.
"""

from __future__ import annotations

import dataclasses

import msgspec
from msgspec import Raw

from perdure.durable.given import check_name
from perdure.durable.waits import asking, begun, ended, must_be_recorded, not_yet, waiting_now
from perdure.errors import ConfigError
from perdure.log.entries import ChannelEntry

CHANNEL = "channel"
"""The kind of a wait for a message."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A message of a channel.

    Attributes:
        channel: The channel.
        key: Whoever sent it gave it; no other message of the channel has it.
        value: What was sent, as plain JSON values.
    """

    channel: str
    key: str
    value: object

    async def ack(self) -> None:
        """Say that it is done with. Raises as `ack`."""
        await ack(self.channel, self.key)


async def receive(channel: str) -> Received:
    """The oldest message of a channel that is not acknowledged; waits for one if there is none.

    It takes nothing away: until it is acknowledged, it is received again. A call that is entered
    again gets what it received before, at the same place.

    Args:
        channel: The channel, as `Runs.send` names it.

    Raises:
        ConfigError: The name cannot be used, the effect of the tool forbids a wait, or it is not a
            run by id.
    """
    recorded = must_be_recorded(waiting_now(channel, CHANNEL), "a channel")
    work = recorded.recording.view.work
    place = recorded.receives[channel] = recorded.receives.get(channel, 0) + 1
    name = f"{channel}#{place}"
    with asking(recorded, CHANNEL, name, None):
        wait = await begun(recorded, CHANNEL, name)
        if wait.end is not None:
            key = str(msgspec.json.decode(bytes(wait.end.value)))
            return _received(work.channels[channel][key])
        first = work.first_of(channel)
        if first is None:
            await not_yet(recorded, wait, f"it waits for a message of {channel!r}")
        await ended(recorded, wait, "message", Raw(msgspec.json.encode(first.key)))
        return _received(first)


async def ack(channel: str, key: str) -> None:
    """Say that a message is done with; once more says nothing new.

    Args:
        channel: The channel.
        key: Of the message.

    Raises:
        ConfigError: The channel has no such message, or it is not a run by id.
    """
    check_name(channel, CHANNEL)
    check_name(key, "message")
    recorded = must_be_recorded(waiting_now(channel, CHANNEL), "a channel")
    work = recorded.recording.view.work
    if key not in work.channels.get(channel, {}):
        raise ConfigError(
            f"channel {channel!r} has no message {key!r}: acknowledge what receive() gave"
        )
    if (channel, key) not in work.acknowledged:
        await recorded.write("perdure:ack", {"channel": channel, "key": key})


def _received(entry: ChannelEntry) -> Received:
    value: object = msgspec.json.decode(bytes(entry.value))
    return Received(channel=entry.channel, key=entry.key, value=value)
