"""Stable Diffusion 1.x and 2.x, and fine-tunes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from visleak.errors import VisleakError
from visleak.memorization.model import Conditioning, Tensor
from visleak.memorization.models.layout import CLIP_TEXT, TOKENIZERS, VAES, Layout
from visleak.memorization.models.pipeline import Loaded
from visleak.memorization.models.prompting import PromptedPipeline, PromptTokens


class StableDiffusion(PromptedPipeline):
    """A latent diffusion model that one CLIP text encoder leads.

    Attributes:
        unet: the network.
    """

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
    #: MemBench makes and measures with DDIM.
    scheduled: ClassVar[str] = "ddim"

    def __init__(self, loaded: Loaded) -> None:
        super().__init__(loaded)
        self.unet = self.network
        refuse_other_inputs(self.name, self.unet)
        encoder, tokenizer = self.pipeline.text_encoder, self.pipeline.tokenizer
        length = min(tokenizer.model_max_length, encoder.config.max_position_embeddings)
        self._tokens = PromptTokens(self.name, tokenizer, encoder, int(length))
        self._masked = bool(getattr(encoder.config, "use_attention_mask", False))

    @classmethod
    def prepare(cls, pipeline: Any, scheduler: str) -> None:
        """Give a pipeline its scheduler; DDIM is made of the settings of its own."""
        if scheduler == "ddim":
            give_ddim(pipeline)

    def encode_prompt(self, prompts: Sequence[str]) -> Conditioning:
        """Encode prompts; ``""`` is the empty prompt. A row never depends on its neighbours."""
        rows = self._tokens.rows(prompts)
        return self._encoded_rows(rows.ids, rows.mask)

    def _encoded_rows(self, ids: Tensor, mask: Tensor) -> Conditioning:
        return Conditioning(self._output(ids, mask).last_hidden_state)

    def _output(self, ids: Tensor, mask: Tensor) -> Any:
        return self.pipeline.text_encoder(ids, attention_mask=mask if self._masked else None)

    def _pooled(self, prompts: Sequence[str]) -> Tensor:
        """Return outputs at the end token, projected where the encoder projects."""
        rows = self._tokens.rows(prompts)
        output = self._output(rows.ids, rows.mask)
        projected = output.get("text_embeds")
        return output.pooler_output if projected is None else projected


def give_ddim(pipeline: Any) -> None:
    """Give a latent diffusion pipeline a DDIM sampler made of its own scheduler's settings."""
    import diffusers

    own = pipeline.scheduler.config
    # what the constructor of StableDiffusionPipeline makes of settings that do not say
    pipeline.scheduler = diffusers.DDIMScheduler.from_config(
        own, clip_sample=False, steps_offset=own.get("steps_offset", 1)
    )


def refuse_other_inputs(name: str, unet: Any) -> None:
    """Refuse a network that reads more than noise, a timestep and a prompt.

    Raises:
        VisleakError: for inpainting, for editing, or with guidance distilled into it.
    """
    config = unet.config
    if config.in_channels != config.out_channels or config.time_cond_proj_dim is not None:
        raise VisleakError(
            f"model {name}: its unet reads more than noise and a prompt (inpainting, editing or"
            " distilled guidance); a plain text-to-image model is needed"
        )
