"""Training an encoder on a set's own pictures; the result is used as ``onnx:FILE``.

Only :mod:`visleak.training.learning` is imported here; what needs torch is imported on use.
"""

from visleak.training.learning import Trained, Wishes, checkpoint_path, train_encoder

__all__ = ["Trained", "Wishes", "checkpoint_path", "train_encoder"]
