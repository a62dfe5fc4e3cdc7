"""Simulated reviews: effect of 50 verdicts on the grades of an audit, and coverage of intervals.

The verdicts are those of the ground truth. Three results are measured: precision and recall of
`near` with verdicts in the order of their effect, from the shipped grader, from a biased one (with
raised log-odds, as for an unknown domain), and among the pairs that the shipped grader calls near
or exact (`visleak review --grade near`); the coverage of the interval of the near pairs in the
unlikely tail; and that of the rate, with truths drawn from the grader of the audit, unchanged or
moved at random.

    python benchmarks/active_review.py --audit cifar10=DIR --audit receipts=DIR --audit skin=DIR
"""

import argparse
import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from record import Bar, data_folder, write
from scipy.special import expit

from visleak.review.active import LIKELY, Measured, tail_order, tail_sample
from visleak.review.listing import Listing, read_listing
from visleak.verdicts.ledger import NEAR

Float64 = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]

#: Verdicts after which a review is measured; the grader is fitted again after every STEP.
AFTER, STEP = (0, 10, 20, 30, 50, 80, 100), 10
#: Domains that a grader of photographs finds hard.
HARD = ("receipts", "skin")
#: Bias of the log-odds of the biased grader.
RAISED = 6.0
#: Simulations of the random sample of the tail, and pairs in each.
RUNS, SAMPLE = 400, 200
#: Simulations of the rate, half of them from a biased grader, and verdicts in each.
DRAWS, VERDICTS = 100, 50
#: Listings of more pairs are not simulated for the rate: each draw fits a model five times.
MOST = 50_000


def by_name(path: Path, column: str) -> Callable[[Listing], Float64]:
    """Return the truth of a set with a file of the original of each image."""
    with path.open(encoding="utf-8") as file:
        groups = {row["file"]: row[column] for row in csv.DictReader(file)}

    def truth(listing: Listing) -> Float64:
        ends = (listing.pairs[side].to_pylist() for side in ("query", "reference"))
        return np.array([groups.get(a, a) == groups.get(b, b) for a, b in zip(*ends, strict=True)])

    return truth


def by_verdicts(path: Path) -> Callable[[Listing], Float64]:
    """Return the truth of CIFAR-10 by verdicts of people, NaN without one."""
    with path.open(encoding="utf-8") as file:
        agreed = [row for row in csv.DictReader(file) if row["Agreed"] == "1"]
    known = {(row["TestID"], row["TrainID"]): float(row["Judgment"] in "01") for row in agreed}

    def truth(listing: Listing) -> Float64:
        ends = (listing.pairs[side].to_pylist() for side in ("query", "reference"))
        found = np.array([known.get(pair, np.nan) for pair in zip(*ends, strict=True)])
        return np.where(listing.within, np.nan, found)

    return truth


def reviewed(
    measured: Measured, truth: Float64, among: Bool | None = None
) -> list[dict[str, float]]:
    """Simulate a review in the order of the effect of verdicts, of all pairs or some."""
    known = np.isfinite(truth)
    asked = known if among is None else known & among
    said = np.full(len(truth), np.nan)
    found = []
    for count in range(0, AFTER[-1] + 1, STEP):
        fitted = measured.refit(said)
        if count in AFTER:
            near = fitted.settled >= LIKELY
            right = float((near & (truth == 1)).sum())
            called, true = float((near & known).sum()), float((truth == 1).sum())
            found.append(
                {
                    "verdicts": count,
                    "near": called,
                    "wrong": called - right,
                    "precision": right / called if called else 1.0,
                    "recall": right / true if true else 1.0,
                    "rate": fitted.rate,
                    "half_width": float(fitted.half_widths[0]),
                }
            )
        best = np.argsort(-np.where(asked, fitted.gain, -1.0), kind="stable")[:STEP]
        best = best[asked[best]]
        said[best] = truth[best]
    return found


