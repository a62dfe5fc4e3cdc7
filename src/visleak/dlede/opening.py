"""What ``visleak dlede`` is given: the split, its output folder, an audit of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from visleak.auditing import Audit
from visleak.dlede.document import folder_of
from visleak.dlede.draw import Split, split_of, write_split_tables
from visleak.dlede.draw.recipes import split_by
from visleak.dlede.protocol import REQUEST, check_audit
from visleak.dlede.settings import DLeDeOptions, Sources
from visleak.errors import UsageError
from visleak.formats.opening import open_set, open_sides
from visleak.formats.request import check_pattern
from visleak.options import Columns
from visleak.progress import Progress
from visleak.records import AnySet, ImageSet
from visleak.settings import SideColumns, Sides
from visleak.storage import SECTIONS, free_folder, refuse_inputs

Notify = Callable[[str], None]


def open_split(
    sources: Sources, columns: Columns, progress: Progress, notify: Notify
) -> tuple[Split, Sequence[AnySet]]:
    """Open the split; return it with the sets that it consists of."""
    progress("listing images", 0, 0)
    if sources.whole is not None:
        images = open_set(sources.whole, columns)
        check_pattern([images], "group", columns.group)
        return split_by(images, str(sources.recipe)), [images]
    named = SideColumns(columns.id, columns.label, columns.group)
    test_source, train_source = (
        () if each is None else (each,) for each in (sources.test, sources.train)
    )
    compared = open_sides(Sides(sources.folder, test_source, train_source, (), named))
    (train,), by_name = compared.references, {images.name: images for images in compared.queries}
    test = by_name.get("test", compared.queries[0])
    if others := [name for name in by_name if name != test.name]:
        notify(
            f"{test.name} is tested against {train.name}; {', '.join(others)} is ignored, give it"
            " as --test to test it"
        )
    check_pattern((test, train), "group", columns.group)
    progress("listing images", 1, 1)
    if not isinstance(test, ImageSet) or not isinstance(train, ImageSet):
        wrong = train if isinstance(test, ImageSet) else test
        raise UsageError(f"set {wrong.name!r} holds embeddings; training needs images")
    return split_of(test, train), [test, train]


def claimed_split(
    out: Path, split: Split, sets: Sequence[AnySet], *, listed: bool, force: bool
) -> Split:
    """Check the output folder; write the parts of a recipe, so that the audit can be opened."""
    folder = folder_of(out)
    refuse_inputs(folder.path, [(images.name, images.source) for images in sets], Path())
    # the result of --scores is not replaced by that of training runs
    own = (folder.path / REQUEST).exists()
    free_folder(folder.path, folder.result.name, force=force or own)
    if not listed:
        return split
    with folder.claimed():
        return write_split_tables(split, folder.path / "split", force=force)


def given_audit(options: DLeDeOptions, split: Split, notify: Notify) -> Audit | None:
    """Return the audit that was named, after a check that it is of this split."""
    if options.audit in ("", "off"):
        return None
    found = Audit(options.audit)
    check_audit(found, split)
    if (found.folder / SECTIONS / "dlede.json").exists():
        notify(f"the report of {found.folder} showed another result of dlede; it is replaced")
    return found
