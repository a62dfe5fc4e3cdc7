"""Methods of search at equal cost, counted by what is verified (after table 2 of Hong et al.).

High D alone is not memorization (Hong et al. 2024, table 2: PEZ): images are made of the candidates
of each method, clustered, and looked up in the training images, and only what is verified counts.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from visleak.diffusion.model import DiffusionModel, Sampling, TokenModel
from visleak.documents import as_plain, digest_of
from visleak.errors import UsageError
from visleak.memorization.baselines.document import (
    Attempt,
    Comparison,
    Reproduction,
    Verified,
    files,
    headline,
    rows_of,
)
from visleak.memorization.baselines.gradients import (
    CausalLanguageModel,
    Pez,
    PezSettings,
    Zerocap,
    ZerocapSettings,
)
from visleak.memorization.extraction import CopySimilarity, extract
from visleak.memorization.prompts import Prompts
from visleak.memorization.scores import TriggerScore
from visleak.memorization.search.driver import Candidate, Search, SearchResult, SearchTask, draw_of
from visleak.memorization.search.driver import Progress as Searched
from visleak.memorization.search.gibbs import GibbsSearch, refuse_other_scale
from visleak.memorization.search.methods import (
    Conzic,
    ConzicSettings,
    Greedy,
    RandomSettings,
    RandomWords,
)
from visleak.memorization.search.proposals import Proposer
from visleak.memorization.settings import (
    Budget,
    ExtractSettings,
    GibbsSettings,
    Norm,
    ScoreSettings,
    TraceSettings,
)
from visleak.memorization.tracing import trace
from visleak.pipeline.folder import stamp_of
from visleak.progress import Progress, silent
from visleak.records import AnySet
from visleak.storage import RunFolder

KIND: Final = "visleak memorization compare"
ATTEMPT: Final = "visleak memorization compare attempt"
#: Noises under which candidates are scored again; numbers that no search draws from.
CHECK_NOISES: Final = 4
CHECK: Final = 0xC0FFEE
#: Moves that no budget reaches.
ENDLESS: Final = 1_000_000_000
Note = Callable[[str], object]


# -- methods by name ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Means:
    """What methods are made of; what a method does not need may be left out."""

    model: TokenModel
    norm: Norm
    proposer: Callable[[], Proposer] | None = None  #: (gibbs, random, conzic)
    causal: Callable[[], CausalLanguageModel] | None = None  #: makes the causal one (zerocap)
    prompts: Prompts | None = None
    length: int = 8  #: words of a prompt, or tokens (ZeroCap, PEZ)
    candidates: int | None = None  #: words tried at a position; ``None``: each method's own
    #: moves of a chain; ``None``: each method's own number in the paper; ``"budget"``: as many as
    #: the budget holds
    iterations: int | Literal["budget"] | None = "budget"
    temperature: float | None = None  #: K of Algorithm 1 by ``norm``; ``None``: the paper's
    beams: int = 5  #: of ZeroCap

    def masked(self, method: str) -> Proposer:
        """Return the masked language model."""
        if self.proposer is None:
            raise UsageError(f"{method} needs a masked language model: give --lm FOLDER")
        return self.proposer()

    def own(self, usual: int | None) -> int | None:
        """Return the iterations of a method with a usual number; ``None`` is unlimited."""
        if self.iterations == "budget":
            return None
        return usual if self.iterations is None else self.iterations


def _gibbs(means: Means) -> GibbsSearch:
    # one round without a kappa, as for table 2 (200 runs, 150 iterations)
    usual, temperature = GibbsSettings(), means.temperature
    if temperature is None:
        if means.norm != usual.norm:
            raise UsageError(
                f"the paper's K (temperature {usual.temperature:g}) is on the {usual.norm} scale"
                f" and D on the {means.norm} one: give --temperature, or --norm {usual.norm}"
            )
        refuse_other_scale(means.model, usual, {"kappa"})
        temperature = usual.temperature
    settings = replace(
        usual,
        length=means.length,
        iterations=means.own(usual.iterations) or ENDLESS,
        candidates=means.candidates or usual.candidates,
        temperature=temperature,
        kappa=None,
        rounds=1,
        norm=means.norm,
    )
    return GibbsSearch(means.masked("gibbs"), settings)


def _random(means: Means) -> RandomWords:
    # without a budget as many as Algorithm 1 scores
    usual = GibbsSettings()
    wanted = means.own(usual.iterations)
    prompts = None if wanted is None else wanted * (means.candidates or usual.candidates)
    return RandomWords(means.masked("random"), RandomSettings(means.length, prompts))


def _greedy(means: Means) -> Greedy:
    if means.prompts is None:
        raise UsageError("greedy needs a list of prompts: give --prompts FILE")
    return Greedy(means.prompts)


def _conzic(means: Means) -> Conzic:
    usual = ConzicSettings()
    candidates = means.candidates or usual.candidates
    settings = ConzicSettings(means.length, means.own(usual.iterations), candidates)
    return Conzic(means.masked("conzic"), settings)


def _zerocap(means: Means) -> Zerocap:
    # the budget, not a number of iterations, ends its chains early
    if means.causal is None:
        raise UsageError("zerocap needs a causal language model: give --causal-lm FOLDER")
    top = means.candidates or ZerocapSettings().top
    return Zerocap(means.causal(), ZerocapSettings(means.length, means.beams, top=top))


def _pez(means: Means) -> Pez:
    return Pez(means.model, PezSettings(means.length, means.own(PezSettings().iterations)))


#: Functions that make a method, by its name.
SEARCHERS: Final[Mapping[str, Callable[[Means], Search]]] = {
    "gibbs": _gibbs,
    "random": _random,
    "greedy": _greedy,
    "conzic": _conzic,
    "zerocap": _zerocap,
    "pez": _pez,
}


def load_searchers(names: Sequence[str], means: Means) -> dict[str, Search]:
    """Return methods by name, in the order of the result."""
    for name in names:
        if name not in SEARCHERS:
            raise UsageError(f"a method is one of {', '.join(SEARCHERS)}; got {name!r}")
    if not names or len(set(names)) != len(names):
        raise UsageError(f"methods must be one or more, each given once; got {', '.join(names)}")
    return {name: SEARCHERS[name](means) for name in names}


# -- verification ---------------------------------------------------------------------------------


class Verifier(Protocol):
    """Decides which candidates give memorized images, and which images these are."""

    def about(self) -> dict[str, object]:
        """Return everything that its answers depend on, as plain data: a part of the key."""

    def verify(self, prompts: Sequence[str], folder: Path, progress: Progress) -> Verified:
        """Make and look up images of prompts; what is in the folder already is not made again."""


@dataclass(frozen=True)
class TracedImages:
    """The verifier of visleak: ``extract``, then ``trace`` of one image per cluster."""

    model: DiffusionModel  #: makes the images
    sources: Sequence[AnySet | str]  #: training images, sets or SOURCE text
    settings: ExtractSettings  #: images per prompt and what is a cluster
    sampling: Sampling  #: steps, guidance, images per batch
    similarity: CopySimilarity  #: that clusters are made by
    tracing: dict[str, Any] = field(default_factory=dict)  #: fields of ``TraceSettings``
    workers: int | None = None  #: (workers, cache) as of :func:`visleak.audit`
    cache: str | None = "default"

    def about(self) -> dict[str, object]:
        """Return how images are made, clustered and looked up; another state is another one."""
        return {
            "images": {**asdict(self.settings), "similarity": self.similarity.name},
            "similarity": self.similarity.digest,
            "sampling": {"steps": self.sampling.steps, "guidance": float(self.sampling.guidance)},
            "tracing": self.tracing,
            "sources": [
                {"source": each}
                if isinstance(each, str)
                else {
                    "name": each.name,
                    "source": each.source,
                    "images": len(each),
                    "stamp": stamp_of(each),
                }
                for each in self.sources
            ],
        }

    def verify(self, prompts: Sequence[str], folder: Path, progress: Progress) -> Verified:
        """Make images of prompts, cluster them, and trace the clusters."""
        # the folder is that of one attempt, whose key decides what may stay
        made = extract(
            *(self.model, prompts, self.settings, folder / "images"),
            similarity=self.similarity,
            sampling=self.sampling,
            sheets=False,
            progress=progress,
            force=True,
        )
        began = time.perf_counter()
        clustered = tuple(dict.fromkeys(each.prompt for each in made.clusters))
        reproduced = tuple(self._traced(folder, progress)) if clustered else ()
        seconds = made.seconds + time.perf_counter() - began
        return Verified(made.images, clustered, reproduced, made.calls, seconds)

    def _traced(self, folder: Path, progress: Progress) -> Iterator[Reproduction]:
        found = trace(
            *(folder / "images", self.sources, folder / "trace", TraceSettings(**self.tracing)),
            workers=self.workers,
            cache=self.cache,
            progress=progress,
            force=True,
        )
        # of several sets references name their set already
        several = len(found.about["sets"]) > 1
        originals = {
            each.number: each.references[0] if several else f"{each.source}/{each.references[0]}"
            for each in found.originals
        }
        for number, text in dict.fromkeys((m.memorized, m.prompt) for m in found.verified):
            if number is not None:
                yield Reproduction(originals[number], number, text)


# -- the comparison -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contest:
    """What every method is given."""

    model: DiffusionModel
    score: ScoreSettings
    budget: Budget  #: of every search, all its chains together
    chains: int = 5  #: candidates of a method (200 in the paper)
    seeds: tuple[int, ...] = (0,)  #: every method runs once with each

    def __post_init__(self) -> None:
        if self.chains < 1:
            raise UsageError(f"chains must be at least 1; got {self.chains}")
        if not self.seeds or len(set(self.seeds)) != len(self.seeds):
            raise UsageError(f"seeds must be one number or several different; got {self.seeds}")

    def about(self) -> dict[str, object]:
        """Return everything but seeds and methods, as plain data."""
        return {
            "model": self.model.digest,
            "precision": self.model.precision,
            "score": self.score.about(),
            "budget": as_plain(self.budget),
            "chains": self.chains,
            # an attempt whose candidates are in another order is another one
            "candidates": "by D under fresh noises",
        }


@dataclass(frozen=True)
class _Entry:
    contest: Contest
    name: str
    searcher: Search
    verifier: Verifier
    seed: int
    folder: Path

    def attempt(self, *, force: bool, progress: Progress, note: Note) -> Attempt:
        """Return the attempt: as it is on disk, or carried out."""
        request = {
            **self.contest.about(),
            "method": self.name,
            "settings": self.searcher.about(),
            "seed": self.seed,
            "verifier": self.verifier.about(),
        }
        key = digest_of(as_plain(request))
        run = RunFolder(self.folder / self.name / f"seed-{self.seed}", ATTEMPT)
        kept = run.reused(Attempt, key, force=force)
        if kept is not None:
            note(f"{self.name}, seed {self.seed}: finished before")
            return kept
        with run.claimed():
            made = self._made(run.path, key, progress)
            found = f"{made.found:,} memorized images of {len(made.candidates):,} candidates"
            run.finish(run.document(found, made), {})
        return made

    def _made(self, folder: Path, key: str, progress: Progress) -> Attempt:
        # another request never meets the state of this one
        found = self._search(folder / f"search-{key[:12]}", progress)
        candidates, checked, calls = self._checked(candidates_of(found))
        verified = Verified(0, (), (), 0, 0.0)
        if candidates:
            texts = [each.prompt for each in candidates]
            verified = self.verifier.verify(texts, folder, progress)
        return Attempt(
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
            key=key,
        )

    def _search(self, folder: Path, progress: Progress) -> SearchResult:
        budget, step = self.contest.budget, f"searching: {self.name}, seed {self.seed}"

        def report(now: Searched) -> None:
            progress(step, *now.within(budget.calls))

        folder.mkdir(parents=True, exist_ok=True)
        score = TriggerScore(self.contest.model, self.contest.score)
        task = SearchTask(score, self.contest.chains, self.seed, budget, folder, report)
        return self.searcher.search(task)

    def _checked(
        self, candidates: Sequence[Candidate]
    ) -> tuple[tuple[Candidate, ...], tuple[float, ...], int]:
        """Return candidates by D under fresh noises, as that of the search flatters, and cost."""
        if not candidates:
            return (), (), 0
        settings = replace(self.contest.score, noises=CHECK_NOISES)
        score = TriggerScore(self.contest.model, settings)
        fresh = score([each.prompt for each in candidates], draw=draw_of(CHECK)).by(settings.norm)
        # ties go by the prompt
        ranked = sorted(
            zip(candidates, fresh.tolist(), strict=True),
            key=lambda pair: (-pair[1], pair[0].prompt),
        )
        ordered, checked = zip(*ranked, strict=True)
        return ordered, checked, score.calls


def candidates_of(found: SearchResult) -> tuple[Candidate, ...]:
    """Return the different prompts among the best of the chains, by D as found, highest first."""
    once: dict[str, Candidate] = {}
    for each in sorted(found.best, key=lambda each: (-each.score, each.prompt)):
        if each.prompt.strip():
            once.setdefault(each.prompt, each)
    return tuple(once.values())


def compare(
    contest: Contest,
    methods: Mapping[str, Search],
    verifier: Verifier,
    out: str | os.PathLike[str],
    *,
    force: bool = False,
    progress: Progress = silent,
    note: Note = lambda line: None,
) -> Comparison:
    """Let methods search at one budget, and count the memorized images they find.

    Every method and seed is an attempt with a folder of its own. A finished attempt is kept: an
    interrupted comparison resumes, and more seeds or methods run only what is new.

    Args:
        contest: model, D, budget, chains, seeds.
        methods: searchers by name.
        verifier: decides which candidates give memorized images.
        out: the folder; a finished comparison of the same request is returned as it is.
        force: replace another comparison, and attempts with other settings.
        progress: called for searches, images and verification.
        note: called with what is reused.

    Raises:
        UsageError: the folder holds another comparison, or a method refuses its settings.
        VisleakError: a step fails; attempts that were finished are kept.
    """
    if not methods:
        raise UsageError("there is no method to compare; give at least one")
    run = RunFolder(out, KIND)
    settings = {name: {"about": each.about()} for name, each in methods.items()}
    request = {**contest.about(), "methods": settings, "seeds": list(contest.seeds)}
    key = digest_of(as_plain({**request, "verifier": verifier.about()}))
    keeps = "and keeps attempts that are the same"
    known = run.reused(Comparison, key, force=force, keeps=keeps, folder=run.path)
    if known is not None:
        note(f"{run.path} holds this comparison, finished")
        return known
    with run.claimed():
        attempts = [
            _Entry(contest, name, searcher, verifier, seed, run.path).attempt(
                force=force, progress=progress, note=note
            )
            for seed in contest.seeds
            for name, searcher in methods.items()
        ]
        timestep = TriggerScore(contest.model, contest.score).timestep
        result = Comparison(
            model=dict(contest.model.about()),
            score={**contest.score.about(), "timestep": timestep},
            norm=contest.score.norm,
            budget=as_plain(contest.budget),
            chains=contest.chains,
            seeds=contest.seeds,
            verification=verifier.about(),
            attempts=tuple(attempts),
            folder=run.path,
            key=key,
        )
        content = run.document(headline(result), result, methods=as_plain(rows_of(result)))
        run.finish(content, files(result))
    return result


def read_comparison(folder: str | os.PathLike[str]) -> Comparison:
    """Return the comparison that a folder holds."""
    return RunFolder(folder, KIND).read(Comparison, folder=Path(folder))
