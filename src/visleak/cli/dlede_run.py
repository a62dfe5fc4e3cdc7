"""Carrying out what ``visleak dlede`` was asked: open, audit, train, judge, write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visleak.cli import edges
from visleak.errors import UsageError, VisleakError

if TYPE_CHECKING:
    from visleak.auditing import Audit
    from visleak.dlede.asking import Extras, Verdict, Works
    from visleak.dlede.forecasting import Forecast
    from visleak.dlede.lesson import Split, Trainer
    from visleak.dlede.plan import Plan
    from visleak.dlede.results import DLeDe
    from visleak.pipeline.workplace import Progress
    from visleak.records import AnySet


@dataclass(frozen=True)
class Order:
    """What to judge, and how to go about it."""

    folder: str | None
    test: str | None
    train: str | None
    whole: str | None
    recipe: str | None
    columns: tuple[str | None, str | None, str | None]
    plan: Plan
    verdict: Verdict
    extras: Extras
    works: Works
    out: Path
    audit: str
    cache: Path | None
    workers: int | None
    private: bool
    force: bool


def opened(order: Order, progress: Progress) -> tuple[Split, Sequence[AnySet]]:
    """Open the split, and return it with the sets that it is made of.

    Raises:
        UsageError, VisleakError: as ``open_images`` and ``split_of``.
    """
    from visleak.cli import sets
    from visleak.dlede.opening import split_by, split_of
    from visleak.images.request import check_groups
    from visleak.records import ImageSet

    columns = sets.Columns(*order.columns)
    progress("listing images", 0, 0)
    if order.whole is not None:
        images = sets.one(order.whole, columns)
        check_groups([images], columns.group)
        progress("listing images", 1, 1)
        return split_by(images, str(order.recipe)), [images]
    compared = (
        sets.from_folder(order.folder, columns)
        if order.folder
        else sets.from_options([str(order.test)], [str(order.train)], [], columns)
    )
    test, (train,) = compared.queries[0], compared.references
    named = {images.name: images for images in compared.queries}
    test = named.get("test", test)
    left = [name for name in named if name != test.name]
    if left:
        edges.note(
            f"{test.name} against {train.name} is judged; {', '.join(left)} is left out, give it as"
            " --test to judge it"
        )
    check_groups((test, train), columns.group)
    progress("listing images", 1, 1)
    if not isinstance(test, ImageSet) or not isinstance(train, ImageSet):
        wrong = train if isinstance(test, ImageSet) else test
        raise UsageError(f"set {wrong.name!r} holds embeddings; trainings need pictures")
    return split_of(test, train), [test, train]


def carried_out(order: Order, trainer: Trainer) -> tuple[DLeDe, Path, Path | None]:
    """Train, judge, write; return the result, its folder, and the page of the audit."""
    from dataclasses import replace

    from visleak.cli.pictures import show_in_report
    from visleak.cli.progress import bars
    from visleak.dlede.measuring import dlede as measured
    from visleak.dlede.output import write
    from visleak.dlede.section import NAME, section
    from visleak.dlede.split_lists import listed
    from visleak.storage import REPORT, claimed, refuse_inputs

    told: list[Forecast] = []
    with bars() as progress:
        split, sources = opened(order, progress)
        refuse_inputs(order.out, [(images.name, images.source) for images in sources], Path())
        _refuse_result(order)
        if order.recipe is not None:
            # the audit can be opened again by them, and its pictures be shown
            with claimed(order.out):
                split = listed(split, order.out / "split", force=order.force)
        given = _given(order, split)
        made: list[Audit] = []

        def cause() -> Mapping[str, Any] | None:
            """Make the audit when all else is checked."""
            if order.audit != "off":
                made.append(given or _audited(order, split, progress))
                _refuse_unfinished(made[0])
            return _about(order, split, made[0] if made else None)

        result = measured(
            split,
            trainer,
            order.out,
            plan=order.plan,
            verdict=order.verdict,
            extras=order.extras,
            works=replace(order.works, progress=progress, told=lambda found: _tell(found, told)),
            audit=cause,
            force=order.force,
        )
        progress("writing the result", 0, 0)
        write(result, order.out, pictures=_pairs(order, split, result))
        audit = made[0] if made else None
        if audit is not None:
            show_in_report(audit, NAME, section(result), private=order.private)
        progress("writing the result", 1, 1)
    if told and told[0].done == told[0].trainings:
        edges.note(f"reused: all {told[0].done:,} trainings were in {order.out}, none was made")
    return result, order.out, None if audit is None else audit.folder / REPORT


def _tell(found: Forecast, told: list[Forecast]) -> None:
    """Say what the trainings will cost, unless all are there."""
    from visleak.cli.dlede_view import forecast_line

    told.append(found)
    if found.done < found.trainings:
        edges.note(forecast_line(found))


def _refuse_result(order: Order) -> None:
    """Refuse a folder that holds a result without trainings: one of ``--scores``.

    Raises:
        UsageError: it does, and nobody forces it.
    """
    from visleak.dlede.measuring import REQUEST
    from visleak.dlede.stored import RESULT
    from visleak.storage import free_folder

    free_folder(order.out, RESULT, force=order.force or (order.out / REQUEST).exists())


def _given(order: Order, split: Split) -> Audit | None:
    """Return the audit that was named, ``None`` where none was.

    Raises:
        UsageError: it is of other sets.
    """
    from visleak.auditing import Audit
    from visleak.dlede.section import NAME
    from visleak.storage import SECTIONS

    if order.audit in ("", "off"):
        return None
    found = Audit(order.audit)
    _refuse_other(found, split)
    if (found.folder / SECTIONS / NAME).exists():
        edges.note(
            f"the report of {found.folder} showed another result of dlede; it shows this now"
        )
    return found


def _audited(order: Order, split: Split, progress: Progress) -> Audit:
    """Make the audit of the split in the folder of the result."""
    from visleak.auditing import audit as audited

    return audited(
        split.test,
        split.train,
        out=order.out / "audit",
        workers=order.workers,
        cache=order.cache,
        progress=progress,
        force=order.force,
    )


def _refuse_unfinished(audit: Audit) -> None:
    """Refuse an audit that may have missed a leak, before anything is trained.

    Raises:
        VisleakError: images could not be read again.
    """
    if audit.unfinished:
        raise VisleakError(
            f"the audit {audit.folder} is unfinished: {audit.unfinished:,} images could not be read"
            " again; run it again when the source is whole"
        )


def _refuse_other(audit: Audit, split: Split) -> None:
    """Refuse an audit that did not compare these very images.

    Raises:
        UsageError: it is so.
    """
    import pyarrow.compute as pc

    table = audit.images()
    compared = {
        name for each in audit.summary.comparisons for name in (each.query_set, each.reference_set)
    }
    seen = [set(table.filter(pc.equal(table["set"], name))["id"].to_pylist()) for name in compared]
    for images in (split.test, split.train):
        ids = set(images.ids.to_pylist())
        # those that cannot be read are in no table of an audit
        if not any(found and found <= ids and 2 * len(found) > len(ids) for found in seen):
            raise UsageError(
                f"--audit {audit.folder} is of other sets: none of them has the images of"
                f" {images.name!r}; leave it out, and one is made"
            )


def _about(order: Order, split: Split, audit: Audit | None) -> Mapping[str, Any] | None:
    """Return what is said of an audit, with the verdicts of people counted."""
    from visleak.auditing import apply_verdicts

    if audit is None:
        return None
    judged = apply_verdicts(audit)
    inside = audit.folder.parent == order.out
    return {
        "folder": audit.folder.name if inside else str(audit.folder),
        "headline": judged.headline,
        **_copies(judged, split),
    }


def _copies(audit: Audit, split: Split) -> Mapping[str, int]:
    """Return how many test images have a near or exact copy in training, where that is known.

    An audit that was named may call the sets otherwise; then it tells by its only comparison, if
    that is of the test images.
    """
    import pyarrow.compute as pc

    compared = audit.summary.comparisons
    names = (split.test.name, split.train.name)
    own = [each for each in compared if (each.query_set, each.reference_set) == names]
    (found, *others) = own or compared
    table = audit.images()
    queries = table.filter(pc.equal(table["set"], found.query_set))["id"].to_pylist()
    rate = found.rates.get("near_or_exact")
    if others or rate is None or not set(queries) <= set(split.test.ids.to_pylist()):
        return {}
    return {"copies": rate.count, "images": rate.total}


def _pairs(order: Order, split: Split, result: DLeDe) -> bytes | None:
    """Return the sheet of the most alike pairs, where pictures may be shown and there are any."""
    from visleak.dlede.hash_pictures import alike_pictures

    if order.private or result.hashes is None or not result.hashes.alike:
        return None
    try:
        return alike_pictures(split, result.hashes)
    except VisleakError as error:
        edges.note(f"no sheet of alike pairs: {error}")
        return None
