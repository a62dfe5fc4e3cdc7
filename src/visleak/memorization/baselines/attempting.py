"""One method with one seed: its search, its candidates under fresh noises, their images."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import visleak
from visleak.documents import as_plain, digest_of, from_plain, read_document
from visleak.errors import UsageError, VisleakError
from visleak.memorization.baselines.records import Attempt, Verified
from visleak.memorization.baselines.running import draw_of
from visleak.memorization.baselines.verifying import Verifier
from visleak.memorization.model import DiffusionModel
from visleak.memorization.scores import ScoreSettings, TriggerScore
from visleak.memorization.search.task import Budget, Candidate, Found, Searcher, SearchTask
from visleak.memorization.search.task import Progress as Searched
from visleak.pipeline.workplace import Progress
from visleak.store import write_json

#: File of a finished attempt.
ATTEMPT: Final = "attempt.json"
KIND: Final = "visleak memorization compare, one attempt"

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
        head = {"schema": 1, "kind": KIND, "visleak": visleak.__version__, "key": key}
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
    content: Mapping[str, Any] = read_document(path, KIND, 1, "it is no attempt of a comparison")
    try:
        made: Attempt = from_plain(Attempt, content["attempt"])
        return str(content["key"]), made
    except (KeyError, TypeError, ValueError) as error:
        raise VisleakError(f"{path} is damaged ({error}); delete it to run it again") from error
