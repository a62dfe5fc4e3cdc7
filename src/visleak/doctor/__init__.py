"""Checks of the installation: versions, extras, cache, threads, devices, and problems."""

from visleak.doctor.checkup import Checkup, Trouble, examine
from visleak.doctor.document import document

__all__ = ["Checkup", "Trouble", "document", "examine"]
