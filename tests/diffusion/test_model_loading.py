"""Models from folders: what is read, what is refused, and what a digest is made of."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch

from refusals import refusal
from tiny_pipelines import change_index, saved, stable_diffusion, unet
from visleak.diffusion import load_model
from visleak.diffusion.loading import PIPELINES
from visleak.diffusion.model import Sampling
from visleak.diffusion.pipeline import quiet
from visleak.errors import VisleakError

NETWORK = "unet/diffusion_pytorch_model.safetensors"
TEXT = "text_encoder/model.safetensors"


def refused(folder, **options):
    """Return the one line with which a model is refused."""
    said = refusal(VisleakError, load_model, str(folder), **options)
    assert len(said) < 700
    return said


def change_json(file, **entries):
    file.write_text(json.dumps(json.loads(file.read_text()) | entries))


def images_of(model):
    return model.sample(model.encode_prompt(["a red cat"]), [1], Sampling(2, 7.5, 1))


def same_images(folder, other):
    one, two = (images_of(load_model(str(each))) for each in (folder, other))
    return np.array_equal(one, two)


def test_importing_the_packages_loads_nothing_heavy():
    code = "import sys, visleak.memorization, visleak.diffusion; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_places_that_are_no_pipeline(tmp_path):
    assert "; give the folder of a pipeline of" in refused(tmp_path / "none")
    assert f"the folder {tmp_path} has no model_index.json; give one with" in refused(tmp_path)
    file = tmp_path / "sd-v1-4.safetensors"
    file.write_bytes(b"0")
    assert "one file is not a pipeline" in refused(file)
    for content in (b"{", b"[1]", b"\xff"):
        (tmp_path / "model_index.json").write_bytes(content)
        said = refused(tmp_path)
        assert "model_index.json cannot be read (" in said or "must hold names and values" in said


@pytest.mark.parametrize("name", ["FluxPipeline", ["pipeline", "MyPipeline"], None, "x" * 9999])
def test_an_unknown_class_of_pipeline(copied, name):
    folder = copied()
    change_index(folder, _class_name=name)
    assert f"; known pipelines are {', '.join(sorted(PIPELINES))}" in refused(folder)


@pytest.mark.parametrize(
    ("part", "entry"),
    [
        *(("unet", ["os", "system"]), ("unet", ["unet.hostile", "UNet2DConditionModel"])),
        *(("unet", ["diffusers", "UNet2DModel"]), ("unet", 7), ("scheduler", ["os", "Scheduler"])),
        *(("scheduler", ["diffusers", "DiffusionPipeline"]), ("scheduler", [])),
        *(("scheduler", ["diffusers", "a.Scheduler"]), ("scheduler", ["diffusers", "NoScheduler"])),
    ],
)
def test_a_part_of_another_kind(copied, part, entry):
    """Code beside the weights is never run, whoever names it."""
    folder = copied()
    hostile = folder / "unet" / "hostile.py"
    hostile.write_text(f"open({str(folder / 'run')!r}, 'w')\nclass UNet2DConditionModel: pass\n")
    change_index(folder, **{part: entry})
    said = refused(folder)
    if entry == ["diffusers", "NoScheduler"]:
        assert "NoScheduler" in said
    else:
        wanted = {"unet": "UNet2DConditionModel", "scheduler": "a scheduler of diffusers"}[part]
        assert f"its {part} is {json.dumps(entry)}; it must be {wanted}" in said
        assert said.endswith(", and code that comes with a model is never run")
    assert not (folder / "run").exists()


def test_other_hostile_entries_are_not_looked_at(copied, made):
    """Neither custom pipelines nor classes of parts that are left out are imported."""
    folder = copied()
    (folder / "pipeline.py").write_text(f"open({str(folder / 'run')!r}, 'w')\n")
    parts = {"safety_checker": ["os", "system"], "image_encoder": ["hostile", "Encoder"]}
    parts |= {"custom_pipeline": "pipeline.py", "more": ["hostile", "Part"], "_module": "pipeline"}
    change_index(folder, requires_safety_checker=True, **parts)
    for part in ("unet", "text_encoder"):
        change_json(folder / part / "config.json", auto_map={"AutoModel": "pipeline.My"})
    assert load_model(str(folder)).about()["left_out"] == ["image_encoder", "safety_checker"]
    assert same_images(folder, made("sd1"))
    assert not (folder / "run").exists()


@pytest.mark.parametrize("part", ["unet", "vae", "text_encoder", "tokenizer", "scheduler"])
def test_a_part_that_is_not_there(copied, part):
    folder = copied()
    shutil.rmtree(folder / part)
    assert f"{folder}/{part} is not there; a pipeline has its {part} in" in refused(folder)
    change_index(folder, **{part: [None, None]})
    text = f"model_index.json names no {part}, which a StableDiffusionPipeline needs"
    assert refused(folder).endswith(text)


def change_tensors(file, change):
    from safetensors.torch import load_file, save_file

    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, {"format": "pt"})


def lacking(folder):
    """Take a tensor out of a file: it would be random, and so would every result."""
    change_tensors(folder / TEXT, lambda each: each.pop(sorted(each)[3]))


def widened(folder):
    with quiet():
        unet(block_out_channels=(16, 32)).save_pretrained(str(folder / "other"))
    shutil.copy(folder / "other/diffusion_pytorch_model.safetensors", folder / NETWORK)


def cut(folder):
    whole = (folder / NETWORK).read_bytes()
    (folder / NETWORK).write_bytes(whole[: len(whole) // 2])


def damaged(file, content):
    return lambda folder: (folder / file).write_bytes(content)


def removed(file):
    return lambda folder: (folder / file).unlink()


def pickled(folder):
    (folder / NETWORK).rename((folder / NETWORK).with_suffix(".bin"))


def without_vocabulary(folder):
    for file in (folder / "tokenizer").iterdir():
        file.unlink()
    (folder / "tokenizer" / "readme.md").write_text("none")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (removed("unet/config.json"), "unet has no config.json"),
        (removed(NETWORK), "unet has no weights, neither diffusion_pytorch_model.safetensors nor"),
        (removed("scheduler/scheduler_config.json"), "scheduler is not there; a pipeline has its"),
        (pickled, "/unet has its weights only as pickles (.bin), which can run code; save the"),
        (without_vocabulary, "/tokenizer has no vocabulary (.json, .txt ...)"),
        (damaged("tokenizer/tokenizer.json", b"{}"), "its tokenizer cannot be loaded from"),
        (cut, "its unet cannot be loaded from"),
        (damaged(TEXT, b"not weights"), "its text_encoder cannot be loaded from"),
        (damaged("unet/config.json", b"{"), "its unet cannot be loaded from"),
        (lacking, "; they are of another model than config.json says"),
        (widened, "unet"),
    ],
)
def test_files_that_are_not_there_or_broken(copied, change, text):
    folder = copied()
    change(folder)
    assert text in refused(folder)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"device": "cuda:x"}, "device is one of auto, cpu, cuda, cuda:N, mps; got 'cuda:x'"),
        ({"device": "cuda:7"}, "device cuda:7 is not there: torch"),
        ({"precision": "int8"}, "precision is one of auto, fp32, fp16, bf16; got 'int8'"),
        ({"scheduler": "euler"}, "scheduler is one of auto, own, ddim; got 'euler'"),
    ],
)
def test_settings_that_cannot_be(made, options, text):
    assert text in refused(made("sd1"), **options)


def test_without_diffusers_the_extra_is_named(made, monkeypatch):
    monkeypatch.setitem(sys.modules, "diffusers", None)
    assert "pip install 'visleak[diffusion]'" in refused(made("sd1"))


def test_files_in_half_precision(made, tmp_path):
    """Whoever has only those can use them; beside plain ones, precision decides."""
    plain = load_model(str(made("sd1")))
    half = saved(lambda: stable_diffusion().to(torch.float16), tmp_path / "half", variant="fp16")
    found = load_model(str(half))
    assert found.network.dtype == torch.float32
    noise, conditioning = plain.noises([1]), plain.encode_prompt(["a cat"])
    with torch.no_grad():
        both = [each.predict_noise(noise, 981, conditioning) for each in (plain, found)]
    torch.testing.assert_close(both[0], both[1], atol=5e-3, rtol=0)
    assert found.digest != plain.digest
    folder = shutil.copytree(made("sd1"), tmp_path / "both")
    shutil.copytree(half, folder, dirs_exist_ok=True)
    assert load_model(str(folder)).digest == plain.digest
    both = (load_model(str(each), precision="fp16").digest for each in (folder, half))
    assert len(set(both)) == 1


@pytest.mark.parametrize("variant", [None, "fp16"])
def test_weights_in_several_files(made, tmp_path, variant):
    folder = saved(stable_diffusion, tmp_path / "m", max_shard_size="40KB", variant=variant)
    pieces = sorted((folder / "unet").glob("*-of-*.safetensors"))
    assert len(pieces) > 1
    assert same_images(folder, made("sd1"))
    pieces[1].unlink()
    assert f"weights that are not beside it: 1, such as {pieces[1].name}" in refused(folder)


def test_an_index_that_names_other_files(tmp_path):
    """What it names is what the digest covers."""
    folder = saved(stable_diffusion, tmp_path / "m", max_shard_size="40KB")
    index = folder / "unet/diffusion_pytorch_model.safetensors.index.json"
    content = json.loads(index.read_text())
    for named in ("../../vae/x.safetensors", "other.safetensors", 3):
        content["weight_map"][sorted(content["weight_map"])[0]] = named
        index.write_text(json.dumps(content))
        assert f"are not beside it: 1, such as {named}" in refused(folder)
    index.write_text(json.dumps({"metadata": {}}))
    assert refused(folder).endswith("has no weight_map")


def test_weights_with_the_names_of_older_libraries(copied, made):
    """The published files of Stable Diffusion 1 have them."""
    folder = copied()
    older = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out.0": "proj_attn"}

    def of_vae(tensors):
        for name in [each for each in tensors if "attentions.0.to_" in each]:
            new = next(new for new in older if f"attentions.0.{new}" in name)
            tensors[name.replace(new, older[new])] = tensors.pop(name)
        assert any("proj_attn" in name for name in tensors)

    def of_text(tensors):
        for name in list(tensors):
            tensors[f"text_model.{name.removeprefix('text_model.')}"] = tensors.pop(name)
        tensors["text_model.embeddings.position_ids"] = torch.arange(10)[None]

    change_tensors(folder / "vae/diffusion_pytorch_model.safetensors", of_vae)
    change_tensors(folder / TEXT, of_text)
    assert same_images(folder, made("sd1"))


def test_a_digest_is_of_contents_not_of_places(copied, made):
    folder = copied()
    change_json(folder / "unet/config.json", _name_or_path="elsewhere", _diffusers_version="0.1")
    change_json(folder / "text_encoder/config.json", transformers_version="4.0", dtype="float32")
    change_index(folder, _name_or_path="other", _diffusers_version="0.1")
    (folder / "unet/notes.txt").write_text("none")
    assert load_model(str(folder)).digest == load_model(str(made("sd1"))).digest


def nudge(file):
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: change_json(folder / "scheduler/scheduler_config.json", beta_end=0.013),
        lambda folder: change_json(folder / "vae/config.json", scaling_factor=0.2),
        lambda folder: change_json(folder / "tokenizer/tokenizer_config.json", pad_token="!"),
        lambda folder: nudge(folder / NETWORK),
        lambda folder: nudge(folder / TEXT),
    ],
)
def test_a_digest_changes_with_what_images_depend_on(copied, made, change):
    folder = copied()
    change(folder)
    assert load_model(str(folder)).digest != load_model(str(made("sd1"))).digest


def test_a_digest_tells_how_images_are_made(made):
    options = {}, {"scheduler": "own"}, {"precision": "bf16"}, {"scheduler": "ddim"}
    digests = [load_model(str(made("sd1")), **each).digest for each in options]
    assert digests[0] == digests[3]
    assert len(set(digests)) == 3
