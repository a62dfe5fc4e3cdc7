"""Verdicts of people on pairs: storage, consensus of reviewers, application to an audit.

Verdicts are keyed by the unordered pair of content digests, so they remain valid after renames, in
other sets and in later audits. They are never written into the tables of the audit: pairs are read
through :func:`judged_pairs`.
"""

from visleak.verdicts.ledger import (
    Agreement,
    Consensus,
    Ledger,
    Verdict,
    agreement,
    consensus_of,
    pair_key,
    read_verdicts,
)
from visleak.verdicts.overlay import as_unjudged, digests_of, disputed, judged_pairs, judged_summary

__all__ = ["Agreement", "Consensus", "Ledger", "Verdict", "agreement", "as_unjudged"]
__all__ += ["consensus_of", "digests_of", "disputed", "judged_pairs", "judged_summary", "pair_key"]
__all__ += ["read_verdicts"]
