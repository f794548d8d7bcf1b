"""How many fields a message has, counted before it is read.

An empty field takes two bytes on the wire, and forty times as many once it is an object.
"""

from __future__ import annotations

__all__ = ["few_fields"]

VARINT, EIGHT_BYTES, LENGTH, FOUR_BYTES = 0, 1, 2, 5  # kinds of fields on the wire
LONGEST = 10  # bytes of a number


def few_fields(body: bytes, most: int) -> bool:
    """Return whether a message has at most so many fields; those inside its fields do not count.

    >>> few_fields(bytes([8, 1, 66, 0, 66, 0]), 3), few_fields(bytes([8, 1, 66, 0, 66, 0]), 2)
    (True, False)
    """
    place = 0
    try:
        for _ in range(most):
            if place >= len(body):
                break
            key, place = _number(body, place)
            kind = key & 7
            if kind == VARINT:
                _, place = _number(body, place)
            elif kind == LENGTH:
                length, place = _number(body, place)
                place += length
            elif kind in (EIGHT_BYTES, FOUR_BYTES):
                place += 8 if kind == EIGHT_BYTES else 4
            else:
                return False
    except (IndexError, ValueError):
        return False
    return place >= len(body)


def _number(body: bytes, place: int) -> tuple[int, int]:
    """Return the number at a place, and the place after it."""
    number = 0
    for index in range(LONGEST):
        octet = body[place + index]
        number |= (octet & 127) << (7 * index)
        if octet < 128:
            return number, place + index + 1
    raise ValueError("a number without an end")
