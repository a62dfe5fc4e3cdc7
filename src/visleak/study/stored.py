"""``study.json``: what a study found, for machines."""

from __future__ import annotations

from typing import Any, Final

import visleak
from visleak.storage import SetSummary
from visleak.study.config import Study
from visleak.study.paper import Values
from visleak.study.plan import LeftOut, Plan
from visleak.study.results import RATES, Cell, Rates, Result, Union
from visleak.study.running import Run

SCHEMA: Final = 1
KIND: Final = "visleak study"


def as_dict(result: Result) -> dict[str, Any]:
    """Return the content of ``study.json``; the same sets and settings give the same bytes."""
    run = result.run
    return {
        "schema": SCHEMA,
        "kind": KIND,
        "visleak": visleak.__version__,
        "title": result.title,
        "headline": "; ".join(result.headlines),
        "settings": run.study.settings.as_dict(),
        "published": result.paper.source or None,
        "sets": [_set(run, name) for name in (each.name for each in run.study.sets)],
        "matrix": {"references": list(result.rows), "queries": list(result.columns)},
        "comparisons": [_cell_dict(cell) for cell in result.cells],
        "unions": [_union_dict(union) for union in result.unions],
        "totals": [
            {"query_set": union.query, "headline": line, "rates": _rates_dict(union.rates)}
            for union, line in zip(result.totals, result.headlines, strict=True)
        ],
        "repeats": [
            {"query_set": each.query, "pairs": each.pairs, "images": each.images}
            for each in result.repeats
        ],
        "included": [_left_dict(left) for left in run.plan.included],
        "skipped": [_left_dict(left) for left in run.plan.skipped],
        "failed": [_left_dict(left) for left in run.failed],
        "notes": list(result.notes),
    }


def plan_dict(study: Study, plan: Plan) -> dict[str, Any]:
    """Return a plan as plain values."""
    return {
        "schema": SCHEMA,
        "kind": "visleak study plan",
        "title": study.title,
        "comparisons": [
            {"query_set": e.query, "reference_set": e.reference, "coverage": e.coverage}
            for e in plan.comparisons
        ],
        "included": [_left_dict(left) for left in plan.included],
        "skipped": [_left_dict(left) for left in plan.skipped],
        "idle": list(plan.idle),
    }


def _set(run: Run, name: str) -> dict[str, Any]:
    each, images = run.study.named(name), run.opened.get(name)
    stored: dict[str, SetSummary] = {}
    for audit in run.audits.values():
        stored |= {about.name: about for about in audit.summary.sets}
    about = stored.get(name)
    return {
        "name": name,
        "dataset": each.dataset,
        "split": each.split,
        "roles": list(each.roles),
        "source": each.source,
        "published": each.images or None,
        "images": about.images if about else len(images) if images is not None else 0,
        "readable": about.readable if about else None,
        "unreadable": about.unreadable if about else None,
        "missing": run.missing.get(name),
        "contains": [inclusion.set for inclusion in each.contains],
    }


def _cell_dict(cell: Cell) -> dict[str, Any]:
    return {
        "query_set": cell.comparison.query,
        "reference_set": cell.comparison.reference,
        "coverage": cell.comparison.coverage,
        "modality": cell.modality,
        "audit": cell.audit,
        "rates": _rates_dict(cell.rates),
        "own_pairs_left_out": cell.own,
        "published": _values_dict(cell.paper),
    }


def _union_dict(union: Union) -> dict[str, Any]:
    return {
        "query_set": union.query,
        "coverage": union.coverage,
        "reference_sets": list(union.references),
        "rates": _rates_dict(union.rates),
        "published": _values_dict(union.paper),
    }


def _rates_dict(rates: Rates) -> dict[str, Any]:
    return {name: rate.as_dict() if (rate := rates[name]) else None for name in RATES}


def _values_dict(values: Values) -> dict[str, Any]:
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in values.items()
    }


def _left_dict(left: LeftOut) -> dict[str, str]:
    each = left.comparison
    return {
        "query_set": each.query,
        "reference_set": each.reference,
        "coverage": each.coverage,
        "why": left.why,
    }
