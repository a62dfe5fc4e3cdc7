"""Stable Diffusion 1, 2, XL and 3, DeepFloyd IF, and fine-tunes of them.

A network of flow matching (Stable Diffusion 3) predicts the velocity of the straight way from image
to noise, v = noise - image. The noise that it stands for is latents + (1 - sigma) v, which at the
first step (sigma = 1) is the latents themselves whatever the prompt: the distance of noises in
MemBench's equation 4 is identically 0 there. The distance of *velocities* takes its place, which
equals the distance of the images that they stand for: image = latents - sigma v, so
|| d image || = || d v || at sigma = 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from visleak.diffusion.model import Conditioning, Tensor
from visleak.diffusion.pipeline import (
    CLIP_TEXT,
    T5_TEXT,
    TOKENIZERS,
    VAES,
    Layout,
    Pipeline,
    PooledPipeline,
    PromptTokens,
)
from visleak.errors import UsageError, VisleakError

if TYPE_CHECKING:
    from diffusers import ModelMixin
    from transformers.utils import ModelOutput


class StableDiffusion(Pipeline):
    """A latent diffusion model that one CLIP text encoder leads."""

    family: ClassVar[str] = "sd"
    layout: ClassVar[Layout] = Layout(
        {
            "vae": VAES,
            "text_encoder": CLIP_TEXT,
            "tokenizer": TOKENIZERS,
            "unet": ("UNet2DConditionModel",),
            "scheduler": (),
        }
    )
    scheduled: ClassVar[str] = "ddim"  #: as MemBench makes and measures
    has_ddim: ClassVar[bool] = True

    def _length(self) -> int:
        most = self.pipeline.text_encoder.config.max_position_embeddings
        return min(super()._length(), int(most))

    def _encoded_rows(self, ids: Tensor, mask: Tensor) -> Conditioning:
        return Conditioning(self._output(ids, mask).last_hidden_state)

    def _output(self, ids: Tensor, mask: Tensor) -> ModelOutput:
        encoder = self.pipeline.text_encoder
        masked = getattr(encoder.config, "use_attention_mask", False)
        return encoder(ids, attention_mask=mask if masked else None)

    def _pooled(self, prompts: Sequence[str]) -> Tensor:
        """Return outputs at the end token, projected where the encoder projects."""
        output = self._output(*self._tokens.rows(prompts))
        projected = output.get("text_embeds")
        return output.pooler_output if projected is None else projected


class StableDiffusionXL(PooledPipeline):
    """A latent diffusion model that two CLIP text encoders lead.

    The network is conditioned on images being as large as the model makes them, and uncropped. D's
    empty prompt is the encoded string ``""``; guidance leads away from zeros where the pipeline
    is set to do so, as the published one is.
    """

    family: ClassVar[str] = "sdxl"
    layout: ClassVar[Layout] = Layout(
        {
            "vae": VAES,
            "text_encoder": CLIP_TEXT,
            "text_encoder_2": CLIP_TEXT[1:],
            "tokenizer": TOKENIZERS,
            "tokenizer_2": TOKENIZERS,
            "unet": ("UNet2DConditionModel",),
            "scheduler": (),
        }
    )
    has_ddim: ClassVar[bool] = True

    def unconditional(self, count: int) -> Conditioning:
        """Return what guidance leads away from: zeros, or the empty prompt."""
        empty = super().unconditional(count)
        if not self.pipeline.config.force_zeros_for_empty_prompt:
            return empty
        return Conditioning(
            self._torch.zeros_like(empty.states), self._torch.zeros_like(empty.pooled)
        )

    def _output_of(self, inputs: Tensor, moment: Tensor, conditioning: Conditioning) -> Tensor:
        size = self.image_size()
        row = self._torch.tensor([*size, 0, 0, *size], dtype=self._dtype, device=self.device)
        return self.network(
            inputs,
            moment,
            encoder_hidden_states=conditioning.states.to(self._dtype),
            added_cond_kwargs={
                "text_embeds": self._pooled_of(conditioning),
                "time_ids": row.repeat(len(inputs), 1),
            },
            return_dict=False,
        )[0]


class StableDiffusion3(PooledPipeline):
    """A flow-matching model that two CLIP text encoders lead, and a T5 if it is there."""

    family: ClassVar[str] = "sd3"
    layout: ClassVar[Layout] = Layout(
        {
            "vae": VAES,
            "text_encoder": CLIP_TEXT[1:],
            "text_encoder_2": CLIP_TEXT[1:],
            "text_encoder_3": T5_TEXT,
            "tokenizer": TOKENIZERS,
            "tokenizer_2": TOKENIZERS,
            "tokenizer_3": TOKENIZERS,
            "transformer": ("SD3Transformer2DModel",),
            "scheduler": (),
        },
        optional=frozenset({"text_encoder_3", "tokenizer_3"}),
    )

    def _length(self) -> int:
        return int(self.pipeline.tokenizer_max_length)

    def output_in_words(self) -> str:
        """Return what the network's raw output is, in words."""
        return (
            "a velocity v = noise - image (flow matching); D is the distance of velocities, because"
            " the noises they stand for are all equal at the first step"
        )

    def _network(self) -> ModelMixin:
        return self.pipeline.transformer

    def _prediction(self) -> str:
        scheduler = type(self.pipeline.scheduler).__name__
        if not scheduler.startswith("FlowMatch"):
            raise VisleakError(
                f"model {self.name}: its scheduler must be one of flow matching; got {scheduler}"
            )
        return "flow"

    def _timestep_options(self) -> dict[str, object]:
        config = self.pipeline.scheduler.config
        if not config.get("use_dynamic_shifting"):
            return {}
        from diffusers.pipelines.stable_diffusion_3 import pipeline_stable_diffusion_3 as pipeline

        patch = self.network.config.patch_size
        tokens = (self.shape[1] // patch) * (self.shape[2] // patch)
        usual = {
            "base_image_seq_len": 256,
            "max_image_seq_len": 4096,
            "base_shift": 0.5,
            "max_shift": 1.16,
        }
        shape = [config.get(name, value) for name, value in usual.items()]
        return {"mu": pipeline.calculate_shift(tokens, *shape)}

    def as_epsilon(self, output: Tensor, latents: Tensor, timestep: float) -> Tensor:
        """Refuse: see the module."""
        raise UsageError(
            f"model {self.name} predicts a velocity (flow matching), and the noises that velocities"
            " stand for are all equal at the first step; compare raw outputs (output raw)"
        )

    def _output_of(self, inputs: Tensor, moment: Tensor, conditioning: Conditioning) -> Tensor:
        return self.network(
            hidden_states=inputs,
            timestep=moment.expand(len(inputs)),
            encoder_hidden_states=conditioning.states.to(self._dtype),
            pooled_projections=self._pooled_of(conditioning),
            return_dict=False,
        )[0]

    def _encoding(self) -> dict[str, object]:
        return {"prompt_3": None, "device": self.device}


#: Tokens of a row: T5 reads more, but the model was trained with this many.
_LENGTH = 77


class DeepFloyd(Pipeline):
    """A diffusion model of pixels that a T5 text encoder leads.

    Its network predicts noise and variance; the noise is what is measured. Prompts are put in
    lower case, as the pipeline does. Its sampler draws new noise at every step: an image is one of
    its seed, whose first draw is the noise of the first step (in fp32 that of ``noises``).
    """

    family: ClassVar[str] = "if"
    layout: ClassVar[Layout] = Layout(
        {
            "text_encoder": T5_TEXT,
            "tokenizer": TOKENIZERS,
            "unet": ("UNet2DConditionModel",),
            "scheduler": (),
        }
    )

    def _network(self) -> ModelMixin:
        config = self.pipeline.unet.config
        if config.out_channels != 2 * config.in_channels:
            raise VisleakError(
                f"model {self.name}: its unet must give noise and variance,"
                f" {2 * config.in_channels} channels; it gives {config.out_channels}"
            )
        return self.pipeline.unet

    def _prompt_tokens(self) -> PromptTokens:
        encoder, tokenizer = self.pipeline.text_encoder, self.pipeline.tokenizer
        # the stack inside has a module of its own for the embeddings that both share
        table = encoder.encoder.get_input_embeddings()
        # prompts are cleaned as ``IFPipeline.encode_prompt`` does it
        return PromptTokens(
            *(self.name, tokenizer, encoder, _LENGTH), lambda prompt: prompt.lower().strip(), table
        )

    def output_in_words(self) -> str:
        """Return what the network's raw output is, in words."""
        return f"{super().output_in_words()}, without the variance beside it"

    def _encoded_rows(self, ids: Tensor, mask: Tensor) -> Conditioning:
        # the text encoder is masked, the network is not, as in the pipeline
        output = self.pipeline.text_encoder(ids, attention_mask=mask)
        return Conditioning(output.last_hidden_state.to(self._dtype))

    def _pooled(self, prompts: Sequence[str]) -> Tensor:
        # T5 has no pooled output: the mean state of the tokens that count stands for it, as in
        # Sentence-T5 (Ni et al. 2022); Algorithm 3 of MemBench leaves the encoder open
        ids, mask = self._tokens.rows(prompts)
        states = self._encoded_rows(ids, mask).states.float()
        counts = mask.unsqueeze(-1).to(states.dtype)
        return (states * counts).sum(1) / counts.sum(1)

    def _noised(self, seeds: Sequence[int]) -> dict[str, object]:
        # the pipeline takes no noises: it draws them itself, from generators at their beginning
        return {"generator": [self._torch.Generator().manual_seed(int(each)) for each in seeds]}
