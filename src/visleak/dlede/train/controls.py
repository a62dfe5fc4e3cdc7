"""Control curves: on clean splits, which calibrate the threshold, and with longer training.

The 5 % of the paper were read off one data set. Images of one group (a recording, a patient) leak
into each other; as far as the groups show, those of different groups do not. So a split by whole
groups shows the increase of a clean split of the same images, and several show its variation. The
paper trained 100 epochs at every step, and 500 at most of them once, which moved scores by less
than .01 (section 8). A failed control is reported, and does not affect the curve.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from scipy.special import stdtrit

from visleak.dlede.draw.recipes import clean_splits
from visleak.dlede.judge.judge import judged
from visleak.dlede.judge.rules import check_steps
from visleak.dlede.judge.scores import Scores
from visleak.dlede.results import Calibration, Convergence, Judgement
from visleak.dlede.settings import ControlSettings, DecisionSettings, Execution
from visleak.dlede.train.curves import (
    Curve,
    CurveFailed,
    TrainedCurve,
    failure_line,
    train_curve,
)
from visleak.dlede.train.trainer import PreparedTrainer
from visleak.errors import UsageError
from visleak.records import Float64

#: Folders of the training runs on clean splits, of the longer ones, and of files that the runs of
#: a split share, which are removed at the end.
CALIBRATION: Final = "calibration"
LONGER: Final = "longer"
PREPARED: Final = ".prepared"

#: Distance between the seeds of the clean splits' draws.
SEED_DISTANCE: Final = 1_000_003


@dataclass(frozen=True)
class ControlCurves:
    """The control curves.

    Attributes:
        clean: on clean splits, with the sizes of each.
        longer: of the convergence check, or ``None``.
    """

    clean: tuple[tuple[Curve, dict[str, int]], ...]
    longer: Curve | None

    @property
    def curves(self) -> tuple[Curve, ...]:
        """All of them."""
        clean = tuple(curve for curve, _ in self.clean)
        return clean if self.longer is None else (*clean, self.longer)


def control_curves(
    curve: Curve, decision: DecisionSettings, controls: ControlSettings
) -> ControlCurves:
    """Plan the control curves, and refuse settings that would only fail after all training runs.

    Raises:
        UsageError: settings do not fit the trainer, the plan or the groups.
    """
    if curve.plan.epochs is not None and not getattr(curve.trainer, "takes_epochs", True):
        raise UsageError(
            "--epochs: the command has no placeholder for it; put {epochs} where it takes them"
        )
    deciding = curve.plan.steps[:3]
    check_steps(decision.rule, deciding)
    longer = _longer(curve, controls.convergence, deciding) if controls.convergence else None
    clean = []
    if controls.calibrate:
        drawn = clean_splits(curve.split, controls.calibrate, curve.plan.seed)
        for number, (split, sizes) in enumerate(drawn, 1):
            # with one seed all splits would leak the images at the same positions
            seed = curve.plan.seed + number * SEED_DISTANCE
            plan = replace(curve.plan, steps=deciding, seed=seed)
            folder = curve.folder.parent / CALIBRATION / f"split-{number:02d}"
            clean.append((Curve.of(split, plan, curve.trainer, folder), sizes))
    return ControlCurves(tuple(clean), longer)


def _longer(curve: Curve, factor: int, deciding: Sequence[int]) -> Curve:
    """Return the first chain at its first and last deciding step, with more epochs."""
    if curve.epochs is None:
        raise UsageError(
            "--check-convergence needs the usual number of epochs, which is not known: give"
            " --epochs N, and {epochs} in the command"
        )
    steps = (deciding[0], deciding[-1])
    plan = replace(curve.plan, steps=steps, repetitions=1, epochs=curve.epochs * factor)
    return replace(curve, plan=plan, folder=curve.folder.parent / LONGER)


def prepared_folder(folder: Path, name: str) -> Path:
    """Return an empty folder for the files that the training runs of a split share."""
    path = folder / PREPARED / name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


def calibrate(
    curves: ControlCurves,
    decision: DecisionSettings,
    controls: ControlSettings,
    execution: Execution,
) -> tuple[Calibration | None, list[Scores], list[str]]:
    """Train on clean splits of the same images, and derive the threshold.

    Returns:
        The calibration, ``None`` if no split has a result; the scores of each clean split; and
        notes on failures.
    """
    judgements, sizes, scores = [], [], []
    notes: list[str] = []
    for number, (curve, size) in enumerate(curves.clean, 1):
        execution.notify(
            f"clean split {number} of {controls.calibrate}: {size['test_images']:,} test images of"
            f" {size['test_groups']:,} groups, {size['training_images']:,} training images of"
            f" {size['training_groups']:,} others"
        )
        try:
            folder = prepared_folder(curve.folder.parents[1], "clean")
            prepared = curve.trainer.prepare(curve.split, folder, execution.progress)
            trained = train_curve(curve, prepared, decision, execution)
        except CurveFailed as error:
            notes.append(f"clean split {number} is excluded: {error}")
            continue
        notes += [f"clean split {number}: {failure_line(each)}" for each in trained.failed]
        judgements.append(judged(trained.scores, decision))
        sizes.append(size)
        scores.append(trained.scores)
    if not judgements:
        return None, scores, notes
    groups = sizes[0]["test_groups"] + sizes[0]["training_groups"]
    return calibration_of(judgements, sizes, groups=groups, alpha=controls.alpha), scores, notes


def calibration_of(
    judgements: Sequence[Judgement],
    splits: Sequence[Mapping[str, int]],
    *,
    groups: int,
    alpha: float,
) -> Calibration:
    """Return the threshold that the next clean split's statistic is below with probability alpha.

    It is the lower prediction limit of the statistics of the clean splits (Student's t): they
    differ by their draws and by their recordings, as the next one will. A split leaks if the
    statistics of all metrics are at or below the threshold, so the largest of them counts.

    Args:
        judgements: of each clean split, with equal numbers of repetitions.
        splits: sizes of each.
        groups: number of groups in total.
        alpha: between 0 and 1.

    Source: Hahn & Meeker 1991, "Statistical intervals", section 4.7.
    """
    names = [metric.metric for metric in judgements[0].metrics]
    found = np.array([[each.statistic.value for each in one.metrics] for one in judgements])
    columns = zip(names, found.T, strict=True)
    return Calibration(
        groups,
        tuple(splits),
        tuple(judgements),
        alpha,
        prediction_limit(found.max(axis=1), alpha),
        {name: prediction_limit(column, alpha) for name, column in columns},
    )


def prediction_limit(values: Float64, alpha: float) -> float:
    """Return what one further value is below with probability alpha; NaN of fewer than two.

    >>> round(prediction_limit(np.array([0.1, 0.12, 0.14]), 0.05), 4)
    0.0526
    """
    count = len(values)
    if count < 2:
        return math.nan
    reach = float(stdtrit(count - 1, 1.0 - alpha)) * math.sqrt(1.0 + 1.0 / count)
    return float(values.mean() - reach * values.std(ddof=1))


def check_convergence(
    curves: ControlCurves,
    usual: TrainedCurve,
    prepared: PreparedTrainer,
    decision: DecisionSettings,
    execution: Execution,
) -> tuple[Convergence | None, list[str]]:
    """Train longer, and compare; ``None`` if it was not requested or has no result.

    Returns:
        The comparison, and notes on failures.
    """
    if curves.longer is None:
        return None, []
    try:
        longer = train_curve(curves.longer, prepared, decision, execution, partial=True)
    except CurveFailed as error:
        return None, [f"the convergence check has no result: {error}"]
    rows = []
    for column, step in enumerate(longer.scores.steps):
        for metric in longer.scores.metrics:
            if metric in usual.scores.metrics:
                own = usual.scores.steps.index(step)
                pair = usual.scores.of(metric)[0, own], longer.scores.of(metric)[0, column]
                if np.isfinite(pair).all():
                    scores = {"usual": float(pair[0]), "longer": float(pair[1])}
                    rows.append({"step": step, "metric": metric, **scores, "repetitions": 1})
    epochs = (usual.curve.epochs or 0, curves.longer.plan.epochs or 0)
    notes = [f"longer training: {failure_line(failure)}" for failure in longer.failed]
    return Convergence(epochs, tuple(rows)), notes
