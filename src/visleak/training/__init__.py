"""Training an encoder on the images of a set; the result is used as ``onnx:FILE``.

Modules that need torch are imported on use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from visleak.lazy import on_use

if TYPE_CHECKING:
    from visleak.training.encoder import TrainedEncoder, checkpoint_path, train_encoder
    from visleak.training.settings import EncoderSettings

__all__ = ["EncoderSettings", "TrainedEncoder", "checkpoint_path", "train_encoder"]

#: Public name -> module, imported on first use: the command line only needs the settings.
_HOMES: Final = {
    "EncoderSettings": "visleak.training.settings",
    "TrainedEncoder": "visleak.training.encoder",
    "checkpoint_path": "visleak.training.encoder",
    "train_encoder": "visleak.training.encoder",
}

__getattr__, __dir__ = on_use(__name__, _HOMES)
