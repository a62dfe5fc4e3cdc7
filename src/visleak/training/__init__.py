"""Training an encoder on the images of a set; the result is used as ``onnx:FILE``.

Modules that need torch are imported on use.
"""

from visleak.training.document import document
from visleak.training.encoder import TrainedEncoder, checkpoint_path, train_encoder
from visleak.training.plan import EncoderSettings

__all__ = ["EncoderSettings", "TrainedEncoder", "checkpoint_path", "document", "train_encoder"]
