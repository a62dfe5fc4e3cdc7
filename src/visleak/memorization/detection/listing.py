"""The prompts of a detection: a list, and ordinary prompts beside it, as one column."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from visleak.errors import UsageError
from visleak.memorization.detection.results import GENERAL, LISTED
from visleak.memorization.prompts import Prompts

Int64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Listing:
    """Prompts of both lists, first the list, then the general ones.

    Attributes:
        texts: the prompts, none twice.
        labels: whether each is known to be memorized; ``None`` where nobody knows.
        sources: memorized images of each prompt, often none.
        general: (n,), whether a prompt is from the general list.
        groups: (n,), number of the group of shared images.
        notes: what was left out, a line each.
    """

    texts: tuple[str, ...]
    labels: tuple[bool | None, ...]
    sources: tuple[tuple[str, ...], ...]
    general: Bool
    groups: Int64
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def ordinary(self) -> Bool:
        """Whether a prompt counts as one that replays nothing, (n,)."""
        return self.general | np.array([label is False for label in self.labels], np.bool_)

    @property
    def memorized(self) -> Bool:
        """Whether a prompt is known to be memorized, (n,)."""
        return np.array([label is True for label in self.labels], np.bool_)

    @property
    def kinds(self) -> list[str]:
        """What each prompt is, in a word or two."""
        words = {True: "memorized", False: "not memorized", None: LISTED}
        return [
            GENERAL if general else words[label]
            for general, label in zip(self.general, self.labels, strict=True)
        ]

    @property
    def compared(self) -> tuple[str, Bool]:
        """What is told from the ordinary prompts, ``labels`` or ``lists``, and which prompts, (n,).

        Where nothing is known of the list, it is all of the list.
        """
        if self.memorized.any() or not self.general.any():
            return "labels", self.memorized
        return "lists", ~self.general & ~self.ordinary


def listing_of(prompts: Prompts, general: Prompts | None = None) -> Listing:
    """Return both lists as one.

    A prompt that is in both is taken from the list alone, and this is said.

    Raises:
        UsageError: the list is empty, or the general one holds memorized prompts or no other ones.
    """
    if not len(prompts):
        raise UsageError(f"prompts {prompts.origin or 'of the list'}: there is none to score")
    labels, sources = _filled(prompts)
    if general is None:
        none = np.zeros(len(prompts), np.bool_)
        return Listing(prompts.texts, labels, sources, none, prompts.groups())
    wrong = sum(label is True for label in general.labels)
    if wrong:
        raise UsageError(
            f"general {general.origin or 'list'}: {wrong:,} of its prompts are labelled memorized;"
            " give ordinary prompts only"
        )
    own = set(prompts.texts)
    kept = [place for place, text in enumerate(general.texts) if text not in own]
    if not kept:
        raise UsageError(
            f"general {general.origin or 'list'}: no prompt in it that is not in the other list"
            " too; give ordinary prompts"
        )
    _, images = _filled(general)
    texts = prompts.texts + tuple(general.texts[place] for place in kept)
    sources += tuple(images[place] for place in kept)
    dropped = len(general) - len(kept)
    return Listing(
        texts,
        labels + (False,) * len(kept),
        sources,
        np.arange(len(texts)) >= len(prompts),
        Prompts(texts, sources=sources).groups(),
        _dropped(dropped),
    )


def _filled(prompts: Prompts) -> tuple[tuple[bool | None, ...], tuple[tuple[str, ...], ...]]:
    return (
        prompts.labels or (None,) * len(prompts),
        prompts.sources or ((),) * len(prompts),
    )


def _dropped(count: int) -> tuple[str, ...]:
    if not count:
        return ()
    are = "prompt is" if count == 1 else "prompts are"
    return (f"{count:,} general {are} in the list too, and count as the list's",)
