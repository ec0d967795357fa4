"""The durable layer: runs by id that finish once, whatever dies.

Words. A *run* is what a user started by an id and wants finished; it is a session whose header says
so, and its *status* is a projection of that. A *driver* holds the lease and does what the record
says is next. Everybody else *tells* a run something: a *message* in its inbox, which the driver
turns into one entry. A call is *halted* when it may have run, must not run again, and nobody has
said what came of it; to say so is to *resolve* it. A run is *over* when an entry closes it.
A *gate* is a hold that waits for *votes*; what they come to is its *tally*, which alone opens it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from perdure.durable.addressing import Said, Target
from perdure.durable.agents import run_agent
from perdure.durable.balloting import Ballot, ballot_of, evidence_of, tell_decision
from perdure.durable.byid import Ran, go_on_with, run_by_id
from perdure.durable.channels import Received, ack, receive
from perdure.durable.children import AgentTool
from perdure.durable.control import Rested
from perdure.durable.driven import Driven, SubAgent
from perdure.durable.driver import Driving, drive_until_rest
from perdure.durable.events import Projection, events_of
from perdure.durable.events_live import Following, RunEvents, follow
from perdure.durable.races import First, race
from perdure.durable.recovery import (
    DEFAULT_CONCURRENCY,
    DEFAULT_EVERY,
    Recovered,
    Recovering,
    Recovery,
    recover,
)
from perdure.durable.replay import RecordedCall, RecordedRun, recorded_calls, replay_model
from perdure.durable.resolving import Word, tell_word
from perdure.durable.sagas import SagaReport, Undone
from perdure.durable.spending import tree_spend
from perdure.durable.starting import begin_run
from perdure.durable.state import RunState, find_run, read_run, state_of, waiting_calls
from perdure.durable.steps import parallel, step, step_key
from perdure.durable.telling import (
    tell_approve,
    tell_cancel,
    tell_deny,
    tell_reply,
    tell_retry,
    tell_send,
    tell_signal,
)
from perdure.durable.voting import OnReminder, Reminder
from perdure.durable.waits import interrupt, sleep, sleep_until, wait_for

if TYPE_CHECKING:
    from perdure.programs import run as run

__all__ = [
    "DEFAULT_CONCURRENCY",
    "DEFAULT_EVERY",
    "AgentTool",
    "Ballot",
    "Driven",
    "Driving",
    "First",
    "Following",
    "OnReminder",
    "Projection",
    "Ran",
    "Received",
    "RecordedCall",
    "RecordedRun",
    "Recovered",
    "Recovering",
    "Recovery",
    "Reminder",
    "Rested",
    "RunEvents",
    "RunState",
    "SagaReport",
    "Said",
    "SubAgent",
    "Target",
    "Undone",
    "Word",
    "ack",
    "ballot_of",
    "begin_run",
    "drive_until_rest",
    "events_of",
    "evidence_of",
    "find_run",
    "follow",
    "go_on_with",
    "interrupt",
    "parallel",
    "race",
    "read_run",
    "receive",
    "recorded_calls",
    "recover",
    "replay_model",
    "run",
    "run_agent",
    "run_by_id",
    "sleep",
    "sleep_until",
    "state_of",
    "step",
    "step_key",
    "tell_approve",
    "tell_cancel",
    "tell_decision",
    "tell_deny",
    "tell_reply",
    "tell_retry",
    "tell_send",
    "tell_signal",
    "tell_word",
    "tree_spend",
    "wait_for",
    "waiting_calls",
]


def __getattr__(name: str) -> object:
    """`run` is the face's: it opens stores, which this layer does not know."""
    if name != "run":
        raise AttributeError(f"module 'perdure.durable' has no attribute {name!r}")
    found: object = import_module("perdure.programs").run
    return found
