"""What all pipelines of diffusers have in common: prompts as tokens, noises, timesteps, images."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
import numpy.typing as npt

from visleak.devices import network_device
from visleak.diffusion.model import Conditioning, Sampling, Tensor
from visleak.encoders import weights
from visleak.encoders.network import PRECISIONS, torch_type
from visleak.errors import UsageError, VisleakError, brief
from visleak.lazy import library
from visleak.records import Bytes8, Float32

if TYPE_CHECKING:
    import torch
    from diffusers import DiffusionPipeline, ModelMixin
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


#: Classes that parts of a pipeline may be of.
CLIP_TEXT: Final = ("CLIPTextModel", "CLIPTextModelWithProjection")
T5_TEXT: Final = ("T5EncoderModel",)
TOKENIZERS: Final = (
    *("CLIPTokenizer", "CLIPTokenizerFast", "T5Tokenizer", "T5TokenizerFast"),
    *("PreTrainedTokenizerFast", "TokenizersBackend"),
)
VAES: Final = ("AutoencoderKL", "AutoencoderTiny", "AsymmetricAutoencoderKL")


@dataclass(frozen=True, slots=True)
class Layout:
    """What a pipeline of one class is made of."""

    parts: Mapping[str, tuple[str, ...]]  #: classes by name; a scheduler may be any
    optional: frozenset[str] = frozenset()  #: parts that may be absent


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the libraries from writing to the terminal; what matters of it is checked or raised."""
    logger = logging.getLogger("diffusers")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with weights.quiet():
            yield
    finally:
        logger.setLevel(level)


def signal_at(signals: npt.ArrayLike, timestep: float) -> float:
    """Return abar; between whole timesteps the ratio of noise to image is interpolated."""
    known = np.asarray(signals)
    if float(timestep).is_integer() and 0 <= timestep < len(known):
        return float(known[int(timestep)])
    known = np.maximum(known, 2.0**-24)
    ratios = np.sqrt((1 - known) / known)
    ratio = float(np.interp(timestep, np.arange(len(known)), ratios))
    return 1 / (1 + ratio * ratio)


def noise_of(output: Tensor, latents: Tensor, signal: float, prediction: str) -> Tensor:
    """Return the noise that a velocity (``v_prediction``) or an image (``sample``) stands for."""
    image, noise = signal**0.5, (1 - signal) ** 0.5
    if prediction == "v_prediction":
        return image * output + noise * latents
    return (latents - image * output) / noise


def device_of(given: str) -> str:
    """Return the device of torch that is meant; ``auto`` is a CUDA GPU where torch sees one."""
    torch = library("torch", "diffusion", "a diffusion model")
    invalid = UsageError(f"device is one of auto, cpu, cuda, cuda:N, mps; got {given!r}")
    return network_device(torch, given, invalid, "cpu")


def precision_of(given: str, device: str) -> str:
    """Return ``fp32``, ``fp16`` or ``bf16``; ``auto`` is fp16 on a CUDA GPU, else fp32."""
    if given not in PRECISIONS:
        raise UsageError(f"precision is one of {', '.join(PRECISIONS)}; got {given!r}")
    if given != "auto":
        return given
    return "fp16" if device.startswith("cuda") else "fp32"


#: The scheduler of the steps: that which the family is measured with, the pipeline's own, or DDIM.
SCHEDULERS = ("auto", "own", "ddim")


@dataclass(frozen=True)
class LoadedPipeline:
    """A pipeline from disk, on its device."""

    name: str  #: as the user named it
    pipeline: DiffusionPipeline
    device: str  #: of torch
    precision: str  #: ``fp32``, ``fp16`` or ``bf16``
    digest: str  #: of everything that its images depend on
    left_out: tuple[str, ...] = ()  #: parts of the folder that were not loaded


def plain_settings(config: Mapping[str, object]) -> dict[str, object]:
    """Return a scheduler's settings without the library's notes."""
    return {key: value for key, value in config.items() if not key.startswith("_")}


#: Prompts as a text encoder reads them: ids with begin, end and padding, and a mask, 1 where a
#: token is not padding, (n, length) each.
Rows = tuple[Tensor, Tensor]


