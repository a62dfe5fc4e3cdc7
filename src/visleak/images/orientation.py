"""The orientation that a camera noted in an image's EXIF block.

Read here and not by Pillow, whose EXIF reader warns about broken blocks; an image with a broken
block is shown as it lies, like every viewer does.
"""

from __future__ import annotations

from typing import Final, Literal

from PIL import Image

_TAG: Final = 0x0112


_TURNS: Final = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def orientation_of(exif: bytes) -> int:
    """Return the orientation 1 to 8 that an EXIF block gives; 1 where it gives none.

    >>> orientation_of(b"Exif" + bytes(2) + b"MM" + bytes.fromhex("002a00000008 0001 0112 0003"
    ...                "00000001 00060000"))
    6
    >>> orientation_of(b"broken")
    1
    """
    if exif[:6] == b"Exif\0\0":
        exif = exif[6:]
    order: Literal["little", "big"]
    if exif[:4] == b"II*\0":
        order = "little"
    elif exif[:4] == b"MM\0*":
        order = "big"
    else:
        return 1
    at = int.from_bytes(exif[4:8], order)
    count = int.from_bytes(exif[at : at + 2], order)
    for start in range(at + 2, min(at + 2 + 12 * count, len(exif) - 11), 12):
        if int.from_bytes(exif[start : start + 2], order) == _TAG:
            size = 4 if int.from_bytes(exif[start + 2 : start + 4], order) == 4 else 2
            value = int.from_bytes(exif[start + 8 : start + 8 + size], order)
            return value if 1 <= value <= 8 else 1
    return 1


def turned(image: Image.Image, orientation: int) -> Image.Image:
    """Return the image as the camera was held; the same object for orientation 1."""
    turn = _TURNS.get(orientation)
    return image if turn is None else image.transpose(turn)


def split_jpeg(data: bytes) -> tuple[bytes, bytes]:
    """Take the EXIF block out of a JPEG file.

    Pillow parses the block for its resolution and warns where it is broken; without the block
    there is nothing to warn about, and the pixels are the same.
    """
    at, kept, exif, pieces = 2, 0, b"", []
    while data[at : at + 1] == b"\xff":
        marker = data[at + 1 : at + 2]
        if marker == b"\xff":
            at += 1
            continue
        if marker in (b"\xda", b"\xd9", b""):
            break
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if marker == b"\xe1" and data[at + 4 : at + 10] == b"Exif\0\0":
            exif = exif or data[at + 4 : end]
            pieces.append(data[kept:at])
            kept = end
        at = end
    return (exif, b"".join((*pieces, data[kept:]))) if pieces else (b"", data)
