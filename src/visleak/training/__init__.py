"""Training an encoder on a set's own pictures; the result is used as ``onnx:FILE``.

What needs torch is imported on use.
"""

from visleak.training.document import document
from visleak.training.learning import Trained, checkpoint_path, train_encoder
from visleak.training.wishes import Wishes

__all__ = ["Trained", "Wishes", "checkpoint_path", "document", "train_encoder"]
