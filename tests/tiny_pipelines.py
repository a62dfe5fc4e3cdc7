"""Pipelines with random weights, of real classes and a few thousand parameters."""

import json

import numpy as np

import toy_clip
from visleak.diffusion.pipeline import quiet

WORDS = ("a", "photo", "of", "cat", "dog", "red", "house", "!", "the", "sun", "on", "hill")
LENGTH = 10

#: The schedule of Stable Diffusion.
SCHEDULE = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}
SCHEDULE |= {"steps_offset": 1}


def word_tokenizer(pad="<end>", length=LENGTH):
    """Return a tokenizer of whole words that puts begin and end around."""
    marks = {"bos_token": "<go>", "eos_token": "<end>", "unk_token": "<odd>", "pad_token": pad}
    return toy_clip.whole_words([*WORDS, "<odd>", "<go>", "<end>"], length, marks)


def clip_text(tokenizer, width=32, projected=False, **more):
    """Return a CLIP text encoder for a tokenizer."""
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

    names = ("bos_token_id", "eos_token_id", "pad_token_id")
    marks = {name: getattr(tokenizer, name) for name in names}
    shape = {"vocab_size": len(tokenizer), "hidden_size": width, "intermediate_size": 2 * width}
    shape |= {"num_hidden_layers": 2, "num_attention_heads": 4, "projection_dim": 24}
    shape |= {"max_position_embeddings": tokenizer.model_max_length}
    config = CLIPTextConfig(**shape, **marks, **more)
    return (CLIPTextModelWithProjection if projected else CLIPTextModel)(config)


def unet(width=32, channels=4, size=8, **more):
    """Return a network of two resolutions."""
    from diffusers import UNet2DConditionModel

    shape = {"sample_size": size, "in_channels": channels, "out_channels": channels}
    shape |= {"layers_per_block": 1, "block_out_channels": (8, 16), "norm_num_groups": 4}
    attention = {"cross_attention_dim": width, "attention_head_dim": 2}
    down = {"down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D")}
    up = {"up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D")}
    return UNet2DConditionModel(**(shape | attention | down | up | more))


def vae(channels=4, **more):
    """Return an autoencoder that halves both sides."""
    from diffusers import AutoencoderKL

    return AutoencoderKL(
        block_out_channels=(8, 16),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=channels,
        norm_num_groups=4,
        **more,
    )


def stable_diffusion(prediction="epsilon", pad="<end>", **more):
    """Return a Stable Diffusion, with the scheduler of version 1."""
    import torch
    from diffusers import PNDMScheduler, StableDiffusionPipeline

    torch.manual_seed(3)
    tokenizer = word_tokenizer(pad)
    parts = {
        "vae": vae(),
        "text_encoder": clip_text(tokenizer),
        "tokenizer": tokenizer,
        "unet": unet(),
        "scheduler": PNDMScheduler(
            **SCHEDULE, prediction_type=prediction, skip_prk_steps=True, set_alpha_to_one=False
        ),
    }
    return StableDiffusionPipeline(
        **(parts | more), safety_checker=None, feature_extractor=None, requires_safety_checker=False
    )


def saved(make, folder, **options):
    """Make a pipeline, save it without bars and notes, and return its folder."""
    with quiet():
        make().save_pretrained(str(folder), **options)
    return folder


def stock(folder, **parts):
    """Return a folder's pipeline as diffusers loads it."""
    from diffusers import DiffusionPipeline

    with quiet():
        pipeline = DiffusionPipeline.from_pretrained(str(folder), local_files_only=True, **parts)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def stock_images(pipeline, prompts, seeds, **options):
    """Return the images (n, height, width, 3) that diffusers makes of prompts."""
    import torch

    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    with quiet():
        images = pipeline(prompts, generator=generators, **options).images
    return np.stack([np.asarray(image) for image in images])


def change_index(folder, **entries):
    """Write other entries into ``model_index.json``."""
    file = folder / "model_index.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | entries))


