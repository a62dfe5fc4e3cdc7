"""Files and folders: atomic writers, the audit folder, folders of runs, key-value files."""

from visleak.delimited import write_csv_rows
from visleak.storage.audit_folder import (
    AUDIT,
    DECISIONS,
    GROUPS,
    IMAGES,
    IMAGES_SCHEMA,
    LEDGER,
    PAIRS,
    PAIRS_SCHEMA,
    PROBLEM_COLUMNS,
    RECORDINGS,
    REPLACEMENTS,
    REPORT,
    SCHEMA,
    SECTIONS,
    SEGMENTS,
    UNREADABLE,
    VERDICTS,
    AuditSummary,
    ComparisonSummary,
    SetSummary,
    TotalSummary,
    read_problems,
    read_summary,
    read_table,
    write_problems,
)
from visleak.storage.database import Database, KeyValueStore, MirroredDatabase
from visleak.storage.files import (
    csv_cell,
    csv_of,
    csv_text,
    file_digest,
    naming,
    open_rows,
    opened_for_arrow,
    read_csv,
    replacing,
    replacing_text,
    write_bytes,
    write_cells,
    write_csv,
    write_json,
    write_tables,
    write_text,
)
from visleak.storage.run_folder import (
    LOCK,
    SCRATCH_PREFIX,
    File,
    RunFolder,
    claimed,
    free_file,
    free_folder,
    free_table,
    keep_file,
    keep_previous,
    refuse_among,
    refuse_foreign,
    refuse_inputs,
    refuse_sets,
    remove_leftovers,
    remove_unfinished,
)

__all__ = ["AUDIT", "DECISIONS", "GROUPS", "IMAGES", "IMAGES_SCHEMA", "LEDGER", "LOCK", "PAIRS"]
__all__ += ["PAIRS_SCHEMA", "PROBLEM_COLUMNS", "RECORDINGS", "REPLACEMENTS", "REPORT", "SCHEMA"]
__all__ += ["SCRATCH_PREFIX", "SECTIONS", "SEGMENTS", "UNREADABLE", "VERDICTS", "AuditSummary"]
__all__ += ["ComparisonSummary", "Database", "File", "KeyValueStore", "MirroredDatabase"]
__all__ += ["RunFolder", "SetSummary", "TotalSummary", "claimed", "csv_cell", "csv_of", "csv_text"]
__all__ += ["file_digest", "free_file", "free_folder", "free_table", "keep_file", "keep_previous"]
__all__ += ["naming", "open_rows", "opened_for_arrow", "read_csv", "read_problems", "read_summary"]
__all__ += ["read_table", "refuse_among", "refuse_foreign", "refuse_inputs", "refuse_sets"]
__all__ += ["remove_leftovers", "remove_unfinished", "replacing", "replacing_text", "write_bytes"]
__all__ += ["write_cells", "write_csv", "write_csv_rows", "write_json", "write_problems"]
__all__ += ["write_tables", "write_text"]
