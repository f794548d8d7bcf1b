"""Figures that are there already as PNG: checked before they go into a page, and shown at their own size."""

import struct

__all__ = ["checked_png", "shown_size"]

SIGNATURE = b"\x89PNG\r\n\x1a\n"
MOST_BYTES = 4_000_000
"""A page holds its figures; no figure of ours is larger than a tenth of this."""
_PX_PER_M = 96 / 0.0254


def checked_png(content: bytes) -> bytes:
    """Return the content of a PNG file, or raise ValueError if it is none or too large for a page."""
    if len(content) > MOST_BYTES:
        raise ValueError(f"it has {len(content):,} bytes, and {MOST_BYTES:,} are the most")
    if not content.startswith(SIGNATURE) or content[-8:-4] != b"IEND":
        raise ValueError("it is no whole PNG")
    shown_size(content)
    return content


def shown_size(png: bytes) -> tuple[float, float]:
    """Return width and height in pixels of a page; the file says how many of its own go to a metre."""
    try:
        width, height = struct.unpack_from(">II", png, 16)
        place = len(SIGNATURE)
        while True:
            length, kind = struct.unpack_from(">I4s", png, place)
            if kind in (b"IDAT", b"IEND"):
                return float(width), float(height)
            if kind == b"pHYs":
                per_m = max(struct.unpack_from(">I", png, place + 8)[0], 1)
                return width * _PX_PER_M / per_m, height * _PX_PER_M / per_m
            place += 12 + length
    except struct.error as error:
        raise ValueError("it is no whole PNG") from error
