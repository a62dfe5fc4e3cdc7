"""Checks of the installation: versions, extras, cache, threads, devices, and problems."""

from visleak.doctor.checkup import Checkup, Issue, examine
from visleak.doctor.document import document

__all__ = ["Checkup", "Issue", "document", "examine"]
