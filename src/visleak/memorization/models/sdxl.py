"""Stable Diffusion XL, and fine-tunes of it."""

from __future__ import annotations

from typing import Any, ClassVar

from visleak.memorization.model import Conditioning, Tensor
from visleak.memorization.models.layout import CLIP_TEXT, TOKENIZERS, VAES, Layout
from visleak.memorization.models.pipeline import Loaded
from visleak.memorization.models.prompting import PooledPipeline, PromptTokens
from visleak.memorization.models.stable_diffusion import give_ddim, refuse_other_inputs


class StableDiffusionXL(PooledPipeline):
    """A latent diffusion model that two CLIP text encoders lead.

    The network is told that pictures are as large as the model makes them, and uncropped. D's
    empty prompt is the encoded string ``""``; guidance leads away from zeros where the pipeline
    is set to do so, as the published one is.

    Attributes:
        unet: the network.
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

    def __init__(self, loaded: Loaded) -> None:
        super().__init__(loaded)
        self.unet = self.network
        refuse_other_inputs(self.name, self.unet)
        encoder, tokenizer = self.pipeline.text_encoder, self.pipeline.tokenizer
        length = int(tokenizer.model_max_length)
        self._tokens = PromptTokens(self.name, tokenizer, encoder, length)

    @classmethod
    def prepare(cls, pipeline: Any, scheduler: str) -> None:
        """Give a pipeline its scheduler; DDIM is made of the settings of its own."""
        if scheduler == "ddim":
            give_ddim(pipeline)

    def unconditional(self, count: int) -> Conditioning:
        """Return what guidance leads away from: zeros, or the empty prompt."""
        empty = super().unconditional(count)
        if not self.pipeline.config.force_zeros_for_empty_prompt:
            return empty
        return Conditioning(
            self._torch.zeros_like(empty.states), self._torch.zeros_like(empty.pooled)
        )

    def _answer(self, inputs: Tensor, moment: Tensor, conditioning: Conditioning) -> Tensor:
        size = self.image_size()
        row = self._torch.tensor([*size, 0, 0, *size], dtype=self._dtype, device=self.device)
        return self.unet(
            inputs,
            moment,
            encoder_hidden_states=conditioning.states.to(self._dtype),
            added_cond_kwargs={
                "text_embeds": self._pooled_of(conditioning),
                "time_ids": row.repeat(len(inputs), 1),
            },
            return_dict=False,
        )[0]
