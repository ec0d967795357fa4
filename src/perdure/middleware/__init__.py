"""Batteries: middleware that many agents want.

Words. A *standing approval* is a rule that answers for calls of a kind before anybody is asked:
always, or never.
"""

from perdure.middleware.standing import Rule, StandingApprovals, always, never

__all__ = ["Rule", "StandingApprovals", "always", "never"]
