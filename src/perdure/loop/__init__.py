"""The loop: one conversation with a model, turn by turn, as functions over data.

Words. A *drive* is one pass: from an input until the loop stops calling the model. It consists of
*turns*: one model call each, and the *batch* of tool calls it asked for. A *call* is one function
call and all that happens to it. What a drive does is told as *events*, in order, and written to a
*ledger* first. A call without an output is *pending*.

The loop knows a model, tools and a ledger by their protocols, and nothing of stores or providers.
"""

from perdure.loop.broadcast import Broadcast as Broadcast
from perdure.loop.config import Config as Config
from perdure.loop.delivery import Subscriber as Subscriber
from perdure.loop.events import (
    Event as Event,
)
from perdure.loop.events import (
    ItemEnd as ItemEnd,
)
from perdure.loop.events import (
    ItemStart as ItemStart,
)
from perdure.loop.events import (
    ItemUpdate as ItemUpdate,
)
from perdure.loop.events import (
    Reason as Reason,
)
from perdure.loop.events import (
    ResponseEnd as ResponseEnd,
)
from perdure.loop.events import (
    RunEnd as RunEnd,
)
from perdure.loop.events import (
    RunStart as RunStart,
)
from perdure.loop.events import (
    StopCause as StopCause,
)
from perdure.loop.events import (
    ToolDispatch as ToolDispatch,
)
from perdure.loop.events import (
    ToolEnd as ToolEnd,
)
from perdure.loop.events import (
    ToolStart as ToolStart,
)
from perdure.loop.events import (
    ToolUpdate as ToolUpdate,
)
from perdure.loop.events import (
    TurnEnd as TurnEnd,
)
from perdure.loop.events import (
    TurnInput as TurnInput,
)
from perdure.loop.events import (
    TurnStart as TurnStart,
)
from perdure.loop.ledger import Ledger as Ledger
from perdure.loop.ledger import NullLedger as NullLedger
from perdure.loop.ledger import Ticket as Ticket
from perdure.loop.lowlevel import Events as Events
from perdure.loop.lowlevel import begin as begin
from perdure.loop.lowlevel import continue_ as continue_
from perdure.loop.lowlevel import run as run
from perdure.loop.model import Model as Model
from perdure.loop.model import ModelRequest as ModelRequest
from perdure.loop.model import collect as collect
from perdure.loop.pending import PendingCall as PendingCall
from perdure.loop.pending import PendingReason as PendingReason
from perdure.loop.registry import DriveHandle as DriveHandle
from perdure.loop.transcript import Items as Items
from perdure.loop.transcript import Transcript as Transcript
