"""Small real networks, made with the libraries that the large ones come from."""

import json
import warnings
from importlib import import_module

import cv2
import numpy as np
import pytest

from toy_clip import lively
from visleak.records import DecodedImage


def pictures(natural):
    shapes = {
        "astronaut": (97, 131),
        "chelsea": (200, 133),
        "coffee": (64, 64),
        "rocket": (55, 330),
        "camera": (301, 202),
        "brick": (9, 14),
        "moon": (1, 3),
    }
    made = []
    for name, (height, width) in shapes.items():
        small = cv2.resize(natural[name], (width, height), interpolation=cv2.INTER_AREA)
        made.append(DecodedImage(np.ascontiguousarray(small), width, height))
    return made


def unit(rows):
    rows = rows.astype(np.float64)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


_SHAPE = {"image_size": 48, "patch_size": 16, "layers": 2, "width": 32}
#: A small CLIP of open_clip, whose image tower has the shape of that of :mod:`toy_clip`.
OPEN_CLIP = {
    "embed_dim": 20,
    "quick_gelu": True,
    "vision_cfg": {**_SHAPE, "head_width": 8, "mlp_ratio": 2.0},
    "text_cfg": {"context_length": 8, "vocab_size": 50, "width": 16, "heads": 2, "layers": 1},
}


def write_open_clip(folder, model, config):
    import torch

    folder.mkdir()
    torch.save(model.state_dict(), folder / "open_clip_pytorch_model.bin")
    text = json.dumps({"model_cfg": config, "preprocess_cfg": {}})
    (folder / "open_clip_config.json").write_text(text)
    return folder


def working(name):
    """Return a library, or skip: it is installed nowhere but beside a fitting torchvision."""
    try:
        return import_module(name)
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"{name} cannot be imported here ({type(error).__name__}: {error})")


def save(folder, module, processor):
    """Write a model as transformers does, without its bars and notes."""
    from visleak.encoders.weights import quiet

    with quiet():
        module.save_pretrained(folder)
        processor.save_pretrained(folder)
    return folder


SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}


def make_dinov2(folder):
    from transformers import Dinov2Config, Dinov2Model
    from transformers.models.bit.image_processing_pil_bit import BitImageProcessorPil

    # trained at another size than it is used at, like the published one
    config = Dinov2Config(**SMALL, image_size=70, patch_size=14, mlp_ratio=2)
    processor = BitImageProcessorPil(
        size={"shortest_edge": 64}, crop_size={"height": 56, "width": 56}
    )
    return save(folder, lively(Dinov2Model(config)), processor)


def make_resnet(folder):
    from transformers import ResNetConfig, ResNetForImageClassification
    from transformers.models.convnext.image_processing_pil_convnext import ConvNextImageProcessorPil

    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 16, 24, 40], depths=[1, 1, 2, 1])
    processor = ConvNextImageProcessorPil(size={"shortest_edge": 64}, crop_pct=0.875)
    return save(folder, lively(ResNetForImageClassification(config)), processor)


def make_vit(folder):
    """A classifier: its weights have no pooler, which transformers would fill with noise."""
    from transformers import ViTConfig, ViTForImageClassification
    from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

    config = ViTConfig(**SMALL, intermediate_size=64, image_size=48, patch_size=16)
    processor = ViTImageProcessorPil(size={"height": 48, "width": 48})
    return save(folder, lively(ViTForImageClassification(config)), processor)


def make_sscd(path, width=20):
    """Write a TorchScript file with SSCD's signature: images of any size -> descriptors."""
    import torch

    torch.manual_seed(0)

    class Descriptor(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.features = torch.nn.Sequential(
                torch.nn.Conv2d(3, 12, 7, stride=4),
                torch.nn.BatchNorm2d(12),
                torch.nn.ReLU(),
                torch.nn.Conv2d(12, 16, 3, stride=2),
            )
            self.embedding = torch.nn.Linear(16, width)

        def forward(self, x):
            pooled = self.features(x).clamp(min=1e-6).pow(3.0).mean(dim=[2, 3]).pow(1 / 3)
            return torch.nn.functional.normalize(self.embedding(pooled))

    with warnings.catch_warnings():
        # torch recommends another format; SSCD is published in this one
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.script(lively(Descriptor())).save(str(path))
    return path


def resized(pixels, sides):
    """Resize as torchvision's Resize does on Pillow images, to a tensor normalised as SSCD's."""
    import torch
    from PIL import Image

    image = Image.fromarray(pixels)
    if len(sides) == 2:
        image = image.resize((sides[1], sides[0]), Image.Resampling.BILINEAR)
    else:
        short = min(image.size)
        shape = tuple(int(sides[0] * side / short) for side in image.size)
        image = image.resize(shape, Image.Resampling.BILINEAR)
    values = torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255
    mean, std = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    return (values - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
