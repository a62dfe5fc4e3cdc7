"""How well an encoder finds changed copies, and thresholds with a stated error rate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from visleak.lazy import on_use

if TYPE_CHECKING:
    from visleak.robustness.experiment import robustness
    from visleak.robustness.thresholding import calibrate

__all__ = ["calibrate", "robustness"]
__getattr__, __dir__ = on_use(__name__)
