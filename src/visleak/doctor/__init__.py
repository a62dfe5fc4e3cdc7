"""Checks of the installation: versions, extras, cache, threads, devices, and problems."""

from visleak.doctor.checkup import Checkup, Issue, document, examine

__all__ = ["Checkup", "Issue", "document", "examine"]
