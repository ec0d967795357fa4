"""Questions to a person, recorded before they are put and when they are answered.

An ask without an answer behind it was put, or was about to be, and nobody knows what was said.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from perdure.log.entries import Json
from perdure.tools import Elicitor, Question, Reply, current_call


class WritesQuestions(Protocol):
    """What an elicitation is written with: the recorder of a session."""

    def write_question(self, call_id: str, data: Json) -> Awaitable[str]:
        """Write a part of an elicitation, durably, and give its entry's id."""
        ...


class RecordedElicitor:
    """Asks through another elicitor, and records the question and the reply.

    A question that cannot be recorded is not put: the tool gets what kept it from being written.
    Where asking fails, the failure is recorded as the answer; where the tool is cut while somebody
    thinks, the question stays without one.
    """

    def __init__(self, elicitor: Elicitor, recorder: WritesQuestions) -> None:
        self._elicitor = elicitor
        self._recorder = recorder

    async def ask(self, question: Question) -> Reply:
        """Put a question. Raises what the elicitor raises, and what the recorder does."""
        asking = current_call().id
        asked = await self._recorder.write_question(asking, _ask(asking, question))
        try:
            reply = await self._elicitor.ask(question)
        except Exception as error:
            failed: Json = {"phase": "answer", "ask": asked, "error": str(error)}
            await self._recorder.write_question(asking, failed)
            raise
        await self._recorder.write_question(asking, _answer(asked, reply))
        return reply


def _ask(asking: str, question: Question) -> Json:
    data: Json = {"phase": "ask", "call_id": asking, "message": question.message}
    if question.asked is not None:
        about = question.asked
        data |= {"call_id": about.call_id, "name": about.name, "arguments": about.arguments}
        data |= {"parent": about.parent, "reason": about.reason}
    data |= {"schema": question.schema, "url": question.url}
    return _said(data)


def _answer(asked: str, reply: Reply) -> Json:
    data: Json = {"phase": "answer", "ask": asked, "action": reply.action}
    return _said({**data, "content": reply.content, "note": reply.note})


def _said(data: Json) -> Json:
    """Without the members that say nothing."""
    return {name: value for name, value in data.items() if value not in ("", None)}