class PromptTokens:
    """A tokenizer and the text encoder that reads it."""

    def __init__(
        self,
        name: str,
        tokenizer: PreTrainedTokenizerBase,
        encoder: PreTrainedModel,
        length: int,
        cleaned: Callable[[str], str] = str,
        table: torch.nn.Embedding | None = None,
    ) -> None:
        self._torch = library("torch", "diffusion", f"model {name}")
        self._tokenizer, self._encoder, self._cleaned = tokenizer, encoder, cleaned
        self._table = table or encoder.get_input_embeddings()
        self.length = length
        # the tokens of an empty prompt are those around every prompt
        around = [int(each) for each in tokenizer("").input_ids]
        if tokenizer.eos_token_id not in around or tokenizer.pad_token_id is None:
            raise VisleakError(
                f"model {name}: its tokenizer has no end or no padding token; that of the text"
                " encoder is needed"
            )
        end = around.index(tokenizer.eos_token_id)
        self._before, self._after = around[:end], around[end:]
        entries = int(self._table.weight.shape[0])
        if len(tokenizer) > entries or len(tokenizer) <= len(self.special_ids()):
            raise VisleakError(
                f"model {name}: its tokenizer has {len(tokenizer)} tokens and its text encoder"
                f" {entries}; they are not of one model"
            )

    def rows(self, prompts: Sequence[str]) -> Rows:
        """Return prompts, each cut to what fits and filled up to ``length``."""
        if not prompts:
            raise UsageError("prompts must hold at least one prompt; got none")
        found = self._tokenizer(
            [self._cleaned(prompt) for prompt in prompts],
            padding="max_length",
            max_length=self.length,
            truncation=True,
            return_attention_mask=True,
            return_tensors="pt",
        )
        device = self._encoder.device
        return found.input_ids.to(device), found.attention_mask.to(device)

    def token_ids(self, prompt: str) -> list[int]:
        """Return the ids of a prompt's own tokens, cut to what fits."""
        found = self._tokenizer(self._cleaned(prompt), max_length=self.length, truncation=True)
        ids = [int(each) for each in found.input_ids]
        return ids[len(self._before) : len(ids) - len(self._after)]

    def token_texts(self, ids: Sequence[int]) -> list[str]:
        """Return each token as text; bytes that are not whole characters become U+FFFD."""
        return [self._decoded([each]) for each in ids]

    def prompt_of(self, ids: Sequence[int]) -> str:
        """Return the prompt that ids spell; padding is kept, which prompts may hold (``!``)."""
        tokenizer = self._tokenizer
        dropped = {tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id}
        return self._decoded([each for each in ids if each not in dropped])

    def _decoded(self, ids: Sequence[int]) -> str:
        text = self._tokenizer.decode(list(map(int, ids)), clean_up_tokenization_spaces=False)
        return str(text).strip()

    def most_tokens(self) -> int:
        """Return how many tokens of its own a prompt may have."""
        return self.length - len(self._before) - len(self._after)

    def special_ids(self) -> frozenset[int]:
        """Return ids of begin, end, padding, unknown and the like."""
        return frozenset(int(each) for each in self._tokenizer.all_special_ids)

    def table(self) -> Tensor:
        """Return the input embeddings of the tokenizer's tokens (vocabulary, width)."""
        return self._table.weight[: len(self._tokenizer)]

    def rows_around(self, embeddings: Tensor) -> Rows:
        """Return rows with begin, end and padding around embeddings (n, tokens, width)."""
        width, most = int(self.table().shape[1]), self.most_tokens()
        shape = tuple(embeddings.shape)
        if len(shape) != 3 or not shape[0] or shape[1] > most or shape[2] != width:
            raise UsageError(
                f"embeddings must be (prompts, at most {most} tokens, {width}); got {shape}"
            )
        special = self.special_ids()
        other = next(each for each in range(len(self._tokenizer)) if each not in special)
        row = [*self._before, *[other] * shape[1], *self._after]
        padding = self.length - len(row)
        ids = [*row, *[int(self._tokenizer.pad_token_id)] * padding]
        mask = [*[1] * len(row), *[0] * padding]
        both = self._torch.tensor(
            [[ids] * shape[0], [mask] * shape[0]], device=self._encoder.device
        )
        return both[0], both[1]

    @contextmanager
    def in_place(self, embeddings: Tensor) -> Iterator[None]:
        """Let the encoder's input embeddings be these where a prompt's own tokens stand."""
        first, last = len(self._before), len(self._before) + int(embeddings.shape[1])

        def replaced(_module: object, _inputs: object, output: Tensor) -> Tensor:
            given = embeddings.to(output.device, output.dtype)
            return self._torch.cat([output[:, :first], given, output[:, last:]], 1)

        handle = self._table.register_forward_hook(replaced)
        try:
            yield
        finally:
            handle.remove()


