"""Rates and the report of an audit in a run of MLflow or Weights & Biases."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from visleak.auditing import Audit
from visleak.errors import UsageError
from visleak.lazy import foreign

if TYPE_CHECKING:
    from wandb import Run

#: Characters that a name of MLflow does not have.
_FOREIGN = re.compile(r"[^\w .-]")


def rates(result: Audit) -> dict[str, float]:
    """Return the rates of an audit as ``leaks/SET/RATE``: shares in [0, 1], and their bounds.

    >>> rates(visleak.audit("demo"))  # doctest: +SKIP
    {'leaks/test/near_or_exact': 0.6102, 'leaks/test/near_or_exact_low': 0.4827, ...}
    """
    found: dict[str, float] = {}
    for total in result.summary.totals:
        for name, rate in total.rates.items():
            if rate is None or math.isnan(rate.share):
                continue
            key = f"leaks/{_FOREIGN.sub('_', total.query_set)}/{name}"
            found |= {key: rate.share, f"{key}_low": rate.low, f"{key}_high": rate.high}
    return found


def log_to_mlflow(result: Audit, run_id: str | None = None) -> None:
    """Log the rates, the headline and the report of an audit to MLflow.

    Args:
        result: the audit.
        run_id: the run; the active one by default, or a new one.

    Raises:
        VisleakError: MLflow is not installed.
    """
    mlflow = foreign("mlflow", "MLflow", "mlflow-skinny")
    run = run_id or (mlflow.active_run() or mlflow.start_run()).info.run_id
    mlflow.log_metrics(rates(result), run_id=run)
    client = mlflow.MlflowClient()
    client.set_tag(run, "leaks.headline", result.headline)
    client.log_artifact(run, str(result.report()), "visleak")


def log_to_wandb(result: Audit, run: Run | None = None) -> None:
    """Log the rates, the headline and the report of an audit to Weights & Biases.

    Args:
        result: the audit.
        run: the run; the active one by default.

    Raises:
        UsageError: no run is active.
        VisleakError: wandb is not installed.
    """
    wandb = foreign("wandb", "Weights & Biases", "wandb")
    active = run or wandb.run
    if active is None:
        raise UsageError("no run of Weights & Biases is active; call wandb.init() first")
    active.summary.update({**rates(result), "leaks/headline": result.headline})
    active.log({"leaks/report": wandb.Html(result.report().read_text("utf-8"), inject=False)})
