"""What people say of pairs: kept by content, settled between reviewers, laid over an audit.

Verdicts are keyed by the unordered pair of content digests, so they outlive renames, other sets
and later audits. They are never written into the audit's tables: whoever reads pairs reads them
through :func:`judged_pairs`.
"""

from visleak.verdicts.ledger import Ledger, read_verdicts
from visleak.verdicts.overlay import digests_of, disputed, judged_pairs
from visleak.verdicts.record import Agreement, Consensus, Verdict, agreement, consensus_of, pair_key
from visleak.verdicts.summary import judged_summary

__all__ = [
    "Agreement",
    "Consensus",
    "Ledger",
    "Verdict",
    "agreement",
    "consensus_of",
    "digests_of",
    "disputed",
    "judged_pairs",
    "judged_summary",
    "pair_key",
    "read_verdicts",
]