def t5(width=32):
    """Return a T5 text encoder and its tokenizer, whose words are pieces."""
    from transformers import T5Config, T5EncoderModel, T5Tokenizer

    marks = ["<pad>", "</s>", "<unk>", "▁"]
    pieces = [*marks, *(f"▁{word}" for word in WORDS), *"abcdefghijklmnopqrstuvwxyz"]
    tokenizer = T5Tokenizer(
        vocab=[(piece, -float(rank)) for rank, piece in enumerate(pieces)], extra_ids=0
    )
    shape = {"vocab_size": len(tokenizer) + 5, "d_model": width, "d_kv": 8, "d_ff": 2 * width}
    shape |= {"num_layers": 2, "num_heads": 4, "feed_forward_proj": "gated-gelu"}
    return T5EncoderModel(T5Config(**shape)), tokenizer


def deepfloyd(**more):
    """Return a DeepFloyd IF of stage 1."""
    import torch
    from diffusers import DDPMScheduler, IFPipeline

    torch.manual_seed(4)
    encoder, tokenizer = t5()
    blocks = {
        "down_block_types": ("ResnetDownsampleBlock2D", "SimpleCrossAttnDownBlock2D"),
        "mid_block_type": "UNetMidBlock2DSimpleCrossAttn",
        "up_block_types": ("SimpleCrossAttnUpBlock2D", "ResnetUpsampleBlock2D"),
    }
    how = {"resnet_time_scale_shift": "scale_shift", "act_fn": "gelu"}
    schedule = {"beta_schedule": "squaredcos_cap_v2", "variance_type": "learned_range"}
    parts = {
        "tokenizer": tokenizer,
        "text_encoder": encoder,
        "unet": unet(channels=3, size=8, out_channels=6, encoder_hid_dim=32, **blocks, **how),
        "scheduler": DDPMScheduler(**schedule, thresholding=True, sample_max_value=1.5),
    }
    without = dict.fromkeys(("safety_checker", "feature_extractor", "watermarker"))
    return IFPipeline(**(parts | more), **without, requires_safety_checker=False)


def stable_diffusion_xl(zeros=True):
    """Return a Stable Diffusion XL, whose two text encoders pad differently."""
    import torch
    from diffusers import EulerDiscreteScheduler, StableDiffusionXLPipeline

    torch.manual_seed(5)
    first, second = word_tokenizer(), word_tokenizer("!")
    return StableDiffusionXLPipeline(
        vae=vae(),
        text_encoder=clip_text(first, 32),
        text_encoder_2=clip_text(second, 16, projected=True),
        tokenizer=first,
        tokenizer_2=second,
        unet=unet(
            48,
            addition_embed_type="text_time",
            addition_time_embed_dim=8,
            projection_class_embeddings_input_dim=6 * 8 + 24,
        ),
        scheduler=EulerDiscreteScheduler(**SCHEDULE, timestep_spacing="leading"),
        force_zeros_for_empty_prompt=zeros,
        add_watermarker=False,
    )


def stable_diffusion_3(with_t5=True, **schedule):
    """Return a Stable Diffusion 3, with its T5 or without."""
    import torch
    from diffusers import (
        FlowMatchEulerDiscreteScheduler,
        SD3Transformer2DModel,
        StableDiffusion3Pipeline,
    )

    torch.manual_seed(6)
    first, second = word_tokenizer(), word_tokenizer("!")
    encoder, tokenizer = t5(64) if with_t5 else (None, None)
    shape = {"sample_size": 8, "patch_size": 2, "in_channels": 4, "out_channels": 4}
    shape |= {"num_layers": 2, "attention_head_dim": 8, "num_attention_heads": 4}
    shape |= {"caption_projection_dim": 32, "joint_attention_dim": 64, "pooled_projection_dim": 48}
    return StableDiffusion3Pipeline(
        transformer=SD3Transformer2DModel(**shape, pos_embed_max_size=8),
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0, **schedule),
        vae=vae(shift_factor=0.06, scaling_factor=1.5),
        text_encoder=clip_text(first, 32, projected=True),
        tokenizer=first,
        text_encoder_2=clip_text(second, 32, projected=True),
        tokenizer_2=second,
        text_encoder_3=encoder,
        tokenizer_3=tokenizer,
    )


#: What makes a pipeline, by name.
MAKERS = {
    "sd1": stable_diffusion,
    "sd2": lambda: stable_diffusion("v_prediction", "!"),
    "sample": lambda: stable_diffusion("sample"),
    "sdxl": stable_diffusion_xl,
    "sd3": stable_diffusion_3,
    "if": deepfloyd,
}
