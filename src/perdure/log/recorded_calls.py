"""What a recorder writes about calls: decisions, dispatches, and what ends them.

It knows of each call what the record will say of it once all that is queued is written, so that it
refuses what may not be recorded when it is told, and the tool does not run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Raw, Struct

from perdure.errors import EntryRefused, NotIJson
from perdure.log.calls import SUBSESSION, Call
from perdure.log.entries import MESSAGE, Json
from perdure.log.ids import subsession_id
from perdure.log.writing import Draft
from perdure.loop import Answer, Provenance, ToolDecision, ToolDispatch, ToolStart
from perdure.loop.answers import OUTCOME_UNKNOWN_REASON
from perdure.wire import FunctionCallOutput, canonicalize

RUN_AGAIN = "run again"
"""Why a call runs again if nobody said."""

NO_REASON = "call rejected"


class Track(Struct, kw_only=True, eq=False, gc=False):
    """What the record will say of one call."""

    call_id: str
    target: Draft | str
    """The entry of its item."""
    arguments: str
    """Those in force."""
    may_have_run: bool = False
    """An earlier drive, or another branch, may have entered its tool."""
    held: bool = False
    ended: str = ""
    """`reject` or `answer`: it is owed its output alone."""
    output: bool = False
    dispatch: Draft | None = None
    """Its dispatch of this drive."""
    released: bool = False
    """A decision since the last dispatch lets it run."""
    terminate: bool = False
    """Its result asks to end the drive."""

    @property
    def has_effect(self) -> bool:
        """Whether this drive dispatched it into a tool with an effect."""
        return self.dispatch is not None and self.dispatch.body["perdure:effect"] != "none"

    @property
    def is_transactional(self) -> bool:
        """Whether what its tool does commits with its output, so that nothing else tells of it."""
        return self.dispatch is not None and self.dispatch.body["perdure:effect"] == "transactional"

    @property
    def name(self) -> Json:
        return {"call_id": self.call_id, "target": self.target}


class CallTracks:
    """The calls of a path that have no output yet, and those of this drive."""

    def __init__(
        self, calls: Iterable[Call] = (), *, session: str = "", linked: Iterable[str] = ()
    ) -> None:
        self._tracks = {call.call_id: _track_of(call) for call in calls}
        self._dispatches: dict[str, Draft] = {}
        self._session = session
        self._linked = set(linked)

    def get(self, call_id: str) -> Track | None:
        return self._tracks.get(call_id)

    def add(self, call_id: str, arguments: str, target: Draft) -> None:
        """A call joined the path.

        Raises:
            EntryRefused: It has no id, or the id of another call of the drive.
        """
        if not call_id or call_id in self._tracks:
            raise EntryRefused(f"a call needs an id of its own, and has {call_id!r}")
        self._tracks[call_id] = Track(call_id=call_id, target=target, arguments=arguments)

    def begin(self) -> None:
        """A drive begins: what was dispatched before it may have run."""
        for call_id, track in list(self._tracks.items()):
            if track.output:
                del self._tracks[call_id]
                continue
            track.may_have_run = track.may_have_run or track.dispatch is not None
            track.dispatch, track.released = None, False

    # --- what is written -----------------------------------------------------------------

    def start(self, event: ToolStart) -> list[Draft]:
        """What a decision about a call writes.

        Raises:
            EntryRefused: The call has its output already.
        """
        track = self._tracks.get(event.call_id)
        if track is None or track.ended:
            return []
        if track.output:
            raise EntryRefused(f"call {event.call_id!r} has an output; nothing is decided about it")
        decision = event.decision or ToolDecision()
        if decision.action == "reject":
            reason = decision.reason or NO_REASON
            return [self._end(track, decision.by, reason, decision.provenance)]
        rewritten = _args(event.arguments, track.arguments)
        if decision.action == "hold":
            track.held = True
            track.arguments = event.arguments
            more = {**rewritten, **_provenance(decision.provenance)}
            if decision.gate is not None:
                more["perdure:approval"] = msgspec.to_builtins(decision.gate)
            return [_decision(track, "hold", decision.by or "policy", decision.reason, more)]
        return self._proceed(track, event, decision, rewritten)

    def _proceed(
        self, track: Track, event: ToolStart, decision: ToolDecision, rewritten: Json
    ) -> list[Draft]:
        """A proceed is written only if it says something.

        It does if it answers a hold, changes the arguments, gives a reason, or lets a call run
        again.
        """
        given = bool(decision.reason or decision.provenance)
        if not (track.held or rewritten or given or track.may_have_run):
            return []
        by = decision.by or ("" if track.held or track.may_have_run else "policy")
        reason = decision.reason or (RUN_AGAIN if track.may_have_run and not track.held else "")
        track.held, track.released, track.arguments = False, True, event.arguments
        more = {**rewritten, **_provenance(decision.provenance)}
        if decision.run_again:
            more["perdure:run_again"] = True
        return [_decision(track, "proceed", by, reason, more)]

    def dispatch(self, event: ToolDispatch) -> list[Draft]:
        """What precedes the entry into a tool.

        Raises:
            EntryRefused: The call is not on the record, or it has ended.
        """
        track = self._tracks.get(event.call_id)
        if track is None:
            raise EntryRefused(f"call {event.call_id!r} is not on the record, so it cannot run")
        if track.output or track.ended:
            raise EntryRefused(f"call {event.call_id!r} has ended, so it cannot run")
        again: list[Draft] = []
        ran = track.may_have_run or track.dispatch is not None
        if (ran or track.held) and not track.released:
            again = [_decision(track, "proceed", "", RUN_AGAIN, {})]
        track.dispatch = Draft(
            "dispatch",
            {
                **track.name,
                "idempotency_key": event.idempotency_key,
                "perdure:effect": event.effect,
                **({"perdure:lasts": event.lasts} if event.lasts is not None else {}),
            },
        )
        track.held, track.released = False, False
        self._dispatches[event.call_id] = track.dispatch
        return [*self._link(event), *again, track.dispatch]

    def _link(self, event: ToolDispatch) -> list[Draft]:
        """The link to the session of a sub-agent, which stands before its call's dispatch."""
        if not event.subsession:
            return []
        return self.link_again(event.call_id, subsession_id(self._session, event.call_id))

    def link_again(self, call_id: str, child: str) -> list[Draft]:
        """The link to a session that a call's output came from, unless the path has it."""
        if call_id in self._linked:
            return []
        self._linked.add(call_id)
        return [_link(call_id, child)]

    def dispatch_of(self, call_id: str) -> str:
        """The entry of the last dispatch that this recorder wrote for a call; empty if none."""
        draft = self._dispatches.get(call_id)
        return draft.id if draft is not None else ""

    def suspend(self, call_id: str, reason: str, wait: Mapping[str, object]) -> list[Draft]:
        """What a wait of a call's tool writes: a hold by policy, after the dispatch (LOG 5.4)."""
        track = self._tracks.get(call_id)
        if track is None:
            return []
        track.held, track.may_have_run, track.dispatch = True, True, None
        more = {"perdure:suspended": True, "perdure:wait": dict(wait)}
        return [_decision(track, "hold", "policy", reason, more)]

    def before_output(
        self, output: FunctionCallOutput, answer: Answer | None, *, doubted: bool = False
    ) -> list[Draft]:
        """What precedes an output; an answer by policy if it says that nobody knows (LOG 5.10).

        Raises:
            EntryRefused: The call has one already.
        """
        track = self._tracks.get(output.call_id)
        if track is None:
            return []
        if track.output:
            raise EntryRefused(f"call {output.call_id!r} has an output already")
        track.output = True
        if track.ended:
            return []
        if track.dispatch is not None:
            return [self._end(track, "policy", OUTCOME_UNKNOWN_REASON)] if doubted else []
        by = answer.by if answer else "policy"
        reason = answer.reason if answer and track.may_have_run else output.text
        said = _without_message(answer.provenance if answer else None)
        return [self._end(track, by, reason or NO_REASON, said)]

    def _end(
        self, track: Track, by: str | None, reason: str, said: Provenance | None = None
    ) -> Draft:
        """A call that may have run is answered, any other rejected (LOG 5.3)."""
        ran = track.may_have_run or track.dispatch is not None
        track.ended = "answer" if ran else "reject"
        track.held = False
        return _decision(track, track.ended, by, reason, _provenance(said))


