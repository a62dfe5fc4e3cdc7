"""Many sets compared with each other as one file says: the experiment of Ramos et al. 2025."""

from __future__ import annotations

import os
from pathlib import Path

from visleak.study.config import NOTHING, Study, StudySet, read_paper, read_study
from visleak.study.document import write
from visleak.study.results import Result, result_of
from visleak.study.running import Options, run

__all__ = ["Options", "Result", "Study", "StudySet", "read_study", "study"]

__dir__ = __all__.copy


def study(
    config: str | os.PathLike[str] | Study,
    out: str | os.PathLike[str],
    options: Options | None = None,
) -> Result:
    """Compare the sets of a file with each other, and write what comes out to a folder.

    Finished audits in the folder are reused, so a killed study resumes.

    Args:
        config: a TOML file of sets, or what :func:`read_study` made of one.
        out: the folder: ``study.json``, tables, figures, ``study.html``, and ``audits/``.
        options: workers, cache and the like; nothing of it changes the answer.

    Returns:
        What was found; ``failed`` lists comparisons that came to nothing, while the others went on.

    Raises:
        UsageError: a mistake in the file, or the folder holds audits of other sets or settings.
        VisleakError: there is nothing to compare.
    """
    chosen = config if isinstance(config, Study) else read_study(config)
    paper = read_paper(chosen.paper) if chosen.paper is not None else NOTHING
    folder = Path(out)
    done = run(chosen, folder, options or Options())
    result = result_of(done, folder, paper)
    write(result, folder)
    return result
