"""Stable Diffusion 3: flow matching by a transformer.

A network of flow matching predicts the velocity of the straight way from image to noise,
v = noise - image. The noise that it stands for is latents + (1 - sigma) v, which at the first step
(sigma = 1) is the latents themselves whatever the prompt: the distance of noises in MemBench's
equation 4 is identically 0 there. The distance of *velocities* takes its place, which equals the
distance of the images that they stand for: image = latents - sigma v, so || d image || = || d v ||
at sigma = 1.
"""

from __future__ import annotations

from typing import Any, ClassVar

from visleak.errors import UsageError, VisleakError
from visleak.memorization.model import Conditioning, Tensor
from visleak.memorization.models.layout import CLIP_TEXT, T5_TEXT, TOKENIZERS, VAES, Layout
from visleak.memorization.models.pipeline import Loaded
from visleak.memorization.models.prompting import PooledPipeline, PromptTokens


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

    def __init__(self, loaded: Loaded) -> None:
        super().__init__(loaded)
        encoder, tokenizer = self.pipeline.text_encoder, self.pipeline.tokenizer
        length = int(self.pipeline.tokenizer_max_length)
        self._tokens = PromptTokens(self.name, tokenizer, encoder, length)

    def output_in_words(self) -> str:
        """Return what the network's raw output is, in words."""
        return (
            "a velocity v = noise - image (flow matching); D is the distance of velocities, because"
            " the noises they stand for are all equal at the first step"
        )

    def _network(self) -> Any:
        return self.pipeline.transformer

    def _prediction(self) -> str:
        scheduler = type(self.pipeline.scheduler).__name__
        if not scheduler.startswith("FlowMatch"):
            raise VisleakError(
                f"model {self.name}: its scheduler must be one of flow matching; got {scheduler}"
            )
        return "flow"

    def _timestep_options(self) -> dict[str, Any]:
        config = self.pipeline.scheduler.config
        if not config.get("use_dynamic_shifting"):
            return {}
        from diffusers.pipelines.stable_diffusion_3.pipeline_stable_diffusion_3 import (
            calculate_shift,
        )

        patch = self.network.config.patch_size
        tokens = (self.shape[1] // patch) * (self.shape[2] // patch)
        return {
            "mu": calculate_shift(
                tokens,
                config.get("base_image_seq_len", 256),
                config.get("max_image_seq_len", 4096),
                config.get("base_shift", 0.5),
                config.get("max_shift", 1.16),
            )
        }

    def as_epsilon(self, output: Tensor, latents: Tensor, timestep: float) -> Tensor:
        """Refuse: see the module.

        Raises:
            UsageError: always.
        """
        raise UsageError(
            f"model {self.name} predicts a velocity (flow matching), and the noises that velocities"
            " stand for are all equal at the first step; compare raw outputs (output raw)"
        )

    def _answer(self, inputs: Tensor, moment: Tensor, conditioning: Conditioning) -> Tensor:
        return self.network(
            hidden_states=inputs,
            timestep=moment.expand(len(inputs)),
            encoder_hidden_states=conditioning.states.to(self._dtype),
            pooled_projections=self._pooled_of(conditioning),
            return_dict=False,
        )[0]

    def _encoding(self) -> dict[str, Any]:
        return {"prompt_3": None, "device": self.device}