#: Prompts per call of the text encoder, where only its pooled output is kept.
_POOLED_BATCH = 64


class Pipeline:
    """A pipeline of diffusers as a :class:`visleak.diffusion.model.TokenModel`.

    Families derive from it, and refuse what they cannot do, with the reason. ``latents`` are in
    the scale in which the network reads them, with unit variance at the first timestep,
    whatever the scheduler: those that step on another scale (Euler) bring it to this one first.
    """

    family: ClassVar[str]  #: of the protocol
    layout: ClassVar[Layout]  #: what a folder of this family holds
    scheduled: ClassVar[str] = "own"  #: the scheduler by default: ``ddim`` or ``own``
    has_ddim: ClassVar[bool] = False  #: whether a DDIM sampler fits

    def __init__(self, loaded: LoadedPipeline) -> None:
        self._torch = library("torch", "diffusion", f"model {loaded.name}")
        self.name, self.digest = loaded.name, loaded.digest
        self.device, self.precision = loaded.device, loaded.precision
        self.pipeline = loaded.pipeline
        self.pipeline.set_progress_bar_config(disable=True)
        self._left_out = loaded.left_out
        self._dtype = torch_type(self._torch, loaded.precision)
        self._first: dict[int, float] = {}
        self.network = self._network()
        self.prediction = self._prediction()
        self.shape = self._shape()
        self._tokens = tokens = self._prompt_tokens()
        # methods of a TokenModel that need its tokenizer alone
        self.token_ids, self.token_texts = tokens.token_ids, tokens.token_texts
        self.prompt_of, self.most_tokens = tokens.prompt_of, tokens.most_tokens
        self.special_ids = tokens.special_ids
        self._empty_row: Conditioning | None = None

    @classmethod
    def prepare(cls, pipeline: DiffusionPipeline, scheduler: str) -> None:
        """Give a pipeline its scheduler; DDIM is made of the settings of its own."""
        if scheduler != "ddim":
            return
        if not cls.has_ddim:
            raise UsageError(
                f"scheduler ddim does not fit {type(pipeline).__name__}; use auto or own"
            )
        import diffusers

        own = pipeline.scheduler.config
        # what the constructor of StableDiffusionPipeline makes of settings without them
        pipeline.scheduler = diffusers.DDIMScheduler.from_config(
            own, clip_sample=False, steps_offset=own.get("steps_offset", 1)
        )

    def about(self) -> dict[str, object]:
        """Return name, family, class, digest, what D compares, scheduler, what was left out ..."""
        import diffusers
        import transformers

        scheduler = self.pipeline.scheduler
        libraries = (self._torch, diffusers, transformers)
        return {
            "name": self.name,
            "family": self.family,
            "pipeline": type(self.pipeline).__name__,
            "digest": self.digest,
            "prediction": self.prediction,
            "output": self.output_in_words(),
            "shape": list(self.shape),
            "image_size": list(self.image_size()),
            "scheduler": type(scheduler).__name__,
            "train_timesteps": int(scheduler.config.num_train_timesteps),
            "left_out": list(self._left_out),
            "device": self.device,
            "precision": self.precision,
            "versions": {each.__name__: str(each.__version__) for each in libraries},
        }

    def output_in_words(self) -> str:
        """Return what the network's raw output is, in words."""
        return {
            "epsilon": "the noise",
            "v_prediction": "a velocity v = sqrt(abar) noise - sqrt(1 - abar) image; the noise"
            " can be computed of it",
            "sample": "the image; the noise can be computed of it",
        }[self.prediction]

    def _network(self) -> ModelMixin:
        config = self.pipeline.unet.config
        if config.in_channels != config.out_channels or config.time_cond_proj_dim is not None:
            raise VisleakError(
                f"model {self.name}: its unet reads more than noise and a prompt (inpainting,"
                " editing or distilled guidance); a plain text-to-image model is needed"
            )
        return self.pipeline.unet

    def _prompt_tokens(self) -> PromptTokens:
        encoder, tokenizer = self.pipeline.text_encoder, self.pipeline.tokenizer
        return PromptTokens(self.name, tokenizer, encoder, self._length())

    def _length(self) -> int:
        return int(self.pipeline.tokenizer.model_max_length)

    def _prediction(self) -> str:
        found = str(self.pipeline.scheduler.config.get("prediction_type", "epsilon"))
        if found not in ("epsilon", "v_prediction", "sample"):
            raise VisleakError(
                f"model {self.name}: its scheduler's prediction_type must be epsilon, v_prediction"
                f" or sample; got {found!r}"
            )
        return found

    def _shape(self) -> tuple[int, int, int]:
        config = self.network.config
        size = config.sample_size
        height, width = size if isinstance(size, list | tuple) else (size, size)
        return int(config.in_channels), int(height), int(width)

    def image_size(self) -> tuple[int, int]:
        """Return height and width of images."""
        factor = int(getattr(self.pipeline, "vae_scale_factor", 1))
        return self.shape[1] * factor, self.shape[2] * factor

    def first_timestep(self, steps: int) -> float:
        """Return the first timestep of the sampler when it makes ``steps`` steps."""
        if steps not in self._first:
            own = self.pipeline.scheduler
            try:
                with quiet():
                    # a copy: setting timesteps starts a scheduler again
                    copied = type(own).from_config(own.config)
                    copied.set_timesteps(steps, **self._timestep_options())
                    self._first[steps] = float(copied.timesteps[0])
            except Exception as error:
                raise UsageError(
                    f"steps must be a number of steps that {type(own).__name__} can make, 1 to"
                    f" {own.config.num_train_timesteps}; got {steps} ({brief(error)})"
                ) from error
        return self._first[steps]

    def _timestep_options(self) -> dict[str, object]:
        return {}

    def noises(self, seeds: Sequence[int]) -> Tensor:
        """Draw noises (n, *shape) on the CPU in float32: every device starts from the same."""
        return self._drawn(seeds)[0]

    def _drawn(self, seeds: Sequence[int]) -> tuple[Tensor, list[torch.Generator]]:
        """Return noises, and the generators that continue from there."""
        torch = self._torch
        generators = [torch.Generator().manual_seed(int(seed)) for seed in seeds]
        rows = [torch.randn((1, *self.shape), generator=each) for each in generators]
        return torch.cat(rows or [torch.zeros((0, *self.shape))]).to(self.device), generators

    def predict_noise(self, latents: Tensor, timestep: float, conditioning: Conditioning) -> Tensor:
        """Return the raw output of the network (n, channels, height, width), without guidance."""
        inputs = latents.to(device=self.device, dtype=self._dtype)
        moment = self._torch.tensor(float(timestep), dtype=self._torch.float32, device=self.device)
        output = self._output_of(inputs, moment, conditioning)
        return output[:, : self.shape[0]]

    def _output_of(self, inputs: Tensor, moment: Tensor, conditioning: Conditioning) -> Tensor:
        return self.network(
            inputs,
            moment,
            encoder_hidden_states=conditioning.states.to(self._dtype),
            return_dict=False,
        )[0]

    def as_epsilon(self, output: Tensor, latents: Tensor, timestep: float) -> Tensor:
        """Return the noise that a raw output stands for (Salimans & Ho 2022, appendix D)."""
        if self.prediction == "epsilon":
            return output
        signal = signal_at(self.pipeline.scheduler.alphas_cumprod.double().cpu(), timestep)
        if signal == 0.0:
            raise UsageError(
                f"at timestep {timestep:g} of model {self.name} nothing but noise is left, and all"
                " outputs stand for the same one; compare raw outputs (output raw)"
            )
        return noise_of(output, latents.to(output.dtype), signal, self.prediction)

    def unconditional(self, count: int) -> Conditioning:
        """Return what guidance leads away from, for this many images: the empty prompt's states."""
        if self._empty_row is None:
            with self._torch.no_grad():
                self._empty_row = self.encode_prompt([""])
        return self._empty_row.repeated(count)

    def sample(
        self, conditioning: Conditioning, seeds: Sequence[int], sampling: Sampling
    ) -> Bytes8:
        """Make one image per row from the noise of its seed, by the library's own pipeline."""
        if len(conditioning) != len(seeds):
            raise UsageError(
                "seeds must be one per row of conditioning; got"
                f" {len(seeds)} for {len(conditioning)}"
            )
        self.first_timestep(sampling.steps)
        images = np.empty((len(seeds), *self.image_size(), 3), np.uint8)
        for start in range(0, len(seeds), sampling.batch):
            rows = slice(start, start + sampling.batch)
            with quiet():
                made = self._images(conditioning[rows], seeds[rows], sampling)
            if not np.isfinite(made).all():
                raise VisleakError(
                    f"model {self.name} makes images that are not finite in precision"
                    f" {self.precision}; use --precision bf16 or fp32"
                )
            images[rows] = (made * 255).round().astype(np.uint8)
        return images

    def _images(
        self, conditioning: Conditioning, seeds: Sequence[int], sampling: Sampling
    ) -> Float32:
        """Return images (n, height, width, 3) in 0 to 1."""
        height, width = self.image_size()
        made = self.pipeline(
            height=height,
            width=width,
            num_inference_steps=sampling.steps,
            guidance_scale=sampling.guidance,
            output_type="np",
            **self._noised(seeds),
            **self._prompted(conditioning, sampling.guidance),
        )
        return np.asarray(made.images, np.float32)

    def _noised(self, seeds: Sequence[int]) -> dict[str, object]:
        """Return the arguments for noises: the first, and what draws further ones."""
        noises, generators = self._drawn(seeds)
        return {"latents": noises.to(self._dtype), "generator": generators}

    def _prompted(self, conditioning: Conditioning, guidance: float) -> dict[str, object]:
        given: dict[str, object] = {"prompt_embeds": conditioning.states.to(self._dtype)}
        if guidance > 1:
            empty = self.unconditional(len(conditioning))
            given["negative_prompt_embeds"] = empty.states.to(self._dtype)
        return given

    def encode_prompt(self, prompts: Sequence[str]) -> Conditioning:
        """Encode prompts; ``""`` is the empty prompt. A row never depends on its neighbours."""
        return self._encoded_rows(*self._tokens.rows(prompts))

    def token_table(self) -> Tensor:
        """Return the input embeddings of all tokens (vocabulary, width)."""
        self._refuse_embeddings("token_table")
        return self._tokens.table()

    def encode_embeddings(self, embeddings: Tensor) -> Conditioning:
        """Encode input embeddings of tokens (n, tokens, width); gradients flow."""
        self._refuse_embeddings("encode_embeddings")
        ids, mask = self._tokens.rows_around(embeddings)
        with self._tokens.in_place(embeddings):
            return self._encoded_rows(ids, mask)

    def pooled_text(self, prompts: Sequence[str]) -> Float32:
        """Return the text encoder's pooled embeddings (n, width), not normalised."""
        parts = [prompts[at : at + _POOLED_BATCH] for at in range(0, len(prompts), _POOLED_BATCH)]
        with self._torch.no_grad():
            # the empty prompt has the width where there are no prompts
            found = [self._pooled(part).float().cpu().numpy() for part in parts or [[""]]]
        return np.asarray(np.concatenate(found)[: len(prompts)])

    def _encoded_rows(self, ids: Tensor, mask: Tensor) -> Conditioning:
        raise NotImplementedError

    def _pooled(self, prompts: Sequence[str]) -> Tensor:
        raise NotImplementedError

    def _refuse_embeddings(self, what: str) -> None:
        """Refuse what needs one table of embeddings, if the family has several."""


