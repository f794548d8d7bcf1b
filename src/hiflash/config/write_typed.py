"""Prints `config/typed.py`, the settings as types: `python -m hiflash.config.write_typed`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from hiflash.config.keys import HIDDEN, OneOf, Section
from hiflash.config.tree import Config

__all__ = ["typed_module"]

OBJECTS = ("data", "model", "federation")  # `hiflash.run` takes a section or an object of the user's own
SHORT = {"wan": 'Literal["on", "off"]'}  # `wan = "off"` is short for `wan.link = "off"`

HEAD = '''"""The settings as types, so that an editor completes them.

`python -m hiflash.config.write_typed` prints this module.
A section may also be any other mapping: a part of your own brings keys that no type here knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

# fmt: off
# ruff: noqa: E501
'''


def typed_module() -> str:
    """Return the text of `config/typed.py`."""
    sections = {name: info.annotation for name, info in Config.model_fields.items() if _is_section(info)}
    names = [*(_class(name) for name in sections), "AllSettings", "Settings"]
    blocks = [HEAD, "__all__ = [", *(f'    "{name}",' for name in sorted(names)), "]\n"]
    for name, section in sections.items():
        about = f"The section `{name}`: {(section.__doc__ or '').splitlines()[0]}"
        blocks += ["", *_typed_dict(_class(name), about, section.model_fields), ""]  # type: ignore[union-attr]
    own = {name: info for name, info in Config.model_fields.items() if name not in OBJECTS}
    about = "The keys and sections of a configuration, but for those that may also be objects."
    blocks += ["", *_typed_dict("Settings", about, own), ""]
    others = {name: Config.model_fields[name] for name in OBJECTS}
    blocks += [
        "",
        *_typed_dict("AllSettings", "All keys and sections of a configuration.", others, "Settings"),
    ]
    return "\n".join(blocks) + "\n"


def _typed_dict(
    name: str, about: str, fields: Mapping[str, FieldInfo], base: str = "TypedDict"
) -> Iterator[str]:
    yield f"class {name}({base}, total=False):"
    yield f'    """{about}"""'
    yield ""
    for key, info in fields.items():
        if _is_section(info):
            short = f" | {SHORT[key]}" if key in SHORT else ""
            yield f"    {key}: {_class(key)} | Mapping[str, Any]{short}"
            continue
        yield f"    {key}: {' | '.join(_alternatives(info.annotation, info.metadata))}"
        about = str(info.description)
        yield f'    """{about}."""' if about.endswith('"') else f'    """{about}"""'


def _alternatives(kind: Any, limits: Sequence[Any] = ()) -> list[str]:
    """Return the types of a key as they are written."""
    for limit in limits:
        if isinstance(limit, OneOf):  # a table that grows: a user's own name is fine too
            return [_literal(list(limit.table)), "str"]
    origin = get_origin(kind)
    if origin is Annotated:
        inner, *more = get_args(kind)
        return _alternatives(inner, more)
    if origin in (Union, UnionType):
        return list(dict.fromkeys(text for one in get_args(kind) for text in _alternatives(one)))
    if origin is Literal:
        return [_literal([name for name in get_args(kind) if name not in HIDDEN])]
    if origin is tuple:
        return [f"Sequence[{' | '.join(_alternatives(get_args(kind)[0]))}]"]
    return [str(kind.__name__)]


def _literal(names: Sequence[str]) -> str:
    return f"Literal[{', '.join(json.dumps(name) for name in names)}]"


def _is_section(info: FieldInfo) -> bool:
    return isinstance(info.annotation, type) and issubclass(info.annotation, Section)


def _class(section: str) -> str:
    return f"{section.capitalize()}Settings"


if __name__ == "__main__":
    print(typed_module(), end="")