def coverage(listing: Listing, truth: Float64) -> dict[str, float]:
    """Return the coverage of the interval of the number of near pairs in the tail."""
    filled = np.nan_to_num(truth)  # pairs that were never proposed count as different
    held, width = 0, 0
    for seed in range(RUNS):
        order = tail_order(listing, seed)
        said = np.full(len(listing), np.nan)
        said[order[:SAMPLE]] = filled[order[:SAMPLE]]
        low, high = tail_sample(order, said).interval
        held += int(low <= filled[order].sum() <= high)
        width += high - low
    return {
        "tail": len(order),
        "near": float(filled[order].sum()),
        "held": held / RUNS,
        "mean_width": width / RUNS,
    }


def dense_coverage() -> dict[str, float]:
    """Return the lowest coverage for simulated tails of 2,000 pairs with 0 to 10 % near pairs."""
    random = np.random.default_rng(0)
    shares = {}
    for near in (0, 1, 5, 20, 60, 200):
        truth = np.zeros(2_000)
        truth[:near] = 1.0
        held = 0
        for _ in range(RUNS):
            order = random.permutation(2_000)
            said = np.full(2_000, np.nan)
            said[order[:SAMPLE]] = truth[order[:SAMPLE]]
            low, high = tail_sample(order, said).interval
            held += int(low <= near <= high)
        shares[str(near)] = held / RUNS
    return shares


def rate_coverage(measured: Measured) -> float:
    """Return the coverage of the interval of the rate after some verdicts."""
    random = np.random.default_rng(0)
    held = 0
    for draw in range(DRAWS):
        off = random.normal(size=len(measured.scale)) * measured.scale * (draw % 2)
        chance = expit(measured.known + measured.features @ off)
        truth = (random.random(len(chance)) < chance).astype(np.float64)
        said = np.full(len(truth), np.nan)
        for _ in range(0, VERDICTS, STEP):
            best = np.argsort(-measured.refit(said).gain, kind="stable")[:STEP]
            said[best] = truth[best]
        low, high = measured.refit(said).interval
        least, found, most = (
            round(share * measured.images) for share in (low, measured.refit(truth).rate, high)
        )
        held += least <= found <= most
    return held / DRAWS


def main() -> None:
    """Run all simulations, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--audit", action="append", required=True, metavar="NAME=DIR")
    data = data_folder()
    domains = data / "domains"
    truths = {
        "cifar10": by_verdicts(data / "cifar10" / "verdicts_dev.csv"),
        "receipts": by_name(domains / "receipts.csv", "content"),
        "skin": by_name(domains / "skin.csv", "original"),
    }
    figures: dict[str, object] = {"made tails": dense_coverage()}
    bars = [
        Bar("made tails, interval holds", min(figures["made tails"].values()), 0.95, most=False)
    ]
    for name, _, folder in (text.partition("=") for text in parser.parse_args().audit):
        listing = read_listing(Path(folder))
        truth = truths[name](listing).astype(np.float64)
        measured = Measured.of(listing)
        lenient = replace(measured, known=measured.known + RAISED)
        near = (listing.grade >= 0) & (listing.grade < len(NEAR))
        reviews = {
            "shipped": reviewed(measured, truth),
            "shipped, near": reviewed(measured, truth, near),
            "raised": reviewed(lenient, truth),
        }
        tail = coverage(listing, truth)
        if len(listing) <= MOST:
            rate = rate_coverage(measured)
            figures[f"{name}, interval of the rate holds"] = rate
            bars.append(Bar(f"{name}, interval of the rate holds", rate, 0.95, most=False))
        known = int(np.isfinite(truth).sum())
        figures[name] = {"pairs": len(listing), "known": known, **reviews, "tail": tail}
        after = [row for row in reviews["raised"] if row["verdicts"] == 50]
        of_near = [row for row in reviews["shipped, near"] if row["verdicts"] == 50]
        precision = float(of_near[0]["precision"])
        bars.append(Bar(f"{name}, --grade near, precision after 50", precision, 0.98, most=False))
        if name in HARD:
            precision = float(after[0]["precision"])
            bars.append(Bar(f"{name}, raised, precision after 50", precision, 0.98, most=False))
        bars.append(Bar(f"{name}, interval of the tail holds", tail["held"], 0.95, most=False))
    write(__file__, bars, figures)


if __name__ == "__main__":
    main()
