"""A run by id refuses."""

from __future__ import annotations

from perdure.errors.base import PerdureError


class RunError(PerdureError):
    """A run by id refuses; nothing was written.

    Attributes:
        run: The id of the run.
    """

    def __init__(self, run: str, message: str) -> None:
        self.run = run
        super().__init__(message)


def _of(call_id: str, run: str) -> str:
    """A call of a run, or the run itself where nothing names a call, as in a program."""
    return f"call {call_id!r} of run {run!r}" if call_id else f"run {run!r}"


class NoRun(RunError, LookupError):
    """There is no run of this id, or it has no session of this id.

    Attributes:
        session: The session that it does not have; empty if there is no run.
    """

    def __init__(self, run: str, session: str = "") -> None:
        self.session = session
        none = f"run {run!r} has no session {session!r}" if session else f"there is no run {run!r}"
        super().__init__(run, none)


class RunMismatch(RunError, ValueError):
    """A run id is bound to its input and its kind; another needs an id of its own."""

    def __init__(self, run: str, what: str) -> None:
        super().__init__(run, f"run {run!r} {what}; give another id for another run")


class RunBusy(RunError):
    """Somebody else drives the run. Wait for them, or ask later.

    Attributes:
        holder: Who, as far as the store knows.
    """

    def __init__(self, run: str, holder: str = "") -> None:
        self.holder = holder
        super().__init__(run, f"run {run!r} is being driven by {holder or 'another driver'}")


class RunFinished(RunError):
    """The run is over; nothing can be told to it.

    Attributes:
        status: How it ended.
    """

    def __init__(self, run: str, status: str) -> None:
        self.status = status
        super().__init__(run, f"run {run!r} is over: {status}")


class NotHeld(RunError):
    """The call does not wait for a decision.

    Attributes:
        call_id: The call.
    """

    def __init__(self, run: str, call_id: str, why: str) -> None:
        self.call_id = call_id
        super().__init__(run, f"{_of(call_id, run)} waits for no decision: {why}")


class VoteRefused(RunError):
    """A vote cannot count for the call, so it was not taken.

    Attributes:
        call_id: The call.
        why: What is wrong with it.
    """

    def __init__(self, run: str, call_id: str, why: str) -> None:
        self.call_id = call_id
        self.why = why
        super().__init__(run, f"this vote about {_of(call_id, run)} is refused: {why}")


class NotHalted(RunError):
    """The call's outcome is not unknown, so there is nothing to resolve.

    Attributes:
        call_id: The call.
    """

    def __init__(self, run: str, call_id: str, why: str) -> None:
        self.call_id = call_id
        super().__init__(run, f"{_of(call_id, run)} is not halted: {why}")


class AlreadyResolved(RunError):
    """Somebody said otherwise before; the first word stands.

    Attributes:
        call_id: The call; of a signal its name, of a message its key.
        recorded: What stands.
    """

    def __init__(self, run: str, call_id: str, recorded: str, *, about: str = "") -> None:
        self.call_id = call_id
        self.recorded = recorded
        what = f"{about} of run {run!r}" if about else _of(call_id, run)
        super().__init__(run, f"{what} was {'told' if about else 'resolved'} before: {recorded}")


class HaltTooYoung(RunError):
    """The call may still be running, so that nobody can know that it never ran (LOG 5.2).

    Attributes:
        call_id: The call.
        age: Seconds since it was dispatched, by the store's clock.
        minimum: Seconds that have to pass.
    """

    def __init__(self, run: str, call_id: str, age: float, minimum: float) -> None:
        self.call_id = call_id
        self.age = age
        self.minimum = minimum
        super().__init__(
            run,
            f"{_of(call_id, run)} was dispatched {age:.3f} s ago and may still be "
            f"running; wait until it is {minimum:g} s old",
        )


class WrongAnswer(RunError):
    """The answer to a question of a call is not of the type that was asked for.

    Attributes:
        call_id: The call.
    """

    def __init__(self, run: str, call_id: str, why: str) -> None:
        self.call_id = call_id
        super().__init__(run, f"the answer to {_of(call_id, run)} does not fit: {why}")


class WaitsBelow(RunError):
    """Only sub-agents of the run wait for the signal, or for a message of the channel.

    Tell it to them, or to the run itself, by naming the session.

    Attributes:
        sessions: Those of the calls that wait for it.
        root: The run's own.
    """

    def __init__(
        self, run: str, kind: str, name: str, sessions: tuple[str, ...], root: str
    ) -> None:
        self.sessions = sessions
        self.root = root
        which = " or ".join(repr(session) for session in sessions)
        super().__init__(
            run,
            f"run {run!r} does not wait for the {kind} {name!r} itself, a sub-agent of it does: "
            f"give its session, {which}; or {root!r} if it is for the run",
        )


class LeaseExpired(RunError):
    """The driver is not sure of its lease any more, so it enters no tool (LOG 2.2)."""

    def __init__(self, run: str) -> None:
        super().__init__(run, f"the lease of {run!r} may have lapsed; the tool was not entered")
