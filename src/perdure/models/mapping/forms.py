"""How providers write a transcript whose turns alternate: pieces, results, messages.

A *piece* is what one item gives: JSON blocks for a turn of its role. A *form* is how a provider
writes pieces and turns: a function of what it is given alone, so that bytes can be kept.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, NamedTuple, Protocol

from perdure.models.mapping.kept import extension, kept_text
from perdure.models.mapping.losses import Lost
from perdure.models.mapping.texts import json_text
from perdure.wire import FunctionCall, FunctionCallOutput, Item, Message, Reasoning, UnknownItem
from perdure.wire.jsontext import members_of, text_of_raw
from perdure.wire.marks import MAKER

Role = Literal["user", "assistant"]

Kind = Literal["thought", "call", "system", "other"]
"""What a form has to know of a piece beside its blocks."""

NO_OUTPUT = "Error: the call has no output"
"""What stands for the output of a call that has none."""


class Piece(NamedTuple):
    """What one item adds to a turn.

    Attributes:
        role: Whose turn it belongs to.
        blocks: What it adds.
        kind: What it is.
        at: The place of its item, once it stands in a turn.
    """

    role: Role
    blocks: Sequence[bytes]
    kind: Kind = "other"
    at: str = ""


class Call(NamedTuple):
    """A call under the id that is sent, and the place of its item."""

    call: FunctionCall
    place: int


class Answered(NamedTuple):
    """A call, its output if there is one, and the place of the last of their items."""

    call: FunctionCall
    output: FunctionCallOutput | None
    place: int


class Result(NamedTuple):
    """What an output gives.

    Attributes:
        block: The block that answers the call.
        beside: What cannot stand in it, and is said by the user after all results.
    """

    block: bytes
    beside: Sequence[bytes] = ()


class Turn:
    """A turn on its way.

    Attributes:
        role: Whose it is.
        pieces: What stands in it, in order.
        calls: The calls an assistant makes in it, by the ids they have in the transcript.
        owed: The calls of the turn before, which a user answers, likewise.
    """

    __slots__ = ("calls", "owed", "pieces", "role")

    def __init__(self, role: Role, before: Mapping[str, Call]) -> None:
        self.role: Role = role
        self.pieces: list[Piece] = []
        self.calls: dict[str, Call] = {}
        self.owed = {id_: Answered(one.call, None, one.place) for id_, one in before.items()}

    def blocks(self, *kinds: Kind) -> list[bytes]:
        """The blocks of the pieces of some kinds, in order."""
        return [block for piece in self.pieces if piece.kind in kinds for block in piece.blocks]


class Form(Protocol):
    """How a provider writes what a transcript says: functions of their arguments alone."""

    def call_id(self, call_id: str) -> str:
        """A call id as the provider takes it."""
        ...

    def piece(self, item: Item, lost: Lost) -> Piece | None:
        """What an item gives; None for nothing. Never asked for the output of a call."""
        ...

    def result(self, answered: Answered, lost: Lost) -> Result:
        """What a call's output gives, or its want."""
        ...

    def message(self, turn: Turn, results: Sequence[Result], lost: Lost) -> bytes:
        """A turn as a message; several with commas between."""
        ...

    def variant(self, turn: Turn) -> bytes | None:
        """An assistant's message as it has to be until the user speaks again, if that is another.

        Results alone are not speaking.
        """
        ...


class BlockForm(abc.ABC):
    """A form whose items are blocks of JSON, each kind of item in the provider's own way.

    Attributes:
        provider: Whose form it is, as the types of its own items begin.
        whole: The member of such an item that holds its block.
        foreign: Why an item of another type is left out.
    """

    __slots__ = ()

    provider: ClassVar[str]
    whole: ClassVar[str] = "block"
    foreign: ClassVar[str]

    def piece(self, item: Item, lost: Lost) -> Piece | None:
        match item:
            case Message():
                return self._message(item, lost)
            case FunctionCall():
                return Piece("assistant", self._call(item, lost), "call")
            case Reasoning():
                thought = self._thought(item, lost)
                return Piece("assistant", [json_text(thought)], "thought") if thought else None
            case UnknownItem():
                raw = extension(item, self.provider, self.whole)
                if raw is not None:
                    return Piece("assistant", [bytes(raw)])
            case _:
                pass
        lost.add(item.type, self.foreign)
        return None

    def variant(self, turn: Turn) -> bytes | None:
        """None: a turn stays as it is."""
        del turn
        return None

    @abc.abstractmethod
    def _message(self, message: Message, lost: Lost) -> Piece | None: ...

    @abc.abstractmethod
    def _call(self, call: FunctionCall, lost: Lost) -> list[bytes]: ...

    @abc.abstractmethod
    def _thought(self, thought: Reasoning, lost: Lost) -> Mapping[str, object] | None: ...


def written(role: str, name: str, blocks: Sequence[bytes]) -> bytes:
    """A message of JSON blocks.

    Args:
        role: Whose it is.
        name: The member that holds the blocks.
        blocks: The blocks.
    """
    return b'{"role":"%b","%b":[%b]}' % (role.encode(), name.encode(), b",".join(blocks))


def spoken(turn: Turn, lost: Lost) -> list[bytes]:
    """The blocks of a user's turn, what the system says among them as the user's."""
    blocks: list[bytes] = []
    for piece in turn.pieces:
        blocks += said_by_system(piece, lost) if piece.kind == "system" else piece.blocks
    return blocks


def said_by_system(piece: Piece, lost: Lost) -> list[bytes]:
    """What the system says, as the user's text."""
    lost.at = piece.at
    lost.add("system", "sent as the user's text, between <system> tags")
    return [_tagged(block) for block in piece.blocks]


def _tagged(block: bytes) -> bytes:
    members = members_of(block)
    text = text_of_raw(members.get("text"))
    return block if text is None else json_text({**members, "text": f"<system>{text}</system>"})


def said(message: Message, blocks: Sequence[bytes], lost: Lost, *, maker: str) -> Piece | None:
    """What a message gives; nothing if there is nothing in it.

    Args:
        message: The message.
        blocks: What its content gave.
        lost: Where it is noted that the provider has no phases, or no such role.
        maker: Who the provider is.
    """
    if message.phase:
        lost.add("phase", f"{maker} has no phases", ".phase")
    if not blocks:
        return None
    if message.role in {"system", "developer"}:
        return Piece("user", blocks, "system")
    if message.role not in {"user", "assistant"}:
        lost.add(message.role, f"{maker} has no such role; sent as the user's", ".role")
    return Piece("assistant" if message.role == "assistant" else "user", blocks)


def sealed(thought: Reasoning, provider: str, lost: Lost, *, maker: str, unsigned: str) -> str:
    """The signature of a thought for who gave it; empty for a thought that it does not take.

    Args:
        thought: The thought.
        provider: Who takes it back.
        lost: Where it is noted why it is not taken.
        maker: The provider's name, for people.
        unsigned: Why it takes none of its own without a signature.
    """
    marked, signature = kept_text(thought, MAKER), thought.encrypted_content or ""
    if marked == provider:
        if not signature:
            lost.add(thought.type, unsigned)
        return signature
    signed = marked or ("another provider" if signature else "")
    reason = f"signed by {signed}" if signed else "not signed"
    lost.add(thought.type, f"{reason}; {maker} takes only thoughts that it signed")
    return ""
