"""Folders of runs and key-value files, with one way to claim, reuse, resume and finish."""

from visleak.storage.database import Database, KeyValueStore
from visleak.storage.run_folder import File, RunFolder

__all__ = ["Database", "File", "KeyValueStore", "RunFolder"]
