"""ZeroCap with D in place of CLIP: a causal language model, guided word by word, with beams.

Tewel et al. 2022; in table 2 of Hong et al. 2024 its CLIP loss is replaced by -D. It found no
memorized image in 44 hours: its prompts have a D above general prompts and below triggers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from visleak.errors import UsageError
from visleak.memorization.baselines.beams import Beam, grown, nudged
from visleak.memorization.baselines.causal import CausalLanguageModel
from visleak.memorization.baselines.running import Run, draw_of, generator
from visleak.memorization.baselines.shifting import ShiftSettings, next_words
from visleak.memorization.search.task import Candidate, Found, SearchTask

#: In place of a position, for the noises that finished prompts of a chain are compared under.
LAST: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class ZerocapSettings:
    """How ZeroCap runs; the values are those of its code.

    Its list of forbidden tokens is not used; only special tokens are never chosen. The value of
    ``shift.temperature`` was made for cosines of CLIP: D spreads further, so that the target is
    nearly its argmax.

    Attributes:
        length: tokens of a prompt, at most.
        beams: texts kept beside each other.
        shift: how the memory is moved.
        end: a token that ends a text; where the vocabulary has none, all texts have full length.
        end_factor: by which the logit of ``end`` is raised from the second word on.
        prefix: text that the language model begins with; it is cut off before D is asked, as the
            authors of MemBench do with theirs.
        start: the first word of a chain: ``sample``, drawn from the language model, or ``beam``,
            ZeroCap's own way, where nothing but the noises of D tells two chains apart.
    """

    length: int = 15
    beams: int = 5
    shift: ShiftSettings = field(default_factory=ShiftSettings)
    end: str = "."
    end_factor: float = 1.01
    prefix: str = "Image of a"
    start: Literal["sample", "beam"] = "sample"

    def __post_init__(self) -> None:
        counts = {"length": self.length, "beams": self.beams, "top": self.shift.top}
        for name, value in counts.items():
            if value < 1:
                raise UsageError(f"{name} of zerocap is at least 1; got {value}")
        if self.shift.iterations < 0:
            raise UsageError(f"iterations of zerocap is at least 0; got {self.shift.iterations}")
        if not (self.shift.temperature > 0.0 and self.end_factor > 0.0):
            raise UsageError(
                "temperature and end_factor of zerocap are above 0; got"
                f" {self.shift.temperature:g} and {self.end_factor:g}"
            )
        if self.start not in ("sample", "beam"):
            raise UsageError(f"start of zerocap is sample or beam; got {self.start!r}")


class _Spent(Exception):
    """The share of a chain is used up."""


class Zerocap:
    """Chains one after the other, each with an equal share of what is left of the budget.

    A chain whose share is spent ends with what it has. All candidates of a position meet the same
    noises, so that what was scored in one gradient step is not scored in the next. Only passes of
    the diffusion network count: gradients go through the language model alone.

    Args:
        model: the language model.
        settings: how it runs.
    """

    name = "zerocap"

    def __init__(self, model: CausalLanguageModel, settings: ZerocapSettings | None = None) -> None:
        self.model, self.settings = model, settings or ZerocapSettings()
        self._begin = model.begin(self.settings.prefix)
        self._end = model.word(self.settings.end)
        longest = model.most - len(self._begin)
        if self.settings.length > longest:
            raise UsageError(
                f"length {self.settings.length} of zerocap is more than the {longest} tokens that"
                f" language model {model.name} reads after the prefix"
            )

    def about(self) -> dict[str, object]:
        """Return settings and language model."""
        return {
            **asdict(self.settings),
            "language_model": self.model.about(),
            "noises": "one draw a chain and position",
        }

    def search(self, task: SearchTask) -> Found:
        """Return for every chain the text with the highest D among its last beams.

        Raises:
            UsageError: the budget does not hold a word of the first chain.
        """
        run = Run(self.name, self.about(), task)
        kept = run.open()
        meta: dict[str, Any] = {"best": [], "beams": None, "whole": True}
        if kept is not None:
            meta = {name: kept.meta[name] for name in (*meta, "limit")}
        while len(meta["best"]) < task.chains and run.left() != 0:
            if meta["beams"] is None:
                left, chains = run.left(), task.chains - len(meta["best"])
                limit = None if left is None else run.calls + left // chains
                meta |= {"beams": self._first(task.seed, len(meta["best"])), "limit": limit}
            self._chain(run, meta)
        best = [Candidate(**each) for each in meta["best"]]
        complete = meta["whole"] and len(best) == task.chains
        return run.found([each for each in best if each.prompt.strip()], complete=complete)

    def _first(self, seed: int, chain: int) -> list[dict[str, Any]]:
        """Return what a chain begins with: nothing, or a first word."""
        if self.settings.start == "beam":
            return [asdict(Beam())]
        logits = self.model.logits(self.model.rows([self._begin]))[0].double().cpu()
        banned = self.model.special | ({self._end} if self._end is not None else set())
        logits[sorted(banned)] = -np.inf
        chances = logits.softmax(-1).numpy()
        word = int(generator(seed, chain).choice(len(chances), p=chances / chances.sum()))
        return [asdict(Beam((word,), float(np.log(chances[word]))))]

    def _chain(self, run: Run, meta: dict[str, Any]) -> None:
        """Carry a chain to its end, and take its best text in; a position is kept on disk."""
        chain, length = len(meta["best"]), self.settings.length
        while True:
            beams = [Beam(tuple(one["ids"]), one["total"], one["ended"]) for one in meta["beams"]]
            going = [beam for beam in beams if not beam.ended]
            if not going or len(going[0].ids) >= length:
                break
            try:
                beams = self._word(run, meta["limit"], chain, beams, going)
            except _Spent:
                meta["whole"] = False
                break
            meta["beams"] = [asdict(beam) for beam in beams]
            run.save(meta, now=False)
            run.say(chain * length + len(going[0].ids) + 1, run.task.chains * length)
        meta["best"] = [*meta["best"], asdict(self._best(run, chain, beams))]
        meta["beams"] = None
        run.save(meta, now=len(meta["best"]) == run.task.chains)
        run.say((chain + 1) * length, run.task.chains * length)

    def _word(
        self,
        run: Run,
        limit: int | None,
        chain: int,
        beams: Sequence[Beam],
        going: Sequence[Beam],
    ) -> list[Beam]:
        """Return the beams after one word more.

        Raises:
            _Spent: the share of the chain does not hold it.
        """
        position = len(going[0].ids)
        judge = _Judge(self.model, going, run, limit, (chain, position), self.settings.beams)
        rows = [[*self._begin, *beam.ids] for beam in going]
        logs = next_words(
            self.model,
            rows,
            judge,
            self.settings.shift,
            lambda logits: nudged(logits, self._end, position, self.settings.end_factor),
        )
        run.bank.add(judge.candidates())
        return grown(beams, logs, self.settings.beams, self._end)

    def _best(self, run: Run, chain: int, beams: Sequence[Beam]) -> Candidate:
        """Return the text of the highest D among the last beams."""
        known = [text for text in self.model.texts([beam.ids for beam in beams]) if text.strip()]
        if not known:
            return Candidate("", 0.0, chain)
        score = run.task.score
        draw = draw_of(run.task.seed, chain, LAST)
        values = score(known, draw=draw).by(score.settings.norm)
        run.calls += score.settings.noises * (len(known) + 1)
        found = [
            Candidate(text, float(value), chain, max(len(beam.ids) for beam in beams))
            for text, value in zip(known, values, strict=True)
        ]
        run.bank.add(found)
        return max(found, key=lambda each: each.score)


class _Judge:
    """D of the next words of beams, each text once a position.

    Args:
        model: spells the texts.
        beams: that go on.
        run: pays for D.
        limit: passes at which the share of the chain is spent.
        place: chain and position.
        spare: texts that will have to be scored at the end.
    """

    def __init__(
        self,
        model: CausalLanguageModel,
        beams: Sequence[Beam],
        run: Run,
        limit: int | None,
        place: tuple[int, int],
        spare: int,
    ) -> None:
        self._model, self._beams, self._run = model, beams, run
        self._limit, self._place, self._spare = limit, place, spare
        self._known: dict[str, float] = {"": 0.0}

    def __call__(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        rows = [
            [*beam.ids, word]
            for beam, words in zip(self._beams, ids.tolist(), strict=True)
            for word in words
        ]
        texts = self._model.texts(rows)
        new = list(dict.fromkeys(text for text in texts if text not in self._known))
        if new:
            self._ask(new)
        return np.array([self._known[text] for text in texts]).reshape(ids.shape)

    def _ask(self, texts: Sequence[str]) -> None:
        run, score = self._run, self._run.task.score
        noises = score.settings.noises
        # the empty prompt is passed once a position
        cost = noises * (len(texts) + (len(self._known) == 1))
        spare = noises * (self._spare + 1)
        over = self._limit is not None and run.calls + cost + spare > self._limit
        if over or run.left() == 0:
            run.must_have_begun(run.calls, run.task.chains * (cost + spare))
            raise _Spent
        values = score(texts, draw=draw_of(run.task.seed, *self._place)).by(score.settings.norm)
        run.calls += cost
        self._known |= dict(zip(texts, map(float, values), strict=True))

    def candidates(self) -> list[Candidate]:
        """Return every text that was scored."""
        chain, position = self._place
        known = {text: value for text, value in self._known.items() if text}
        return [Candidate(text, value, chain, position + 1) for text, value in known.items()]
