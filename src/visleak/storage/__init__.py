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
    csv_value,
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
    write_values,
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
__all__ += ["SEGMENTS"]
__all__ += ["SCRATCH_PREFIX", "SECTIONS", "UNREADABLE", "VERDICTS", "AuditSummary"]
__all__ += ["ComparisonSummary", "Database", "File", "KeyValueStore", "MirroredDatabase"]
__all__ += ["RunFolder", "SetSummary", "TotalSummary", "claimed", "csv_cell", "csv_of", "csv_text"]
__all__ += ["csv_value", "file_digest", "free_file", "free_folder", "free_table"]
__all__ += ["keep_file", "keep_previous", "naming", "open_rows", "opened_for_arrow", "read_csv"]
__all__ += ["read_problems", "read_summary", "read_table"]
__all__ += ["refuse_among", "refuse_foreign", "refuse_inputs"]
__all__ += ["refuse_sets", "remove_leftovers", "remove_unfinished", "replacing", "replacing_text"]
__all__ += ["write_bytes", "write_cells", "write_csv", "write_csv_rows", "write_json"]
__all__ += ["write_problems", "write_tables", "write_text", "write_values"]
