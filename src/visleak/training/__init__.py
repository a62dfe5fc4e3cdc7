"""Training an encoder on the images of a set; the result is used as ``onnx:FILE``.

Modules that need torch are imported on use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from visleak.lazy import on_use

if TYPE_CHECKING:
    from visleak.training.encoder import TrainedEncoder, checkpoint_path, train_encoder
    from visleak.training.settings import EncoderSettings

__all__ = ["EncoderSettings", "TrainedEncoder", "checkpoint_path", "train_encoder"]

__getattr__, __dir__ = on_use(__name__)
