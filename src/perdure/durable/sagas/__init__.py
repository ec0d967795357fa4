"""Sagas: runs that are all or nothing (LOG 5.9, 9).

Words. The first failure of a call *trips* a saga, and so does a cancel. Then it is *rolled back*:
what ran is *undone*, the last first, through all sub-agents, by the *compensators* of its tools. A
call that may have run and can run again is run *forward* first, to learn what it gave. What has no
compensator is *uncompensated*; what nobody knows is *unknown*, and halts the rollback until
somebody *settles* it.
"""

from perdure.durable.sagas.plan import Undo, Verdict, report_of, undos
from perdure.durable.sagas.rollback import is_rolled_back, roll_back
from perdure.durable.sagas.settling import tell_settle
from perdure.durable.sagas.tree import Branch, grow
from perdure.log.sagas import SagaReport, Undone

__all__ = [
    "Branch",
    "SagaReport",
    "Undo",
    "Undone",
    "Verdict",
    "grow",
    "is_rolled_back",
    "report_of",
    "roll_back",
    "tell_settle",
    "undos",
]
