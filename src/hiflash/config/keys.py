"""Keys of the configuration: type with bounds, default and meaning.

`allowed` derives the allowed values in words from the type alone. So errors, help and documentation cannot
contradict the check.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.fields import FieldInfo

from hiflash.core.registry import Key

__all__ = [
    "Bound",
    "Count",
    "Event",
    "Factor",
    "NoneOr",
    "OneOf",
    "PartSection",
    "Positive",
    "Range",
    "Seconds",
    "Section",
    "Share",
    "ShareInside",
    "ShareOpen",
    "allowed",
    "as_tuple",
    "field_of",
    "setting",
]

HIDDEN = ("own",)  # data and models that are passed in Python; a file cannot name them


class Section(BaseModel):
    """Keys that belong together; unknown keys and wrong types are errors."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        defer_build=True,  # help lists keys and needs no validators
    )


class PartSection(Section):
    """A section that also has the keys that parts declare (`hiflash.config.parts`)."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return the value of a key that a part declares."""


@dataclass(frozen=True, eq=False)
class OneOf:
    """A name from a table of parts; the table grows when users register their own."""

    table: Mapping[str, Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Return a validator that looks the name up at the time of the check."""
        return AfterValidator(self.check).__get_pydantic_core_schema__(source, handler)

    def check(self, name: str) -> str:
        """Return the name, or raise if it is not in the table."""
        if name not in self.table:
            raise ValueError(name)
        return name


@dataclass(frozen=True)
class Words:
    """The allowed values of a type in words, where its bounds do not say them."""

    text: str


def as_tuple(value: Any) -> Any:
    """Return a list as a tuple, and any other value unchanged."""
    return tuple(value) if isinstance(value, list) else value


def _rising(pair: tuple[float, float]) -> tuple[float, float]:
    if not 0 < pair[0] <= pair[1] <= 1e9:
        raise ValueError(pair)
    return pair


NoneOr = Literal["none"]
Count = Annotated[int, Field(ge=1, le=10_000_000)]
Positive = Annotated[float, Field(gt=0, le=1e12)]
Bound = Annotated[float, Field(ge=1e-12, le=1e12)]  # divided by, so not too close to 0
Factor = Annotated[float, Field(ge=0, le=1e6)]
Share = Annotated[float, Field(gt=0, le=1)]
ShareOpen = Annotated[float, Field(ge=0, lt=1)]
ShareInside = Annotated[float, Field(gt=0, lt=1)]
Seconds = Annotated[float, Field(ge=1e-6, le=1e12)]
# Seconds between two events of the simulation: below 1e-4 the simulator would do nothing else.
Event = Annotated[float, Field(ge=1e-4, le=1e12)]
Range = Annotated[
    tuple[float, float],
    BeforeValidator(as_tuple),
    AfterValidator(_rising),
    Words("[low, high] with 0 < low <= high <= 1e9"),
]


def setting(default: Any, about: str, *, allowed: str | None = None) -> Any:
    """Return a key of a section; `allowed` describes the values of a text."""
    extra: dict[str, Any] | None = None if allowed is None else {"allowed": allowed}
    return Field(default, description=about, json_schema_extra=extra)


def field_of(key: Key) -> FieldInfo:
    """Return the key of a part as a field of a section."""
    kind: Any = key.kind
    if kind is str and not key.words:
        longest = None if key.high is None else int(key.high)
        kind = Annotated[kind, Field(min_length=int(key.low or 0), max_length=longest)]
    elif kind in (int, float):
        kind = Annotated[kind, Field(ge=key.low, le=key.high, gt=key.above, lt=key.below)]
    if key.length:
        kinds = (kind,) * key.length
        kind = Annotated[tuple.__class_getitem__(kinds), BeforeValidator(as_tuple)]
    if key.words:
        words = Literal.__getitem__(key.words)
        kind = words if key.kind is str else kind | words
    about = setting(key.default, key.about, allowed=key.allowed)
    return FieldInfo.from_annotated_attribute(kind, about)


def allowed(info: FieldInfo) -> str:
    """Return the allowed values of a key in words."""
    extra = info.json_schema_extra
    if isinstance(extra, dict) and "allowed" in extra:
        return str(extra["allowed"])
    *most, last = _alternatives(info.annotation, info.metadata)
    return f"{', '.join(most)} or {last}" if most else last


def _alternatives(kind: Any, limits: Sequence[Any] = ()) -> list[str]:
    """Return the alternatives that a type with limits allows, each in words."""
    for limit in limits:
        if isinstance(limit, Words):
            return [limit.text]
        if isinstance(limit, OneOf):
            return [f'"{name}"' for name in limit.table]
    origin = get_origin(kind)
    if origin is Annotated:
        inner, *more = get_args(kind)
        return _alternatives(inner, [*_unpacked(more), *limits])
    if origin in (Union, UnionType):
        return [text for one in get_args(kind) for text in _alternatives(one)]
    if origin is Literal:
        return [f'"{name}"' for name in get_args(kind) if name not in HIDDEN]
    if origin is tuple:
        return [_list(get_args(kind), limits)]
    if kind is bool:
        return ["true", "false"]
    if kind is int:
        return [f"a whole number from {_bound(limits, 'ge'):,} to {_bound(limits, 'le'):,}"]
    if kind is float:
        return [_interval(limits)]
    raise TypeError(f"no words for {kind} with {limits}; give the setting `allowed`")


def _list(kinds: Sequence[Any], limits: Sequence[Any]) -> str:
    (each,) = _alternatives(kinds[0])
    if kinds[-1] is not ...:
        return f"a list of {len(kinds)} numbers, each {each}"
    least, most = _bound(limits, "min_length"), _bound(limits, "max_length")
    return f"a list of {least:,} to {most:,} numbers, each {each}"


def _interval(limits: Sequence[Any]) -> str:
    low, high = _bound(limits, "ge"), _bound(limits, "le")
    left = f"({_short(_bound(limits, 'gt'))}" if low is None else f"[{_short(low)}"
    right = f"{_short(_bound(limits, 'lt'))})" if high is None else f"{_short(high)}]"
    return f"in {left}, {right}"


def _bound(limits: Iterable[Any], name: str) -> Any:
    return next((getattr(limit, name) for limit in limits if getattr(limit, name, None) is not None), None)


def _unpacked(limits: Iterable[Any]) -> Iterable[Any]:
    """Yield limits one by one: `Field(ge=1, le=5)` holds two."""
    for limit in limits:
        yield from limit.metadata if isinstance(limit, FieldInfo) else (limit,)


def _short(number: float) -> str:
    """Return a number in its usual short form: 0.5, 100, 1e6, 1e-6."""
    mantissa, _, exponent = f"{number:g}".partition("e")
    if not exponent and abs(number) >= 10_000:
        mantissa, _, exponent = f"{number:e}".partition("e")
        mantissa = mantissa.rstrip("0").rstrip(".")
    return f"{mantissa}e{int(exponent)}" if exponent else mantissa
