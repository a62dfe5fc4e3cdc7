"""Small sets with planted duplicates, and pools with planted traps."""

import io

import cv2
import numpy as np
from PIL import Image

import visleak

CLASSES = ("cat", "dog")


def scene(number, side=40):
    """Return an image that is like no other: soft colours, a few discs and bars."""
    rng = np.random.default_rng(number)
    soft = rng.integers(0, 256, (5, 5, 3)).astype(np.float32)
    picture = np.clip(cv2.resize(soft, (side, side), interpolation=cv2.INTER_CUBIC), 0, 255)
    picture = np.ascontiguousarray(picture, np.uint8)
    for _ in range(6):
        colour = tuple(int(c) for c in rng.integers(0, 256, 3))
        x, y, u, v = (int(c) for c in rng.integers(0, side, 4))
        if rng.random() < 0.5:
            cv2.circle(picture, (x, y), 3 + u % 8, colour, -1)
        else:
            cv2.line(picture, (x, y), (u, v), colour, 2)
    return picture


def png(pixels, level=6):
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG", compress_level=level)
    return out.getvalue()


def darker(pixels):
    """Return the same shot, post-processed."""
    return np.clip(pixels.astype(np.float32) * 0.8 + 8, 0, 255).astype(np.uint8)


def store(folder, name, data):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def plant(root, fresh=6):
    """Write ``test`` (0, 1, 2, 6 are in train, 8 copies 7, 9 is blank), ``train`` and ``pool``."""
    blank = np.full((40, 40, 3), 200, np.uint8)
    for number in range(12):
        kind = CLASSES[number // 6]
        store(root / "train", f"{kind}/{number:02d}.png", png(scene(100 + number)))
        pixels = scene(200 + number)
        if number in (0, 1, 2, 6):
            pixels = darker(scene(100 + number))
        if number == 8:
            pixels = darker(scene(207))
        store(root / "test", f"{kind}/{number:02d}.png", png(blank if number == 9 else pixels))
    store(root / "train", "dog/blank.png", png(blank))
    for number in range(fresh):
        for place, kind in enumerate(CLASSES):
            store(root / "pool", f"{kind}/new{number}.png", png(scene(1000 + 100 * place + number)))
    return root


def traps(root):
    """Add to the pool what must never replace anything."""
    store(root / "pool", "cat/bytes-of-train.png", png(scene(103)))
    store(root / "pool", "cat/copy-of-train.png", png(darker(scene(104))))
    store(root / "pool", "cat/copy-of-test.png", png(darker(scene(203))))
    store(root / "pool", "cat/repeat.png", png(scene(1000)))
    store(root / "pool", "dog/blank.png", png(np.full((40, 40, 3), 90, np.uint8)))
    store(root / "pool", "dog/broken.png", b"\x89PNG\r\n\x1a\nno more")


def audited(root, **settings):
    """Audit test against train; return the audit folder."""
    given = {"settings": visleak.Settings(**settings), "cache": root / "cache", "workers": 1}
    visleak.audit(root / "test", root / "train", out=root / "audit", **given)
    return root / "audit"