def _track_of(call: Call) -> Track:
    state = call.state
    return Track(
        call_id=call.call_id,
        target=call.entry,
        arguments=call.arguments,
        may_have_run=call.may_have_run or bool(call.dispatches or call.elsewhere),
        held=state == "held",
        ended={"rejected": "reject", "answered": "answer"}.get(state, ""),
        released=bool(call.decisions) and call.decisions[-1].verdict == "proceed",
    )


def _decision(
    track: Track, verdict: str, by: str | None, reason: str, args: Mapping[str, object]
) -> Draft:
    optional = {"by": by, "reason": reason, **args}
    given = {name: value for name, value in optional.items() if value not in ("", None)}
    return Draft("decision", {**track.name, "verdict": verdict, **given})


def _link(call_id: str, child: str) -> Draft:
    return Draft("link", {"rel": SUBSESSION, "session": child, "call_id": call_id})


def _provenance(said: Provenance | None) -> Json:
    """How a decision came, as its entry says it."""
    if said is None:
        return {}
    members: Json = {
        MESSAGE: said.message,
        "perdure:who": said.who,
        "perdure:tally": said.tally,
    }
    if said.evidence:
        members["perdure:evidence"] = Raw(said.evidence.encode())
    return {name: value for name, value in members.items() if value}


def _without_message(said: Provenance | None) -> Provenance | None:
    """The same without the message, which the output names: a crash between must not lose it."""
    return msgspec.structs.replace(said, message="") if said is not None else None


def _args(now: str, before: str) -> Json:
    """The arguments as a decision holds them, if they are others than those in force."""
    if now == before or _canonical(now) == _canonical(before):
        return {}
    source = now.encode("utf-8", "surrogatepass")
    try:
        msgspec.json.decode(source)
    except msgspec.DecodeError:
        return {"perdure:arguments": now}
    exact = _canonical(now) != source
    return {"args": Raw(source), **({"perdure:arguments": now} if exact else {})}


def _canonical(arguments: str) -> bytes | None:
    try:
        return canonicalize(arguments or "{}")
    except (NotIJson, UnicodeEncodeError):
        return None
