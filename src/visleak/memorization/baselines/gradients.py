"""Searches by gradients, with D as their objective: ZeroCap and PEZ.

ZeroCap (Tewel et al. 2022, section 3) guides a causal language model word by word, with beams: the
keys and values of the tokens so far are moved by a few gradient steps on the cross-entropy of the
next word to the softmax of the match over the most probable words (there CLIP's, here D), plus the
divergence from the model's own probabilities (equations 3 to 5).

PEZ (Wen et al. 2023, "Hard Prompts Made Easy", algorithm 1) projects soft token embeddings at every
step to the nearest embeddings of the vocabulary, and applies the gradient of the loss, here -D, at
the projection to the soft ones.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from visleak.diffusion.model import Tensor, TokenModel
from visleak.encoders import language_models
from visleak.errors import UsageError
from visleak.lazy import library
from visleak.memorization.scores import TriggerScore
from visleak.memorization.search.driver import (
    GRADIENT_CALLS,
    Candidate,
    Run,
    Search,
    Unit,
    draw_of,
    generator,
)
from visleak.options import Options, option
from visleak.records import Float64, Int64

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


#: Keys and values of each layer, each (beams, heads, tokens, width).
Memory = list[tuple[Tensor, Tensor]]
#: D of the most probable next words: (beams, words) ids to (beams, words) values.
Judge = Callable[[Int64], Float64]
WHAT: Final = "a causal language model"
#: The logit of the end is lowered by this factor at the first word (ZeroCap's code).
AT_FIRST: Final = 1.6
#: Added to norms, so that a gradient of 0 stays one.
TINY: Final = 1e-15
#: In place of a position, for the noises that finished prompts of a chain are compared under.
LAST: Final = 1 << 20


@dataclass(frozen=True)
class ZerocapSettings(Options):
    """How ZeroCap runs; the values are those of its code.

    Its list of forbidden tokens is not used; only special tokens are never chosen. The value of
    ``temperature`` was made for cosines of CLIP: D spreads further, so that the target is nearly
    its argmax. A chain begins with a word drawn from the language model.
    """

    length: int = option(15, "Tokens of a prompt, at most.", least=1)
    beams: int = option(5, "Texts kept at a time.", least=1)
    #: text that all texts begin with; it is cut off before D is measured
    prefix: str = "Image of a"
    end: str = "."  #: a token that ends a text; without it all texts have full length
    end_factor: float = option(1.01, "Raises the logit of end from the second word on.", above=0)
    steps: int = option(5, "Gradient steps per word; 0 leaves those of the model.", least=0)
    top: int = option(512, "Most probable words whose D is measured.", least=1)
    temperature: float = option(0.01, "Of the softmax of D.", above=0)
    guide_scale: float = 1.0  #: weight of the cross-entropy to that softmax
    ce_scale: float = 0.2  #: weight of the divergence from the model's own words
    stepsize: float = 0.3  #: length of a step
    norm_factor: float = 0.9  #: power of the gradient's norm that it is divided by
    fusion: float = 0.99  #: share of the shifted probabilities beside the model's own


def load_causal(text: str, *, device: str = "cpu") -> CausalLanguageModel:
    """Return the causal language model of a folder or ``hub:OWNER/NAME``, such as GPT-2."""
    loaded = language_models.load_language_model(
        text, "AutoModelForCausalLM", device, "--causal-lm FOLDER"
    )
    return CausalLanguageModel(text, *loaded)


class CausalLanguageModel:
    """A causal network of transformers with its tokenizer."""

    def __init__(
        self, name: str, network: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, digest: str
    ) -> None:
        self.name, self.digest = name, digest
        self._torch = library("torch", "diffusion", WHAT)
        self._cache = library("transformers", "diffusion", WHAT).DynamicCache
        self._network, self._tokenizer = network, tokenizer
        size = int(network.config.vocab_size)
        known = {int(at) for at in tokenizer.get_vocab().values()}
        self.special = frozenset(map(int, tokenizer.all_special_ids)) | (set(range(size)) - known)
        self.most = int(getattr(network.config, "max_position_embeddings", 1024))

    def about(self) -> dict[str, object]:
        """Return everything that its answers depend on, as plain data."""
        return {"model": self.name, "digest": self.digest}

    def begin(self, prefix: str) -> list[int]:
        """Return the ids that a text begins with: the token for it, and those of a prefix."""
        begun = [self._tokenizer.bos_token_id, *self._ids(prefix)]
        begun = [int(each) for each in begun if each is not None]
        if not begun:
            raise UsageError(
                f"language model {self.name} has no token that begins a text: give a prefix"
            )
        return begun

    def word(self, text: str) -> int | None:
        """Return the id of a text that is one token of its own, else ``None``."""
        ids = self._ids(text)
        return ids[0] if len(ids) == 1 and ids[0] not in self.special else None

    def _ids(self, text: str) -> list[int]:
        ids = self._tokenizer(text, add_special_tokens=False)["input_ids"] if text else []
        return [int(each) for each in ids]

    def texts(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Return what rows of ids spell, without special tokens."""
        decoded = self._tokenizer.batch_decode(rows, skip_special_tokens=True)
        return [str(text).strip() for text in decoded]

    def rows(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """Return rows of equal length as the network reads them, (beams, tokens)."""
        return self._torch.tensor([list(row) for row in rows], device=self._network.device)

    def logits(self, rows: Tensor) -> Tensor:
        """Return the logits of the next token, (beams, vocabulary), in float32."""
        with self._torch.no_grad():
            return self._network(input_ids=rows, use_cache=False).logits[:, -1].float()

    def memory(self, rows: Tensor) -> Memory:
        """Return the keys and values of all tokens but the last; empty where there is but one."""
        if rows.shape[1] < 2:
            return []
        with self._torch.no_grad():
            cache = self._network(input_ids=rows[:, :-1], use_cache=True).past_key_values
        return [(layer.keys, layer.values) for layer in cache.layers]

    def logits_after(self, memory: Memory, last: Tensor) -> Tensor:
        """Return the next logits from a memory and the last token (beams, 1); gradients flow."""
        cache = self._cache()
        for number, (keys, values) in enumerate(memory):
            cache.update(keys, values, number)
        answer = self._network(input_ids=last, past_key_values=cache, use_cache=True)
        return answer.logits[:, -1].float()


@dataclass(frozen=True, slots=True)
class Beam:
    """A text in the making."""

    ids: tuple[int, ...] = ()  #: its tokens, without the prefix
    total: float = 0.0  #: sum of their log-probabilities
    ended: bool = False  #: whether it has come to its end

    @property
    def mean(self) -> float:
        """Mean log-probability of a token."""
        return self.total / max(len(self.ids), 1)


def grown(beams: Sequence[Beam], logs: Tensor, count: int, end: int | None) -> list[Beam]:
    """Return the best ``count`` beams after one word more, by mean log-probability."""
    made = [beam for beam in beams if beam.ended]
    for beam, row in zip((beam for beam in beams if not beam.ended), logs, strict=True):
        values, ids = row.topk(min(count, len(row)))
        for value, word in zip(values.tolist(), ids.tolist(), strict=True):
            if value > -np.inf:
                made.append(Beam((*beam.ids, word), beam.total + value, word == end))
    return sorted(made, key=lambda beam: (-beam.mean, beam.ids))[:count]


def nudged(logits: Tensor, end: int | None, position: int, factor: float) -> Tensor:
    """Return logits with the end made likelier, at the first word less likely, as ZeroCap does."""
    if end is None:
        return logits
    raised, power = logits.clone(), factor if position else 1.0 / AT_FIRST
    here = logits[:, end]
    raised[:, end] = here * (here > 0) * power + here * (here <= 0) / power
    return raised


def next_words(
    model: CausalLanguageModel,
    rows: Sequence[Sequence[int]],
    judge: Judge,
    how: ZerocapSettings,
    nudge: Callable[[Tensor], Tensor] = lambda logits: logits,
) -> Tensor:
    """Return the log-probabilities of the next word of every beam, (beams, vocabulary)."""
    torch = library("torch", "diffusion", WHAT)
    tokens = model.rows(rows)
    own = moved = model.logits(tokens)
    memory = model.memory(tokens)
    if memory:
        memory = shifted(model, memory, tokens[:, -1:], own.log_softmax(-1), judge, how)
        with torch.no_grad():
            moved = model.logits_after(memory, tokens[:, -1:])
    moved = nudge(moved).log_softmax(-1)
    mixed = how.fusion * moved + (1.0 - how.fusion) * own.log_softmax(-1)
    mixed[:, sorted(model.special)] = -torch.inf
    return mixed.log_softmax(-1).double().cpu()


def shifted(
    model: CausalLanguageModel,
    memory: Memory,
    last: Tensor,
    own: Tensor,
    judge: Judge,
    how: ZerocapSettings,
) -> Memory:
    """Return a memory after the gradient steps."""
    torch = library("torch", "diffusion", WHAT)
    flat = [each.detach() for pair in memory for each in pair]
    moves = [torch.zeros_like(each) for each in flat]

    def paired() -> Memory:
        moved = [base + move for base, move in zip(flat, moves, strict=True)]
        return list(zip(moved[::2], moved[1::2], strict=True))

    for _ in range(how.steps):
        moves = [move.clone().requires_grad_(True) for move in moves]
        with torch.enable_grad():
            logs = model.logits_after(paired(), last).log_softmax(-1)
            loss = losses(logs, own, target(logs, model.special, judge, how), how).sum()
            gradients = torch.autograd.grad(loss, moves)
        for at, each in enumerate(gradients):
            # each beam's gradient is divided by its own norm
            norm = (each.flatten(1).norm(dim=1) + TINY).reshape(-1, *[1] * (each.dim() - 1))
            moves[at] = moves[at].detach() - how.stepsize * each / norm**how.norm_factor
    return paired()


def target(logs: Tensor, special: frozenset[int], judge: Judge, how: ZerocapSettings) -> Tensor:
    """Return the wanted next word: the softmax of D over the most probable words."""
    torch = library("torch", "diffusion", WHAT)
    with torch.no_grad():
        words = logs.detach().clone()
        words[:, sorted(special)] = -torch.inf
        count = min(how.top, words.shape[1] - len(special))
        ids = words.topk(count, -1).indices
        scores = torch.from_numpy(judge(ids.cpu().numpy()))
        chances = (scores / how.temperature).softmax(-1).to(logs)
        return torch.zeros_like(logs).scatter(1, ids, chances)


def losses(logs: Tensor, own: Tensor, wanted: Tensor, how: ZerocapSettings) -> Tensor:
    """Return ZeroCap's loss of every beam, (beams,): less is better."""
    guide = -(wanted * logs).sum(-1)
    divergence = (logs.exp() * (logs - own)).sum(-1)
    return how.guide_scale * guide + how.ce_scale * divergence


class _Spent(Exception):
    """The share of a chain is used up."""


class Zerocap(Search):
    """Chains one after the other, each with an equal share of what is left of the budget.

    A chain whose share is spent ends with what it has. All candidates of a position meet the same
    noises, so that what was scored in one gradient step is not scored in the next. Only passes of
    the diffusion network count: gradients go through the language model alone.
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
            "noises": "one draw per chain and position",
        }

    def units(self, run: Run) -> Iterator[Unit]:
        """Carry one chain after the other to its end."""
        task = run.task
        state: dict[str, Any] = run.state or {"chain": 0, "beams": None, "whole": True}
        while state["chain"] < task.chains and run.left() != 0:
            if state["beams"] is None:
                left, chains = run.left(), task.chains - state["chain"]
                limit = None if left is None else run.calls + left // chains
                first = [astuple(self._first(task.seed, state["chain"]))]
                state |= {"beams": first, "limit": limit}
            yield from self._chain(run, state)
        run.complete = state["whole"] and state["chain"] == task.chains

    def _first(self, seed: int, chain: int) -> Beam:
        """Return a text of one word, drawn from the language model."""
        logits = self.model.logits(self.model.rows([self._begin]))[0].double().cpu()
        banned = self.model.special | ({self._end} if self._end is not None else set())
        logits[sorted(banned)] = -np.inf
        chances = logits.softmax(-1).numpy()
        word = int(generator(seed, chain).choice(len(chances), p=chances / chances.sum()))
        return Beam((word,), float(np.log(chances[word])))

    def _chain(self, run: Run, state: dict[str, Any]) -> Iterator[Unit]:
        chain, length, chains = state["chain"], self.settings.length, run.task.chains
        while True:
            beams = [Beam(tuple(ids), *rest) for ids, *rest in state["beams"]]
            going = [beam for beam in beams if not beam.ended]
            if not going or len(going[0].ids) >= length:
                break
            try:
                beams = self._word(run, state["limit"], chain, beams, going)
            except _Spent:
                state["whole"] = False
                break
            state["beams"] = [astuple(beam) for beam in beams]
            done = chain * length + len(going[0].ids) + 1
            yield Unit(state, done, chains * length, now=False)
        known = [text for text in self.model.texts([beam.ids for beam in beams]) if text.strip()]
        if known:
            step = max(len(beam.ids) for beam in beams)
            for text, value in run.scores(known, draw_of(run.task.seed, chain, LAST)).items():
                run.add([Candidate(text, value, chain, step)])
                run.visit(Candidate(text, value, chain, step))
        state |= {"chain": chain + 1, "beams": None}
        yield Unit(state, (chain + 1) * length, chains * length, now=chain + 1 == chains)

    def _word(
        self, run: Run, limit: int | None, chain: int, beams: Sequence[Beam], going: Sequence[Beam]
    ) -> list[Beam]:
        position, known = len(going[0].ids), {"": 0.0}
        noises = run.task.score.settings.noises
        # the texts that will have to be scored at the end
        spare = noises * (self.settings.beams + 1)

        def judge(ids: Int64) -> Float64:
            pairs = zip(going, ids.tolist(), strict=True)
            texts = self.model.texts([[*b.ids, word] for b, words in pairs for word in words])
            new = list(dict.fromkeys(text for text in texts if text not in known))
            if new:
                # the empty prompt is passed once per position
                cost = noises * (len(new) + (len(known) == 1))
                over = limit is not None and run.calls + cost + spare > limit
                if over or run.left() == 0:
                    run.affords(run.task.chains * (cost + spare))
                    raise _Spent
                draw = draw_of(run.task.seed, chain, position)
                known.update(run.scores(new, draw, again=len(known) > 1))
            return np.array([known[text] for text in texts]).reshape(ids.shape)

        def nudge(logits: Tensor) -> Tensor:
            return nudged(logits, self._end, position, self.settings.end_factor)

        rows = [[*self._begin, *beam.ids] for beam in going]
        logs = next_words(self.model, rows, judge, self.settings, nudge)
        run.add(
            Candidate(text, value, chain, position + 1) for text, value in known.items() if text
        )
        return grown(beams, logs, self.settings.beams, self._end)


# -- PEZ -------------------------------------------------------------------------------------------


#: Of AdamW, as torch has them.
BETAS: Final = (0.9, 0.999)
EPSILON: Final = 1e-8
#: Embeddings that are compared with the vocabulary at a time.
ROWS: Final = 256


@dataclass(frozen=True)
class PezSettings(Options):
    """How PEZ runs."""

    length: int = option(8, "Tokens of a prompt (PEZ: 16; MemBench's search: 8).", least=1)
    iterations: int | None = option(
        200, "Steps (PEZ: 3,000; Hong et al.: 200); None: until the budget ends.", least=1
    )
    rate: float = option(0.1, "Learning rate of AdamW.", above=0)
    decay: float = option(0.1, "Its weight decay.", least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.decay * self.rate >= 1.0:
            raise UsageError(f"decay must be below 1 / rate, {1 / self.rate:g}; got {self.decay:g}")


class Pez(Search):
    """Gradient search over hard prompts; chains are independent and share the noises of a step."""

    name = "pez"

    def __init__(self, model: TokenModel, settings: PezSettings | None = None) -> None:
        self.model, self.settings = model, settings or PezSettings()
        if self.settings.length > model.most_tokens():
            raise UsageError(
                f"length {self.settings.length} of pez is more than the {model.most_tokens()}"
                f" tokens that {model.name} reads"
            )

    def about(self) -> dict[str, object]:
        """Return the settings."""
        return {
            **asdict(self.settings),
            "gradient_calls": GRADIENT_CALLS,
            "noises": "one draw per step, shared by all chains",
        }

    def units(self, run: Run) -> Iterator[Unit]:
        """Move the soft prompts of all chains, step by step."""
        task, settings, end = run.task, self.settings, self.settings.iterations
        run.ends_by(end)
        vocabulary = Vocabulary(self.model)
        if run.state is None:
            step, moments = 0, vocabulary.start(task.seed, task.chains, settings.length)
        else:
            step, moments = run.state[0], Moments.of(run.state[1:])
        cost = task.score.settings.noises * (GRADIENT_CALLS * task.chains + 1)
        while step != end and run.affords(cost):
            ids = vocabulary.nearest(moments.soft)
            scores, gradients = ascent(task.score, vocabulary, ids, draw_of(task.seed, step))
            run.calls += cost
            for chain, (row, score) in enumerate(zip(ids.tolist(), scores, strict=True)):
                each = Candidate(self.model.prompt_of(row), score, chain, step)
                run.add([each])
                run.visit(each)
            step += 1
            moments = adamw(moments, -gradients, step, settings.rate, settings.decay)
            yield Unit([step, *moments.plain()], step, end, now=step == end)
        run.complete = step == end


class Vocabulary:
    """The tokens that prompts may be made of: all but the special ones."""

    def __init__(self, model: TokenModel) -> None:
        self._torch = library("torch", "diffusion", "the baseline pez")
        self.model = model
        self._table = model.token_table().detach()
        special = model.special_ids()
        self.ids = [at for at in range(len(self._table)) if at not in special]
        if not self.ids:
            raise UsageError(f"{model.name} has no token that is not special")
        self._allowed = self._torch.as_tensor(self.ids, device=self._table.device)
        self._directions = _unit(self._table[self._allowed].float())

    def start(self, seed: int, chains: int, length: int) -> Moments:
        """Return embeddings of random tokens."""
        drawn = [generator(seed, at).choice(self.ids, length).tolist() for at in range(chains)]
        soft = self.embedded(self._torch.as_tensor(drawn)).float().cpu()
        nothing = self._torch.zeros_like(soft)
        return Moments(soft, nothing, nothing)

    def embedded(self, ids: Tensor) -> Tensor:
        """Return the embeddings of tokens (..., width)."""
        return self._table[ids.to(self._table.device)].clone()

    def nearest(self, soft: Tensor) -> Tensor:
        """Return the tokens of the highest cosine (chains, tokens) to soft ones (.., width)."""
        flat = _unit(soft.reshape(-1, soft.shape[-1]).to(self._directions))
        places = [(part @ self._directions.T).argmax(1) for part in flat.split(ROWS)]
        return self._allowed[self._torch.cat(places)].reshape(soft.shape[:-1]).cpu()


@dataclass(frozen=True, slots=True)
class Moments:
    """Embeddings with the moments of AdamW, each (chains, tokens, width)."""

    soft: Tensor
    mean: Tensor  #: moving mean of the gradients
    square: Tensor  #: moving mean of their squares

    def plain(self) -> list[object]:
        """Return them as plain data: as base64, since numbers would be several times as long."""
        arrays = [each.numpy() for each in (self.soft, self.mean, self.square)]
        data = [b64encode(each.tobytes()).decode("ascii") for each in arrays]
        return [list(arrays[0].shape), str(arrays[0].dtype), *data]

    @classmethod
    def of(cls, plain: Sequence[Any]) -> Moments:
        """Return what :meth:`plain` made plain."""
        torch = library("torch", "diffusion", "the baseline pez")
        shape, dtype, *data = plain
        arrays = (np.frombuffer(b64decode(each), dtype).reshape(shape).copy() for each in data)
        return cls(*map(torch.from_numpy, arrays))


def adamw(state: Moments, gradient: Tensor, step: int, rate: float, decay: float) -> Moments:
    """Return the embeddings after one step of AdamW (Loshchilov & Hutter 2019) downhill."""
    first, second = BETAS
    mean = first * state.mean + (1.0 - first) * gradient
    square = second * state.square + (1.0 - second) * gradient.square()
    size = (square / (1.0 - second**step)).sqrt() + EPSILON
    soft = state.soft * (1.0 - rate * decay) - rate * (mean / (1.0 - first**step)) / size
    return Moments(soft, mean, square)


def ascent(
    score: TriggerScore, vocabulary: Vocabulary, ids: Tensor, draw: int
) -> tuple[Sequence[float], Tensor]:
    """Return D of hard prompts (chains, tokens), and its gradient (chains, tokens, width)."""
    torch = library("torch", "diffusion", "the baseline pez")
    pairs = score.noises(draw)
    totals: list[float] = []
    slopes = []
    for part in ids.split(score.settings.batch):
        embeddings = vocabulary.embedded(part).requires_grad_(True)
        with torch.enable_grad():
            encoded = vocabulary.model.encode_embeddings(embeddings)
            total: Tensor = 0.0
            for noise, empty in pairs:
                squared = score.squared_distance(encoded, noise, empty)
                # the root has no slope at 0, where a prompt moves nothing
                length = squared.clamp_min(1e-24).sqrt()
                total = total + (squared if score.settings.norm == "squared" else length)
            mean = total / len(pairs)
            (slope,) = torch.autograd.grad(mean.sum(), [embeddings])
        totals += mean.detach().cpu().tolist()
        slopes.append(slope.detach().float().cpu())
    return totals, torch.cat(slopes)


def _unit(rows: Tensor) -> Tensor:
    return rows / rows.norm(dim=-1, keepdim=True).clamp_min(1e-12)
