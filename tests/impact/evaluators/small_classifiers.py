"""Small real classifiers and labelled images, made in the test."""

import json
import warnings

import cv2
import numpy as np
from PIL import Image

#: A recipe of 32 x 32, as CIFAR's networks take images.
RECIPE = {
    "visleak": "onnx encoder",
    "schema": 1,
    "size": 32,
    "interpolation": "bilinear",
    "mean": [0.485, 0.456, 0.406],
    "std": [0.229, 0.224, 0.225],
}


def write_pictures(folder, natural, count=4, sides=(40, 52)):
    """Write crops of each natural image into a folder of its name, as PNG."""
    for number, (name, picture) in enumerate(natural.items()):
        rng = np.random.default_rng(number)
        place = folder / name
        place.mkdir(parents=True)
        for index in range(count):
            top, left = (int(rng.integers(0, length - 160)) for length in picture.shape[:2])
            crop = picture[top : top + 160, left : left + 160]
            small = cv2.resize(crop, sides, interpolation=cv2.INTER_AREA)
            Image.fromarray(small).save(place / f"{index}.png")
    return folder


def lively(module, seed=0):
    """Give a network random weights that tell images apart, and statistics of batches."""
    import torch

    made = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in module.state_dict().items():
            if not value.is_floating_point():
                continue
            noise = torch.randn(value.shape, generator=made)
            if value.ndim > 1:
                value.copy_(noise * (2 / value[0].numel()) ** 0.5)
            elif name.endswith("running_var"):
                value.copy_(1 + noise.abs())
            else:
                value.copy_(0.2 * noise + name.endswith("weight"))
    return module.eval()


def cifar_resnet(classes, seed=0):
    """Return a ResNet-20 that gives different images different classes."""
    import torch

    from visleak.impact.evaluators.checkpoints import CifarResNet

    module = lively(CifarResNet(3, classes), seed)
    made = torch.Generator().manual_seed(seed + 1)
    noise = torch.randn(64, 3, 4, 4, generator=made)
    pictures = torch.nn.functional.interpolate(noise, (32, 32), mode="bilinear")
    for part in module.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            part.momentum = None
            part.reset_running_stats()
    with torch.no_grad():
        module.train()(pictures)
        # no class is the answer to everything
        module.linear.bias -= module.eval()(pictures).mean(dim=0)
    return module


def directly(module, images, bgr=False):
    """Return logits of images, by Pillow and torch alone."""
    import torch

    mean, std = (torch.tensor(RECIPE[k]).view(1, 3, 1, 1) for k in ("mean", "std"))
    made = []
    for image in images:
        resized = image.convert("RGB").resize((32, 32), Image.Resampling.BILINEAR)
        values = torch.from_numpy(np.array(resized)).permute(2, 0, 1)[None].float() / 255
        values = values.flip(1) if bgr else values
        with torch.inference_mode():
            made.append(module.eval()((values - mean) / std).numpy())
    return np.concatenate(made)


def write_recipe(path, **changed):
    path.write_text(json.dumps(RECIPE | changed))
    return path


def write_onnx(path, module):
    """Write a network as ONNX with its recipe beside it."""
    import torch

    with warnings.catch_warnings():
        # the exporter that writes one file is on its way out; it is the one that needs no more
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            (torch.zeros(2, 3, 32, 32),),
            str(path),
            dynamo=False,
            input_names=["pixels"],
            output_names=["logits"],
            dynamic_axes={"pixels": {0: "n"}, "logits": {0: "n"}},
        )
    write_recipe(path.with_name(f"{path.name}.json"))
    return path


def write_script(path, module, shape=(2, 3, 32, 32), **recipe):
    """Write a network as TorchScript with its recipe beside it."""
    import torch

    with warnings.catch_warnings():
        # torch asks for another format; this is the one that is tested
        warnings.simplefilter("ignore")
        torch.jit.trace(module, torch.zeros(shape), strict=False).save(str(path))
    write_recipe(path.with_name(f"{path.name}.json"), **recipe)
    return path


def write_hf(folder, names, seed=0):
    """Write a small ResNet of transformers, with the names of its classes."""
    from transformers import ResNetConfig, ResNetForImageClassification
    from transformers.models.convnext.image_processing_pil_convnext import ConvNextImageProcessorPil

    from visleak.encoders.weights import quiet

    config = ResNetConfig(
        embedding_size=8,
        hidden_sizes=[8, 16],
        depths=[1, 1],
        id2label=dict(enumerate(names)),
        label2id={name: number for number, name in enumerate(names)},
    )
    processor = ConvNextImageProcessorPil(size={"shortest_edge": 48}, crop_pct=0.875)
    with quiet():
        lively(ResNetForImageClassification(config), seed).save_pretrained(folder)
        processor.save_pretrained(folder)
    return folder
