"""Find, explain, measure and remove visual data leakage.

>>> import visleak
>>> result = visleak.audit("test/", "train/")  # doctest: +SKIP
>>> print(result.headline)  # doctest: +SKIP
289 of 10,000 test images (2.89 %, 95 % CI 2.58-3.24) have a near-duplicate or exact copy in train
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from visleak.lazy import on_use

if TYPE_CHECKING:
    from visleak.auditing import Audit, apply_verdicts, audit
    from visleak.encoders import load_encoder
    from visleak.errors import VisleakError
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
    "ImageSet",
    "Pairs",
    "Settings",
    "VisleakError",
    "apply_verdicts",
    "assert_no_leak",
    "audit",
    "load_encoder",
    "open_images",
    "same",
    "save_report",
]

#: Public name -> module, imported on first use: `import visleak` stays fast.
_HOMES: Final = {
    "Audit": "visleak.auditing",
    "Grade": "visleak.records",
    "ImageSet": "visleak.records",
    "Pairs": "visleak.records",
    "Settings": "visleak.settings",
    "VisleakError": "visleak.errors",
    "apply_verdicts": "visleak.auditing",
    "assert_no_leak": "visleak.gating",
    "audit": "visleak.auditing",
    "load_encoder": "visleak.encoders",
    "open_images": "visleak.formats",
    "same": "visleak.two_images",
    "save_report": "visleak.report",
}

__getattr__, __dir__ = on_use(__name__, _HOMES)
