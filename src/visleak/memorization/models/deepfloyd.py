"""DeepFloyd IF, stage 1: pixels of 64 by 64, a T5 text encoder, learned variance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from visleak.errors import VisleakError
from visleak.memorization.model import Conditioning, Tensor
from visleak.memorization.models.layout import T5_TEXT, TOKENIZERS, Layout
from visleak.memorization.models.pipeline import Loaded
from visleak.memorization.models.prompting import PromptedPipeline, PromptTokens

#: Tokens of a row: T5 reads more, but the model was trained with so many.
_LENGTH = 77


class DeepFloyd(PromptedPipeline):
    """A diffusion model of pixels that a T5 text encoder leads.

    Its network predicts noise and variance; the noise is what is measured. Prompts are put in
    lower case, as the pipeline does. Its sampler draws new noise at every step: an image is one of
    its seed, whose first draw is the noise of the first step (in fp32 that of ``noises``).

    Attributes:
        unet: the network.
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

    def __init__(self, loaded: Loaded) -> None:
        super().__init__(loaded)
        self.unet = self.network
        config = self.unet.config
        if config.out_channels != 2 * config.in_channels:
            raise VisleakError(
                f"model {self.name}: its unet must give noise and variance,"
                f" {2 * config.in_channels} channels; it gives {config.out_channels}"
            )
        encoder, tokenizer = self.pipeline.text_encoder, self.pipeline.tokenizer
        # the stack inside has a module of its own for the embeddings that both share
        table = encoder.encoder.get_input_embeddings()
        self._tokens = PromptTokens(self.name, tokenizer, encoder, _LENGTH, _cleaned, table)

    def output_in_words(self) -> str:
        """Return what the network's raw output is, in words."""
        return f"{super().output_in_words()}, without the variance beside it"

    def encode_prompt(self, prompts: Sequence[str]) -> Conditioning:
        """Encode prompts; ``""`` is the empty prompt. A row never depends on its neighbours."""
        rows = self._tokens.rows(prompts)
        return self._encoded_rows(rows.ids, rows.mask)

    def _encoded_rows(self, ids: Tensor, mask: Tensor) -> Conditioning:
        # the text encoder is masked, the network is not, as in the pipeline
        output = self.pipeline.text_encoder(ids, attention_mask=mask)
        return Conditioning(output.last_hidden_state.to(self._dtype))

    def _pooled(self, prompts: Sequence[str]) -> Tensor:
        # T5 has no pooled output: the mean state of the tokens that count stands for it, as in
        # Sentence-T5 (Ni et al. 2022); Algorithm 3 of MemBench leaves the encoder open
        rows = self._tokens.rows(prompts)
        states = self._encoded_rows(rows.ids, rows.mask).states.float()
        counts = rows.mask.unsqueeze(-1).to(states.dtype)
        return (states * counts).sum(1) / counts.sum(1)

    def _noised(self, seeds: Sequence[int]) -> dict[str, Any]:
        # the pipeline takes no noises: it draws them itself, from generators at their beginning
        return {"generator": [self._torch.Generator().manual_seed(int(each)) for each in seeds]}


def _cleaned(prompt: str) -> str:
    """Return a prompt as ``IFPipeline.encode_prompt`` cleans it."""
    return prompt.lower().strip()
