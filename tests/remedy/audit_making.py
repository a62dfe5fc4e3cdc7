"""An audit folder with the pairs that a test needs, over sets that exist."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from toy_audit import image_row, write_audit
from toy_audit import pair_row as pair
from visleak.formats import open_images
from visleak.images import content_digest, decode
from visleak.records import Problem, Unreadable

__all__ = ["make_audit", "pair"]


def make_audit(
    folder: Path,
    tests: Mapping[str, str],
    trains: Mapping[str, str],
    pairs: Iterable[Mapping[str, Any]],
    *,
    flat: Sequence[str] = (),
    roles: Mapping[str, list[str]] | None = None,
    settings: Mapping[str, Any] | None = None,
    compared: Iterable[tuple[str, str]] = (),
    embeddings: Mapping[str, int] | None = None,
) -> Path:
    """Write an audit of these sources; embeddings are sets without images."""
    rows, problems, sets = [], [], {}
    for name, source in (tests | trains).items():
        images = open_images(source, name=name)
        count = len(images)
        labels = [None] * count if images.labels is None else images.labels.to_pylist()
        columns = images.ids.to_pylist(), labels, images.locators.to_pylist()
        read = images.opener.read(range(count))
        for stored, id_, label, locator in zip(read, *columns, strict=True):
            if isinstance(decoded := decode(stored), Unreadable):
                problems.append(Problem(name, id_, "", decoded.reason))
                continue
            more = {"label": label, "locator": locator, "flat": f"{name}/{id_}" in flat}
            rows.append(image_row(name, id_, digest=content_digest(stored).hex(), **more))
        sets[name] = {"source": source, "options": dict(images.options), "images": count}
        sets[name] |= {"readable": count, "unreadable": 0, "flat": 0}
    pairs = list(pairs)
    for name, count in (embeddings or {}).items():
        # of embeddings that are not kept, the images in pairs are known
        listed = {row["reference"] for row in pairs if row["reference_set"] == name}
        rows += [image_row(name, id_, locator=None) for id_ in sorted(listed)]
        sets[name] = {"source": f"emb:{name}", "images": count, "readable": count}
        sets[name] |= {"pictures": False}
    for name, about in sets.items():
        usual = ["benchmark" if name in tests else "training"]
        side = "query" if name in tests else "reference"
        about |= {"dataset": "", "side": side, "roles": (roles or {}).get(name, usual)}
    references = [*trains, *(embeddings or {})]
    found = [*compared, *((t, r) for t in tests for r in references), *((t, t) for t in tests)]
    write_audit(
        folder,
        rows,
        pairs,
        found,
        problems=problems,
        limits=(0.9, 0.8),
        sets=sets,
        settings={"sample": 0, "candidates": "auto"} | dict(settings or {}),
        key="0" * 32,
        opened_in="/",
    )
    return folder
