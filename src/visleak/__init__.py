"""Find, explain, measure and remove visual data leakage.

>>> import visleak
>>> result = visleak.audit("test/", "train/")  # doctest: +SKIP
>>> print(result.headline)  # doctest: +SKIP
289 of 10,000 test images (2.89 %, 95 % CI 2.58-3.24) have a near-duplicate or exact copy in train
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from visleak.lazy import on_use

if TYPE_CHECKING:
    from visleak import (
        diff,
        diffusion,
        dlede,
        embedding,
        encoders,
        export,
        formats,
        gating,
        impact,
        integrations,
        memorization,
        remedy,
        report,
        review,
        robustness,
        study,
        training,
        verdicts,
    )
    from visleak.auditing import Audit, apply_verdicts, audit
    from visleak.encoders import load_encoder
    from visleak.errors import VisleakError
    from visleak.export.image_pairs import ImagePairs, image_pairs
    from visleak.formats import open_images
    from visleak.gating import assert_no_leak
    from visleak.records import Grade, ImageSet, Pairs
    from visleak.report import save_report
    from visleak.settings import Settings
    from visleak.two_images import same

__version__ = "0.1.0.dev0"

__all__ = [
    "Audit",
    "Grade",
    "ImagePairs",
    "ImageSet",
    "Pairs",
    "Settings",
    "VisleakError",
    "apply_verdicts",
    "assert_no_leak",
    "audit",
    "diff",
    "diffusion",
    "dlede",
    "embedding",
    "encoders",
    "export",
    "formats",
    "gating",
    "image_pairs",
    "impact",
    "integrations",
    "load_encoder",
    "memorization",
    "open_images",
    "remedy",
    "report",
    "review",
    "robustness",
    "same",
    "save_report",
    "study",
    "training",
    "verdicts",
]

__getattr__, __dir__ = on_use(__name__)
