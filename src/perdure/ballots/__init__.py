"""Ballots: what an approver signs, how votes are counted, how an exported decision is checked.

Nothing else of perdure is imported here, and `cryptography` only where a signature is made or
checked: an auditor can read this package alone and check with it, without a store, what was
decided.

Words. A *subject* is one call as one hold shows it. A *vote* is an approver's verdict about a
subject. A *policy* says whose votes count and how many it takes. A *tally* is what votes come to,
with the reason of every vote that does not count. *Evidence* is all of it as JSON.
"""

from perdure.ballots.counting import (
    FORMAT,
    TAG,
    Outcome,
    Policy,
    Subject,
    Tally,
    Uncounted,
    Vote,
    count,
    decision_bytes,
    policy_fault,
)
from perdure.ballots.evidence import (
    BadEvidence,
    Checked,
    Evidence,
    check_evidence,
    read_evidence,
    write_evidence,
)
from perdure.ballots.keys import (
    ED25519,
    BadKey,
    Ed25519Key,
    SigningKey,
    Verifier,
    decode_text,
    encode_text,
    is_verified,
    need_library,
    read_key,
    sharing,
    signature_fault,
    verifier_fault,
)
from perdure.ballots.names import (
    looks_of,
    names_fault,
)

__all__ = [
    "ED25519",
    "FORMAT",
    "TAG",
    "BadEvidence",
    "BadKey",
    "Checked",
    "Ed25519Key",
    "Evidence",
    "Outcome",
    "Policy",
    "SigningKey",
    "Subject",
    "Tally",
    "Uncounted",
    "Verifier",
    "Vote",
    "check_evidence",
    "count",
    "decision_bytes",
    "decode_text",
    "encode_text",
    "is_verified",
    "looks_of",
    "names_fault",
    "need_library",
    "policy_fault",
    "read_evidence",
    "read_key",
    "sharing",
    "signature_fault",
    "verifier_fault",
    "write_evidence",
]
