"""A Stable Diffusion of 16x16 pixels, of the classes of diffusers and transformers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from diffusers import AutoencoderTiny, DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel
from pictures import SIDE, Pixels
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import CLIPTextConfig, CLIPTextModel, PreTrainedTokenizerFast

#: Token positions of a prompt, width of the text encoder, and knots of the encoder's curve.
POSITIONS, WIDTH, KNOTS = 40, 64, 16

BEGIN, END, UNKNOWN = "<bos>", "<eos>", "<unk>"


def word_tokenizer(
    words: Sequence[str], special: Sequence[str], template: str, unknown: str
) -> Any:
    """Return a tokenizer with one token per word and digit, in lower case.

    Args:
        words: the vocabulary.
        special: first tokens of it.
        template: of a text, such as ``"<bos> $A <eos>"``.
        unknown: the token of all other words.

    Returns:
        a ``tokenizers.Tokenizer``.
    """
    ids = {word: at for at, word in enumerate((*special, *words))}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token=unknown))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True)]
    )
    around = [(token, ids[token]) for token in special if token in template.split()]
    tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=around)
    return tokenizer


def prompt_tokenizer(words: Sequence[str]) -> PreTrainedTokenizerFast:
    """Return the pipeline's tokenizer; it pads with its end token, as in Stable Diffusion 1."""
    return PreTrainedTokenizerFast(
        tokenizer_object=word_tokenizer(words, (BEGIN, END, UNKNOWN), f"{BEGIN} $A {END}", UNKNOWN),
        bos_token=BEGIN,
        eos_token=END,
        pad_token=END,
        unk_token=UNKNOWN,
        model_max_length=POSITIONS,
    )


def text_encoder(tokenizer: PreTrainedTokenizerFast) -> CLIPTextModel:
    """Return an untrained CLIP text encoder of two layers."""
    return CLIPTextModel(
        CLIPTextConfig(
            vocab_size=len(tokenizer),
            hidden_size=WIDTH,
            intermediate_size=4 * WIDTH,
            projection_dim=WIDTH,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=POSITIONS,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


def denoiser() -> UNet2DConditionModel:
    """Return an untrained U-Net with cross-attention at 8x8 and 4x4."""
    return UNet2DConditionModel(
        sample_size=SIDE,
        in_channels=3,
        out_channels=3,
        block_out_channels=(32, 64, 64),
        layers_per_block=1,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=WIDTH,
        attention_head_dim=4,
        norm_num_groups=8,
    )


def scheduler() -> DDIMScheduler:
    """Return DDIM with the noise schedule of Stable Diffusion 1."""
    return DDIMScheduler(
        num_train_timesteps=1000,
        beta_schedule="scaled_linear",
        beta_start=0.00085,
        beta_end=0.012,
        steps_offset=1,
        set_alpha_to_one=False,
        clip_sample=False,
    )


def to_latents(pictures: Pixels) -> torch.Tensor:
    """Return the latents that `autoencoder` decodes to these images.

    Its decoder first bends a latent z to ``3 tanh(z / 3)``; this is the inverse.

    Args:
        images: ``uint8`` (n, 16, 16, 3).

    Returns:
        ``float32`` (n, 3, 16, 16), about -1.04 to 1.04.
    """
    scaled = pictures.astype(np.float64).transpose(0, 3, 1, 2) / 127.5 - 1
    return torch.from_numpy((3 * np.arctanh(scaled / 3)).astype(np.float32))


def autoencoder() -> AutoencoderTiny:
    """Return an autoencoder whose latents are the pixels, with fixed weights.

    The decoder is exact; the encoder interpolates `to_latents` linearly between `KNOTS` knots, with
    an error below .001.
    """
    model = AutoencoderTiny(
        latent_channels=3,
        encoder_block_out_channels=(3 * KNOTS,),
        decoder_block_out_channels=(3,),
        num_encoder_blocks=(1,),
        num_decoder_blocks=(1,),
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        _set_decoder(model.decoder.layers)
        _set_encoder(model.encoder.layers)
    return model.requires_grad_(False)


def _set_decoder(layers: torch.nn.Sequential) -> None:
    """Map x of -1 to 1 to x + 3, which ReLU does not change, and at the end to (x + 1) / 2."""
    first, last = layers[0], layers[-1]
    for colour in range(3):
        first.weight[colour, colour, 1, 1] = 1
        last.weight[colour, colour, 1, 1] = 0.5
    first.bias.fill_(3)
    last.bias.fill_(-1)


def _set_encoder(layers: torch.nn.Sequential) -> None:
    """Sum ReLUs that start at knots: a piecewise linear curve."""
    knots = np.linspace(-1, 1, KNOTS + 1)
    slopes = np.diff(3 * np.arctanh(knots / 3)) / np.diff(knots)
    rises = np.diff(slopes, prepend=0)
    first, last = layers[0], layers[-1]
    for colour in range(3):
        for at in range(KNOTS):
            channel = colour * KNOTS + at
            first.weight[channel, colour, 1, 1] = 2
            first.bias[channel] = -1 - knots[at]
            last.weight[colour, channel, 1, 1] = rises[at]
        last.bias[colour] = 3 * np.arctanh(-1 / 3)


def pipeline(
    tokenizer: PreTrainedTokenizerFast, encoder: CLIPTextModel, unet: UNet2DConditionModel
) -> StableDiffusionPipeline:
    """Return a stock pipeline of trained parts."""
    whole = StableDiffusionPipeline(
        vae=autoencoder(),
        text_encoder=encoder.eval(),
        tokenizer=tokenizer,
        unet=unet.eval(),
        scheduler=scheduler(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    whole.set_progress_bar_config(disable=True)
    return whole
