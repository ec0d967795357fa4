"""Batteries: middleware that many agents want.

Words. A *standing approval* is a rule that answers for calls of a kind before anybody is asked:
always, or never. A *rate* is so many in a time. *Spend* is every request that was sent, *answers*
are the responses that runs took. To *redact* is to replace secrets in what is said.

What counts requests stands inside everything else, so retries, fallbacks and hedges are counted.
"""

from perdure.loop.spend import COST_MEMBER, Price, price_in
from perdure.middleware.budget import Budget
from perdure.middleware.cost import Cost, Meter, Totals
from perdure.middleware.doom_detector import Ladder
from perdure.middleware.doom_loop import Detection, DoomLoop, Escalation
from perdure.middleware.limits import RateLimit, ToolRateLimit
from perdure.middleware.prices import KnownPrices, Prices, Rates, Tokens
from perdure.middleware.redact import Redact, Redactor
from perdure.middleware.standing import Rule, StandingApprovals, always, never
from perdure.middleware.tool_cache import ToolCache
from perdure.middleware.tool_log import ToolLog
from perdure.middleware.tool_retry import ToolRetry

__all__ = [
    "COST_MEMBER",
    "Budget",
    "Cost",
    "Detection",
    "DoomLoop",
    "Escalation",
    "KnownPrices",
    "Ladder",
    "Meter",
    "Price",
    "Prices",
    "RateLimit",
    "Rates",
    "Redact",
    "Redactor",
    "Rule",
    "StandingApprovals",
    "Tokens",
    "ToolCache",
    "ToolLog",
    "ToolRateLimit",
    "ToolRetry",
    "Totals",
    "always",
    "never",
    "price_in",
]
