"""An audit as one call, and its result as one object."""

from __future__ import annotations

import contextlib
import copy
import io
import os
import shutil
import sys
import tempfile
import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from PIL.Image import open as open_image

import visleak
from visleak import pipeline
from visleak.errors import UsageError, VisleakError, VisleakWarning, did_you_mean, not_one_of
from visleak.formats import open_images
from visleak.formats.opening import open_split_sides
from visleak.formats.remote import redacted
from visleak.formats.sources import resolved
from visleak.images import content_digest, decode
from visleak.pipeline import folder as folders
from visleak.pipeline.comparison import read_thresholds, thresholds_of
from visleak.pipeline.context import Engine, Processes
from visleak.pipeline.cost import Cost, cost_of
from visleak.pipeline.embeddings import encoder_for
from visleak.pipeline.summary import summarise
from visleak.progress import Forwarded, Progress, Silent, display_for, steps
from visleak.rates import Rate
from visleak.records import (
    DEGREES,
    GRADES,
    AnySet,
    Bytes8,
    DegreeName,
    EmbeddingSet,
    Encoder,
    Encodes,
    GradeName,
    ImageSet,
    PairRow,
    Problem,
    Source,
    Unreadable,
)
from visleak.reporting import gallery
from visleak.reporting.charts import Bar, bar_chart
from visleak.reporting.gallery import Card, decoded, drawn, shrink
from visleak.settings import Settings
from visleak.storage import (
    AUDIT,
    IMAGES,
    PAIRS,
    UNREADABLE,
    AuditSummary,
    claimed,
    read_problems,
    read_summary,
    read_table,
    refuse_among,
)
from visleak.storage.audit_folder import Thresholds
from visleak.storage.cache import NO_FOLDER, Cache, default_folder
from visleak.verdicts import Verdict, judged_pairs, judged_summary, read_verdicts
from visleak.verdicts.exchange import verdicts_of

if TYPE_CHECKING:
    import pandas as pd
    from PIL.Image import Image

#: Below this many images worker processes cost more time than they save.
WORTH_WORKERS = 400

#: Rates that are shown and plotted, and the names of their colours.
PLOTTED: Final = {
    "exact": "exact",
    "near_or_exact": "near",
    "similar_or_closer": "similar",
    "hard": "hard",
    "hard_or_soft": "soft",
}

#: Short side of images for display.
SHOWN = 320


