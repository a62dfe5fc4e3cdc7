"""Prompts per second scored by D, and its overhead over the plain network.

usage: python benchmarks/memorization_throughput.py [--prompts N] [--batch N]
       python benchmarks/memorization_throughput.py --gpu [--batch N]

Writes memorization_throughput.json (with --gpu: memorization_throughput_gpu.json). Weights are
random: they change no timing.

On a processor: a small Stable Diffusion, and the processor time of scoring N prompts relative to a
loop of calls of its network on as many rows with the same batch size. The overhead is the encoding
of prompts, common noises and differences in float64. Rounds of both alternate, and the median ratio
is reported, so that other work on the machine has little influence.

With --gpu: the network of Stable Diffusion 1.4 (860 million parameters, latents of 64 x 64) in half
precision; prompts per second, and the share of the device's dense half-precision peak, by the
operations that torch counts in one call.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from record import Bar, write

from visleak.diffusion import load_model
from visleak.memorization.scores import TriggerScore
from visleak.memorization.settings import ScoreSettings

WORDS = tuple(f"word{number}" for number in range(500))

#: Dense half-precision operations per second, as stated by the makers (TFLOP/s).
PEAKS = {"A100": 312, "H100": 989, "H200": 989, "L4": 121, "V100": 125, "4090": 165, "T4": 65}


def tokenizer(length: int) -> Any:
    """Return a tokenizer of whole words."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: number for number, word in enumerate((*WORDS, "<odd>", "<go>", "<end>"))}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<odd>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.TemplateProcessing(
        single="<go> $A <end>",
        special_tokens=[(word, vocabulary[word]) for word in ("<go>", "<end>")],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<go>", eos_token="<end>", unk_token="<odd>",
        pad_token="<end>", model_max_length=length,
    )  # fmt: skip


def saved_pipeline(folder: Path, *, large: bool) -> Path:
    """Write a Stable Diffusion with random weights: small, or with the shapes of version 1.4."""
    from diffusers import (
        AutoencoderTiny,
        DDIMScheduler,
        StableDiffusionPipeline,
        UNet2DConditionModel,
    )
    from transformers import CLIPTextConfig, CLIPTextModel

    words = tokenizer(77 if large else 40)
    width = 768 if large else 64
    text = CLIPTextConfig(
        vocab_size=49_408 if large else len(words),
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=12 if large else 2,
        num_attention_heads=12 if large else 4,
        max_position_embeddings=words.model_max_length,
        bos_token_id=words.bos_token_id,
        eos_token_id=words.eos_token_id,
        pad_token_id=words.pad_token_id,
    )
    # the library's default is the configuration of version 1.4, except for two numbers
    small = {
        "block_out_channels": (32, 64, 64),
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        "layers_per_block": 1,
    }
    network = UNet2DConditionModel(
        sample_size=64 if large else 16, cross_attention_dim=width, **({} if large else small)
    )
    StableDiffusionPipeline(
        vae=AutoencoderTiny(),
        text_encoder=CLIPTextModel(text),
        tokenizer=words,
        unet=network,
        scheduler=DDIMScheduler(steps_offset=1, clip_sample=False, set_alpha_to_one=False),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    ).save_pretrained(str(folder))
    return folder


def prompts(count: int) -> list[str]:
    """Return distinct prompts of eight words."""
    return [
        " ".join(WORDS[(7 * number + 31 * place * (1 + number // 500)) % 500] for place in range(7))
        + f" word{number % 500} {number}"
        for number in range(count)
    ]


def bare_loop(model: Any, count: int, batch: int) -> Callable[[], None]:
    """Return a loop of calls of the network only, on as many rows as D needs."""
    states = model.encode_prompt(["word1 word2"]).states
    noise = model.noises([0])

    def loop() -> None:
        with torch.no_grad():
            for start in range(0, count, batch):
                rows = min(batch, count - start)
                model.pipeline.unet(
                    noise.to(states.dtype).expand(rows, *noise.shape[1:]),
                    981,
                    encoder_hidden_states=states.expand(rows, *states.shape[1:]),
                )
            model.pipeline.unet(noise.to(states.dtype), 981, encoder_hidden_states=states)
        if model.device.startswith("cuda"):
            torch.cuda.synchronize()

    return loop


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Return wall and processor seconds of some work."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def measured(model: Any, count: int, batch: int, rounds: int) -> dict[str, Any]:
    """Return the seconds of D and of the plain loop, in alternating rounds."""
    texts = prompts(count)

    def scored() -> None:
        TriggerScore(model, ScoreSettings(batch=batch))(texts)

    bare = bare_loop(model, count, batch)
    for work in (scored, bare):
        work()
    d, network = zip(*((timed(scored), timed(bare)) for _ in range(rounds)), strict=True)
    on_gpu = model.device.startswith("cuda")
    ratios = [
        a[0 if on_gpu else 1] / b[0 if on_gpu else 1] for a, b in zip(d, network, strict=True)
    ]
    seconds = min(each[0] for each in d)
    return {
        "prompts": count,
        "batch": batch,
        "parameters of the network": sum(p.numel() for p in model.pipeline.unet.parameters()),
        "prompts/s": count / seconds,
        "passes/s": (count + 1) / seconds,
        "processor ms a prompt": 1000 * min(each[1] for each in d) / count,
        "seconds of D over the bare network": statistics.median(ratios),
    }


def share_of_peak(model: Any, passes: float) -> dict[str, Any]:
    """Return a number of passes per second as a share of the device's peak."""
    from torch.utils.flop_counter import FlopCounterMode

    conditioning = model.encode_prompt(["word1"])
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.predict_noise(model.noises([0]), 981.0, conditioning)
    name = torch.cuda.get_device_name()
    peak = next((value for part, value in PEAKS.items() if part in name), None)
    rate = passes * counter.get_total_flops() / 1e12
    return {
        "device": name,
        "TFLOP a pass": counter.get_total_flops() / 1e12,
        "TFLOP/s": rate,
        "share of peak": None if peak is None else rate / peak,
    }


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--prompts", type=int, default=0)
    parser.add_argument("--batch", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    count, batch = (
        asked.prompts or (2048 if asked.gpu else 512),
        asked.batch or (128 if asked.gpu else 16),
    )
    if not asked.gpu:
        torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        place = saved_pipeline(Path(folder) / "pipeline", large=asked.gpu)
        model = load_model(
            str(place),
            device="cuda" if asked.gpu else "cpu",
            precision="fp16" if asked.gpu else "fp32",
        )
        found = measured(model, count, batch, asked.rounds)
        if asked.gpu:
            found |= share_of_peak(model, found["passes/s"])
    ratio = found["seconds of D over the bare network"]
    bars = [Bar("seconds of D over the bare network", ratio, 1.5)]
    write(__file__, bars, found, "memorization_throughput_gpu" if asked.gpu else "")


if __name__ == "__main__":
    main()