class PooledPipeline(Pipeline):
    """A pipeline whose own method encodes prompts, for several encoders, with a pooled part."""

    def encode_prompt(self, prompts: Sequence[str]) -> Conditioning:
        """Encode prompts; ``""`` is the empty prompt. A row never depends on its neighbours."""
        if not prompts:
            raise UsageError("prompts must hold at least one prompt; got none")
        with quiet():
            states, _, pooled, _ = self.pipeline.encode_prompt(
                list(prompts), None, **self._encoding(), do_classifier_free_guidance=False
            )
        return Conditioning(states, pooled)

    def _encoding(self) -> dict[str, object]:
        return {"device": self.device}

    def _pooled_of(self, conditioning: Conditioning) -> Tensor:
        if conditioning.pooled is None:
            raise UsageError(
                f"conditioning of model {self.name} ({self.family}) must have a pooled part; use"
                " encode_prompt, and with_states to change its states"
            )
        return conditioning.pooled.to(self._dtype)

    def _prompted(self, conditioning: Conditioning, guidance: float) -> dict[str, object]:
        given = super()._prompted(conditioning, guidance)
        given["pooled_prompt_embeds"] = self._pooled_of(conditioning)
        if guidance > 1:
            empty = self.unconditional(len(conditioning))
            given["negative_pooled_prompt_embeds"] = self._pooled_of(empty)
        return given

    def _pooled(self, prompts: Sequence[str]) -> Tensor:
        return self.encode_prompt(prompts).pooled

    def _refuse_embeddings(self, what: str) -> None:
        raise UsageError(
            f"model {self.name} ({self.family}) has no {what}: several text encoders read a prompt,"
            " each with a table of its own"
        )