class Audit:
    """A finished audit: its folder, summary and tables.

    Args:
        folder: an audit folder.

    Attributes:
        folder: its folder.
        summary: the content of ``audit.json``, typed.
        reused: it was finished already, and nothing was computed.

    Raises:
        UsageError: the folder holds no finished audit.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.summary: AuditSummary = read_summary(self.folder)
        self.reused = False
        self._opened: dict[str, AnySet] = {}
        self._verdicts: tuple[Verdict, ...] | None = None
        # a temporary folder is removed with its audit, which copies therefore keep
        self._origin: Audit | None = None

    @property
    def judged(self) -> bool:
        """Whether verdicts of people are included; see :func:`apply_verdicts`."""
        return self._verdicts is not None

    @property
    def headline(self) -> str:
        """The result in one line."""
        return self.summary.headline

    @property
    def unfinished(self) -> int:
        """How many images could be read at first, and not again; they are in no rate."""
        return self.summary.unfinished

    def rate(self, name: str = "near_or_exact", query_set: str | None = None) -> Rate:
        """Return a rate over all references.

        Args:
            name: ``exact``, ``near``, ``similar``, ``hard``, ``soft`` or one of the cumulative
                ``near_or_exact``, ``similar_or_closer``, ``hard_or_soft``.
            query_set: which query set; the first by default.

        Raises:
            UsageError: there is no such rate or set.
        """
        for total in self.summary.totals:
            if query_set in (None, total.query_set):
                rate = total.rates.get(name)
                if rate is None:
                    known = ", ".join(key for key, rate in total.rates.items() if rate)
                    raise UsageError(f"rate must be one of {known}; got {name!r}")
                return rate
        raise UsageError(f"no query set is called {query_set!r}")

    def pairs(
        self, *, grade: GradeName | None = None, degree: DegreeName | None = None
    ) -> pa.Table:
        """Return the rows of ``pairs.parquet``, all or those of a grade or degree *or stronger*.

        With verdicts included there are two more columns, ``machine_grade`` and ``judged``.
        """
        if self._verdicts is None:
            table = read_table(self.folder, PAIRS)
        else:
            table = judged_pairs(self.folder, verdicts=self._verdicts)
        for column, value, names in (("grade", grade, GRADES), ("degree", degree, DEGREES)):
            if value is not None:
                if value not in names:
                    raise not_one_of(column, value, names)
                stronger = pa.array(names[: names.index(value) + 1])
                table = table.filter(pc.is_in(table[column], stronger))
        return table

    def leaks(self, grade: GradeName = "near") -> pa.Table:
        """Return the pairs of different sets that are of a grade *or stronger*."""
        table = self.pairs(grade=grade)
        return table.filter(pc.not_equal(table["coverage"], "within"))

    def to_pandas(
        self, *, grade: GradeName | None = None, degree: DegreeName | None = None
    ) -> pd.DataFrame:
        """Return :meth:`pairs` as a data frame of pandas, which must be installed."""
        return self.pairs(grade=grade, degree=degree).to_pandas()

    def show(
        self, image: str, set_name: str | None = None, *, different: bool = False
    ) -> visleak.ImagePairs:
        """Return the pairs of an image, which a notebook shows with the images.

        Args:
            image: its id.
            set_name: its set; needed if several test sets have the id.
            different: include pairs of grade ``different``.

        Raises:
            UsageError: there is no such image, or several.
        """
        return visleak.image_pairs(self, image, set_name, different=different)

    def plot(self) -> Image:
        """Return a chart of the rates with their intervals, as an image of Pillow."""
        bars = [
            Bar.of_rate(f"{query_set}: {name}", colour, rate)
            for query_set, name, colour, rate in self._plotted()
        ]
        title = "Test images with a copy, %"
        files = bar_chart(bars, "rates", title=title, kinds=("png",))
        return open_image(io.BytesIO(files["png"]))

    def report(self, out: str | os.PathLike[str] | None = None, *, private: bool = False) -> Path:
        """Write the report, by default as ``report.html`` of the audit, and return where it is.

        Args:
            out: the file.
            private: put no images into it.
        """
        return visleak.save_report(self, out, private=private)

    def __len__(self) -> int:
        """Return the number of listed pairs."""
        return len(self.pairs())

    def __bool__(self) -> bool:
        return True  # also without pairs

    def __iter__(self) -> Iterator[dict[str, object]]:
        """Yield the listed pairs, as mappings from column to value."""
        for batch in self.pairs().to_batches():
            yield from batch.to_pylist()

    def images(self) -> pa.Table:
        """Return the rows of ``images.parquet``."""
        return read_table(self.folder, IMAGES)

    def unreadable(self) -> tuple[Problem, ...]:
        """Return the images that could not be read."""
        return read_problems(self.folder / UNREADABLE)

    def decoded_images(
        self, set_name: str, ids: Iterable[str], *, side: int | None = None, complete: bool = False
    ) -> dict[str, Bytes8]:
        """Return images of a set for display, RGB ``uint8``.

        An image that cannot be read, or that has changed since the audit, is omitted.

        Args:
            set_name: name of the set.
            ids: of the images.
            side: bound on the long side in pixels; ``None`` for no bound.
            complete: raise an error instead of omitting images.

        Raises:
            UsageError: there is no such set, it holds embeddings only, or its source is gone.
            VisleakError: with ``complete``, an image is gone or changed since the audit.
        """
        images = self.images_of(set_name)
        if isinstance(images, EmbeddingSet):
            raise UsageError(f"set {set_name!r} holds embeddings only; it has no images to show")
        wanted = list(dict.fromkeys(ids))
        places = pc.index_in(pa.array(wanted, pa.string()), images.ids).to_pylist()
        order = sorted(
            (place, name) for place, name in zip(places, wanted, strict=True) if place is not None
        )
        where = (pc.field("set") == set_name) & pc.field("id").isin(wanted)
        table = read_table(self.folder, IMAGES, ["id", "digest"], where)
        audited = dict(zip(table["id"].to_pylist(), table["digest"].to_pylist(), strict=True))
        data = images.opener.read([place for place, _ in order])
        result = {}
        for (_, name), stored in zip(order, data, strict=True):
            if isinstance(stored, Unreadable):
                continue
            digest = audited.get(name)
            if digest is not None and content_digest(stored).hex() != digest:
                continue
            image = decode(stored, enough=SHOWN if side is None else side // 2)
            if not isinstance(image, Unreadable):
                result[name] = image.pixels if side is None else shrink(image.pixels, side)
        missing = [name for name in wanted if name not in result]
        if complete and missing:
            raise VisleakError(
                f"{len(missing):,} of {len(wanted):,} images of set {set_name!r} are gone or"
                f" changed since the audit, such as {missing[0]!r}; restore them, or run again"
            )
        return result

    def images_of(self, name: str) -> AnySet:
        """Return a set of the audit, opened again if necessary.

        Raises:
            UsageError: there is no such set, it was given in memory, or its source is gone.
        """
        if name not in self._opened:
            about = self.summary.set_of(name)
            if about is None:
                raise UsageError(f"no set of this audit is called {name!r}")
            if not about.source:
                raise UsageError(f"set {name!r} was given in memory; its images are not on disk")
            source = resolved(about.source, Path(self.summary.opened_in))
            self._opened[name] = open_images(source, name=name, **about.options)
        return self._opened[name]

    def save(self, folder: str | os.PathLike[str]) -> Audit:
        """Copy the audit to another folder and return it there.

        Raises:
            UsageError: the folder exists.
        """
        target = Path(folder)
        if target.exists():
            raise UsageError(f"{target} exists; choose a new name")
        shutil.copytree(self.folder, target, ignore=shutil.ignore_patterns(".visleak*"))
        return Audit(target)

    def __repr__(self) -> str:
        return f"Audit({str(self.folder)!r}: {self.headline})"

    def _repr_html_(self) -> str:
        rates = [(query_set, name, rate) for query_set, name, _, rate in self._plotted()]
        parts = [gallery.headline(self.headline), gallery.table(("set", "rate", "images"), rates)]
        return "".join([*parts, gallery.pairs(self._strongest())])

    def _plotted(self) -> Iterator[tuple[str, str, str, Rate]]:
        """Yield query set, name, colour and value of the rates that are shown."""
        for total in self.summary.totals:
            for name, colour in PLOTTED.items():
                if (rate := total.rates.get(name)) is not None:
                    yield total.query_set, name.replace("_", " "), colour, rate

    def _strongest(self) -> Iterator[tuple[str, Card]]:
        """Yield the strongest leaks, one per image, with captions; those that can be read."""
        graded = self.summary.grader is not None or self.judged
        table = self.leaks("near") if graded else self.pairs(degree="soft")
        keys = [("probability", "descending"), ("similarity", "descending"), ("query", "ascending")]
        best: dict[tuple[str, str], PairRow] = {}
        for row in table.take(pc.sort_indices(table, keys)[: 8 * gallery.MOST]).to_pylist():
            best.setdefault((row["query_set"], row["query"]), row)
        rows = list(best.values())[: gallery.MOST]
        found = decoded(rows, self.readable_images)
        for row in rows:
            if card := drawn(row, found, gallery.DETAIL):
                yield f"{row['grade'] or row['degree']}: {row['query']} = {row['reference']}", card

    def readable_images(self, name: str, ids: list[str]) -> dict[str, Bytes8]:
        """As :meth:`decoded_images`; none where the source is gone."""
        with contextlib.suppress(VisleakError):
            return self.decoded_images(name, ids)
        return {}


def apply_verdicts(
    audit: Audit, verdicts: str | os.PathLike[str] | Iterable[Verdict] | None = None
) -> Audit:
    """Return an audit with verdicts of people included in pairs, rates, headline and summary.

    Neither the audit nor its folder is changed. Disputed pairs keep the machine's grade.

    Args:
        audit: a finished audit.
        verdicts: by default those of its folder; else a list of ciFAIR, a ``verdicts.csv``,
            another audit folder, or verdicts in order of time.

    Raises:
        UsageError, VisleakError: see :func:`visleak.verdicts.exchange.import_verdicts`.
    """
    if verdicts is None:
        known = read_verdicts(audit.folder)
    elif isinstance(verdicts, str | os.PathLike):
        known = verdicts_of(audit.folder, verdicts)
    else:
        known = tuple(verdicts)
    result = copy.copy(audit)
    result.summary = judged_summary(audit.folder, known)
    result._verdicts, result._origin = known, audit
    return result


def audit(
    test: Source | Sequence[AnySet],
    train: Source | Sequence[AnySet] | None = None,
    *,
    settings: Settings | None = None,
    encoder: str | Encoder | Encodes | None = None,
    encoder_options: Mapping[str, object] | None = None,
    thresholds: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    cache: str | os.PathLike[str] | None = "default",
    progress: Progress | bool = False,
    report: bool = False,
    engine: Engine = Processes,
    device: str = "cpu",
    force: bool = False,
    command: str | None = None,
    **options: object,
) -> Audit:
    """Compare test images with training images and return the leaks.

    Args:
        test: the test side: SOURCE text, a path, an ``ImageSet``, several, or images.
        train: the training side. Without it, ``test`` is a source with splits (a folder, table or
            mapping with train and test), as of ``visleak audit DIR``, or is compared with itself.
        settings: of the audit; the defaults suit most users.
        encoder: an encoder object, or an object with a method ``encode``, where
            ``settings.encoder`` does not name one.
        encoder_options: options of the encoder by name, such as ``device``, ``batch`` and
            ``precision``; as in ``load_encoder``.
        thresholds: file of ``visleak calibrate`` for this encoder; ``hard`` and ``soft`` of the
            settings come before it.
        out: folder for the result; by default one that lives as long as the returned object.
            If it holds the same audit, that is returned.
        workers: processes; by default one per core. Never changes the result.
        cache: folder for results that are reused; ``None`` for none.
        progress: ``True`` shows how far each step is (a bar in Jupyter and on a terminal, lines
            elsewhere); or a function that receives it. The logger ``visleak`` has a record per
            step in any case.
        report: write ``report.html`` into the folder, as the command does.
        engine: execution backend, such as :class:`visleak.pipeline.ray_engine.RayEngine`; by
            default processes of this machine. Never changes the result.
        device: where streamed embeddings are compared: ``cpu``, ``auto`` (a GPU if there is one)
            or ``cuda:N``. Never changes the result.
        force: replace another audit in ``out``.
        command: command line to note in the result.
        options: fields of :class:`visleak.Settings`, such as ``hard=0.9`` or ``near_at=0.7``; they
            override those of ``settings``.

    Returns:
        The audit. If images could not be read again (:attr:`Audit.unfinished`), the same call with
        the same ``out`` repeats it.

    Raises:
        UsageError, VisleakError: see their messages.
    """
    known = [each.name for each in fields(Settings)]
    for name in options:
        if name not in known:
            hint = did_you_mean(name, known) or f"; settings are {', '.join(known)}"
            raise UsageError(f"audit has no setting {name!r}{hint}")
    prepared = prepare(
        test,
        train,
        settings=replace(settings or Settings(), **options),  # type: ignore[arg-type]
        encoder=encoder,
        encoder_options=encoder_options,
        thresholds=thresholds,
    )
    if isinstance(progress, bool):
        write = partial(print, file=sys.stderr)
        display = display_for(sys.stderr, write) if progress else Silent()
    else:
        display = Forwarded(progress)
    with steps(display) as receive:
        receive.expect([*prepared.stages, *([("writing the report",)] if report else [])])
        result = prepared.run(
            out=out,
            workers=workers,
            cache=cache,
            progress=receive,
            engine=engine,
            device=device,
            force=force,
            command=command,
        )
        if report:
            receive("writing the report", 0, 0)
            visleak.save_report(result)
    return result


@dataclass(frozen=True)
class Prepared:
    """An audit whose sets and encoder are open; no image is read yet."""

    queries: tuple[AnySet, ...]
    references: tuple[AnySet, ...]
    encoder: Encoder
    settings: Settings
    limits: Thresholds

    @property
    def images(self) -> int:
        """How many images there are on both sides."""
        return sum(len(images) for images in (*self.queries, *self.references))

    def cost(
        self, *, workers: int | None = None, cache: str | os.PathLike[str] | None = "default"
    ) -> Cost:
        """Return the cost of the audit, estimated from a sample of its images and pairs."""
        with open_cache(cache, (*self.queries, *self.references)) as store:
            processes = workers_for(self.images, workers)
            return cost_of(*self._compared, processes, store, self.limits)

    @property
    def _compared(self) -> tuple[tuple[AnySet, ...], tuple[AnySet, ...], Encoder, Settings]:
        return self.queries, self.references, self.encoder, self.settings

    @property
    def stages(self) -> list[tuple[str, ...]]:
        """The stages of a run, as the names of their steps begin."""
        return pipeline.stages(self.queries, self.references, self.settings)

    def replaces(self, folder: Path) -> bool:
        """Whether a folder holds another audit, finished, which a run would replace."""
        if not (folder / AUDIT).is_file():
            return False
        key = folders.key_of(*self._compared, self.limits)
        return key is None or read_summary(folder).key != key

    def run(
        self,
        *,
        out: str | os.PathLike[str] | None = None,
        workers: int | None = None,
        cache: str | os.PathLike[str] | None = "default",
        progress: Progress = pipeline.silent,
        engine: Engine = Processes,
        device: str = "cpu",
        force: bool = False,
        command: str | None = None,
    ) -> Audit:
        """Run the audit; see :func:`audit`."""
        sets = (*self.queries, *self.references)
        folder = Path(out) if out is not None else Path(tempfile.mkdtemp(prefix="visleak-"))
        key = folders.key_of(*self._compared, self.limits)
        processes = workers_for(self.images, workers)
        try:
            with claimed(folder, sets, AUDIT, reads=not force):
                finished = folders.holds(folder, key, sets, force=force)
                if not finished:
                    with (
                        open_cache(cache, sets) as store,
                        pipeline.RunContext.at(
                            folder, processes, store, progress, engine, device
                        ) as context,
                    ):
                        self._write(folder, context, key, command)
            result = Audit(folder)
        except BaseException:
            if out is None:
                shutil.rmtree(folder, ignore_errors=True)
            raise
        if out is None:
            weakref.finalize(result, shutil.rmtree, folder, ignore_errors=True)
        result.reused = finished
        result._opened = {images.name: images for images in sets}
        return result

    def _write(
        self, folder: Path, context: pipeline.RunContext, key: str | None, command: str | None
    ) -> None:
        outcome = pipeline.run(*self._compared, context, self.limits)
        summary = replace(
            summarise(outcome, self.encoder, self.settings, visleak.__version__),
            key=key,
            opened_in=os.getcwd(),
            command=command and redacted(command),
            timings={step: round(time, 3) for step, time in context.seconds.items()},
        )
        folders.write(folder, outcome, summary)


def prepare(
    test: Source | Sequence[AnySet],
    train: Source | Sequence[AnySet] | None = None,
    *,
    settings: Settings | None = None,
    encoder: str | Encoder | Encodes | None = None,
    encoder_options: Mapping[str, object] | None = None,
    thresholds: str | os.PathLike[str] | None = None,
) -> Prepared:
    """Open the sets, the encoder and the thresholds of an audit; arguments as of :func:`audit`."""
    settings = settings or Settings()
    split = open_split_sides(test) if train is None else None
    queries = _sets(test, "test") if split is None else split.queries
    references = split.references if split else () if train is None else _sets(train, "train")
    maker = encoder_for(
        (*queries, *references),
        encoder if encoder is not None else settings.encoder,
        encoder_options,
    )
    # the name defines the vectors, without device and batch size
    settings = replace(settings, encoder=maker.name)
    calibrated = read_thresholds(thresholds, maker) if thresholds is not None else None
    limits = thresholds_of(maker, settings, calibrated)
    return Prepared(queries, references, maker, settings, limits)


@contextlib.contextmanager
def open_cache(
    cache: str | os.PathLike[str] | None, sets: Sequence[AnySet] = ()
) -> Iterator[Cache | None]:
    """Open the cache of a run: a folder's, the ``default`` one, or none.

    A cache that cannot be used is a warning: the result does not depend on it. One among the images
    of a set is refused.
    """
    folder = default_folder() if cache == "default" else Path(cache) if cache else None
    if folder is None:
        if cache:
            _warn(NO_FOLDER)
        yield None
        return
    refuse_among(folder, [(s.name, s.source) for s in sets], Path(), "the cache", "--cache DIR")
    with Cache(folder, _warn) as store:
        yield store if store.usable else None


def _warn(text: str) -> None:
    warnings.warn(text, VisleakWarning, stacklevel=2)


def workers_for(count: int, wanted: int | None) -> int:
    """Return the number of processes for ``count`` images; the wanted one, if it is given."""
    own = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if own else os.cpu_count() or 1
    return wanted or (cores if count >= WORTH_WORKERS else 1)


def _sets(source: Source | Sequence[AnySet], name: str) -> tuple[AnySet, ...]:
    if isinstance(source, ImageSet | EmbeddingSet):
        return (source,)
    opened = ImageSet | EmbeddingSet
    # a dataset object is not iterated: it may decode images, or be a stream
    if isinstance(source, list | tuple) and source and all(isinstance(s, opened) for s in source):
        return tuple(source)
    role = "benchmark" if name == "test" else "training"
    return (open_images(source, name=name, roles=(role,)),)
