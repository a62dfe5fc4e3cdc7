"""Looks at the installation: versions, extras, cache, threads, devices, and what is broken."""

from visleak.doctor.checkup import Checkup, Trouble, examine

__all__ = ["Checkup", "Trouble", "examine"]
