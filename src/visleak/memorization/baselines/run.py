"""Methods of search at equal cost, counted by what is verified (after table 2 of Hong et al.)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import visleak
from visleak.documents import as_plain, digest_of, from_plain, read_document
from visleak.errors import UsageError, VisleakError
from visleak.memorization.baselines.document import content, files
from visleak.memorization.baselines.records import Attempt, Comparison, Verified
from visleak.memorization.baselines.verifying import Verifier
from visleak.memorization.model import DiffusionModel
from visleak.memorization.scores import ScoreSettings, TriggerScore
from visleak.memorization.search.running import draw_of
from visleak.memorization.search.task import Budget, Candidate, Found, Searcher, SearchTask
from visleak.memorization.search.task import Progress as Searched
from visleak.pipeline.workplace import Progress, silent
from visleak.storage import RunFolder, write_json

#: File of a finished attempt.
ATTEMPT: Final = "attempt.json"
KIND: Final = "visleak memorization compare"
ATTEMPT_KIND: Final = "visleak memorization compare, one attempt"

#: Noises by which candidates are scored anew; numbers no search draws from.
CHECK_NOISES: Final = 4
CHECK: Final = 0xC0FFEE

Say = Callable[[str], None]


@dataclass(frozen=True)
class Contest:
    """What every method is given.

    Attributes:
        model: the diffusion model.
        score: what D is made of.
        budget: of every search, all its chains together.
        chains: candidates of a method (200 in the paper).
        seeds: every method runs once with each.
    """

    model: DiffusionModel
    score: ScoreSettings
    budget: Budget
    chains: int = 5
    seeds: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        if self.chains < 1:
            raise UsageError(f"chains is at least 1; got {self.chains}")
        if not self.seeds or len(set(self.seeds)) != len(self.seeds):
            raise UsageError(f"seeds is one number or several different ones; got {self.seeds}")

    def about(self) -> dict[str, object]:
        """Return everything but seeds and methods, as plain data."""
        return {
            "model": self.model.digest,
            "precision": self.model.precision,
            "score": self.score.about(),
            "budget": as_plain(self.budget),
            "chains": self.chains,
            # an attempt whose candidates stand in another order is another one
            "candidates": "by D under fresh noises",
        }


@dataclass(frozen=True)
class Entry:
    """One method with one seed.

    Attributes:
        contest: what every method is given.
        name: of the method.
        searcher: the method.
        verifier: says which candidates give memorized images.
        seed: of everything random.
        folder: of the comparison.
    """

    contest: Contest
    name: str
    searcher: Searcher
    verifier: Verifier
    seed: int
    folder: Path

    @property
    def place(self) -> Path:
        """Folder of the attempt."""
        return self.folder / self.name / f"seed-{self.seed}"

    def key(self) -> str:
        """Return the digest of everything that the attempt depends on."""
        return digest_of(
            as_plain(
                {
                    **self.contest.about(),
                    "method": self.name,
                    "settings": self.searcher.about(),
                    "seed": self.seed,
                    "verifier": self.verifier.about(),
                }
            )
        )

    def attempted(self, *, force: bool, progress: Progress, say: Say) -> Attempt:
        """Return the attempt: as it is on disk, or carried out."""
        key, path = self.key(), self.place / ATTEMPT
        kept = _read_attempt(path)
        if kept is not None and kept[0] == key:
            say(f"{self.name}, seed {self.seed}: finished before")
            return kept[1]
        if kept is not None and not force:
            raise UsageError(
                f"{path} is of another request; choose another folder with -o DIR, or --force"
                " replaces it"
            )
        found = self._search(key, progress)
        candidates = candidates_of(found)
        checked, calls = self._checked([each.prompt for each in candidates])
        # by the one noise that a search met, the luckiest of them would come first
        candidates, checked = by_fresh_score(candidates, checked)
        verified = Verified(0, (), (), 0, 0.0)
        if candidates:
            texts = [each.prompt for each in candidates]
            verified = self.verifier.verify(texts, self.place, progress)
        made = Attempt(
            method=self.name,
            seed=self.seed,
            about=dict(found.about),
            candidates=candidates,
            checked=checked,
            complete=found.complete,
            search_calls=found.calls,
            search_seconds=found.seconds,
            check_calls=calls,
            verified=verified,
        )
        head = {"schema": 1, "kind": ATTEMPT_KIND, "visleak": visleak.__version__, "key": key}
        write_json(path, {**head, "attempt": as_plain(made)})
        return made

    def _search(self, key: str, progress: Progress) -> Found:
        """Search, or go on where an earlier run was stopped."""
        budget, step = self.contest.budget, f"searching: {self.name}, seed {self.seed}"

        def told(now: Searched) -> None:
            if budget.calls is not None:
                progress(step, min(now.calls, budget.calls), budget.calls)
            else:
                progress(step, now.done, now.total or 0)

        task = SearchTask(
            score=TriggerScore(self.contest.model, self.contest.score),
            chains=self.contest.chains,
            seed=self.seed,
            budget=budget,
            # another request never meets the state of this one
            folder=self.place / f"search-{key[:12]}",
            say=told,
        )
        # some methods write into the folder before they make it
        self.place.joinpath(f"search-{key[:12]}").mkdir(parents=True, exist_ok=True)
        return self.searcher.search(task)

    def _checked(self, prompts: Sequence[str]) -> tuple[tuple[float, ...], int]:
        """Return D of the candidates under noises of their own, and the passes it cost."""
        if not prompts:
            return (), 0
        settings = replace(self.contest.score, noises=CHECK_NOISES)
        score = TriggerScore(self.contest.model, settings)
        found = score(prompts, draw=draw_of(CHECK)).by(settings.norm)
        return tuple(map(float, found)), score.calls


def candidates_of(found: Found) -> tuple[Candidate, ...]:
    """Return the different prompts among the best of the chains, by D as found, highest first.

    >>> best = (Candidate("a b", 1.0), Candidate("", 0.0), Candidate("c", 2.0), Candidate("c", 1.5))
    >>> [each.prompt for each in candidates_of(Found("m", {}, best, (), 0, 0.0))]
    ['c', 'a b']
    """
    ordered = sorted(found.best, key=lambda each: (-each.score, each.prompt))
    once: dict[str, Candidate] = {}
    for each in ordered:
        if each.prompt.strip():
            once.setdefault(each.prompt, each)
    return tuple(once.values())


def by_fresh_score(
    candidates: Sequence[Candidate], checked: Sequence[float]
) -> tuple[tuple[Candidate, ...], tuple[float, ...]]:
    """Return candidates and their D under fresh noises, the highest of these first.

    Ties go by the prompt.

    >>> some = (Candidate("a", 3.0), Candidate("b", 2.0))
    >>> [each.prompt for each in by_fresh_score(some, (1.0, 1.5))[0]]
    ['b', 'a']
    """
    pairs = sorted(
        zip(candidates, checked, strict=True), key=lambda pair: (-pair[1], pair[0].prompt)
    )
    return tuple(each for each, _ in pairs), tuple(score for _, score in pairs)


def _read_attempt(path: Path) -> tuple[str, Attempt] | None:
    """Return the key of a finished attempt and the attempt; ``None`` where there is none.

    Raises:
        VisleakError: the file is damaged.
    """
    if not path.is_file():
        return None
    content: Mapping[str, Any] = read_document(
        path, ATTEMPT_KIND, 1, "it is not an attempt of a comparison"
    )
    try:
        made: Attempt = from_plain(Attempt, content["attempt"])
        return str(content["key"]), made
    except (KeyError, TypeError, ValueError) as error:
        raise VisleakError(f"{path} is damaged ({error}); delete it to run it again") from error


def _unsaid(line: str) -> None:
    """Say nothing."""


def compare(
    contest: Contest,
    methods: Mapping[str, Searcher],
    verifier: Verifier,
    out: str | os.PathLike[str],
    *,
    force: bool = False,
    progress: Progress = silent,
    say: Say = _unsaid,
) -> Comparison:
    """Let methods search at one budget, and count the memorized images they find.

    Every method and seed is an attempt with a folder of its own. A finished attempt is kept: a
    comparison that was stopped goes on, and more seeds or methods run only what is new.

    Args:
        contest: model, D, budget, chains, seeds.
        methods: searchers by name.
        verifier: says which candidates give memorized images.
        out: the folder; a finished comparison of the same request is returned as it is.
        force: another comparison, and attempts with other settings, may be replaced.
        progress: told of searches, images and verification.
        say: told in a line what is reused.

    Raises:
        UsageError: the folder holds another comparison, or a method refuses its settings.
        VisleakError: a step fails; attempts that were finished are kept.
    """
    if not methods:
        raise UsageError("there is no method to compare; give at least one")
    run = RunFolder(out, KIND)
    settings = {name: {"about": each.about()} for name, each in methods.items()}
    asked = {**contest.about(), "methods": settings, "seeds": list(contest.seeds)}
    key = digest_of(as_plain({**asked, "verifier": verifier.about()}))
    keeps = "and keeps attempts that are the same"
    known = run.reused(Comparison, key, force=force, keeps=keeps, folder=run.path)
    if known is not None:
        say(f"{run.path} holds this comparison, finished")
        return known
    with run.claimed():
        attempts = []
        for seed in contest.seeds:
            for name, searcher in methods.items():
                one = Entry(contest, name, searcher, verifier, seed, run.path)
                attempts.append(one.attempted(force=force, progress=progress, say=say))
        result = Comparison(
            model=dict(contest.model.about()),
            score={**contest.score.about(), "timestep": _timestep(contest)},
            norm=contest.score.norm,
            budget=as_plain(contest.budget),
            chains=contest.chains,
            seeds=contest.seeds,
            verification=verifier.about(),
            attempts=tuple(attempts),
            folder=run.path,
            key=key,
        )
        run.finish(content(run, result), files(result))
    return result


def _timestep(contest: Contest) -> float:
    return TriggerScore(contest.model, contest.score).timestep


def read_comparison(folder: str | os.PathLike[str]) -> Comparison:
    """Return the comparison that a folder holds.

    Raises:
        UsageError: there is none.
        VisleakError: it is damaged, or a newer visleak wrote it.
    """
    return RunFolder(folder, KIND).read(Comparison, folder=Path(folder))
