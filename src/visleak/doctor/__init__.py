"""Looks at the installation: versions, extras, cache, threads, devices, and what is broken."""

from visleak.doctor.checkup import Checkup, Issue, examine

__all__ = ["Checkup", "Issue", "examine"]
