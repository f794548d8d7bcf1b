"""Results of finished runs, read back and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from hiflash.config import Config
from hiflash.errors import DamageError
from hiflash.sim.observer import Audience, RunInfo
from hiflash.sim.result import Result
from hiflash.store.run_directory import REMAKE, read_events, read_result_file

__all__ = ["read_result", "replay"]


def read_result(path: Path) -> Result:
    """Return the result of a finished run, or raise an error if its `result.json` is damaged."""
    numbers = read_result_file(path)
    try:
        _fields_and_types().model_validate(numbers)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise DamageError(
            f"{path / 'result.json'} is damaged ({where}: {first['msg'].lower()}); {REMAKE}"
        ) from error
    return Result.from_dict(numbers, path=path)


def replay(result: Result, config: Config, audience: Audience, tags: Mapping[str, Any] | None = None) -> None:
    """Show a finished run to observers, from its first row to its result."""
    path = Path(result.path or "")
    about = RunInfo(path.name, config, path, tags or {}, finished=True)
    with audience.following(about):
        audience.replay(about, lambda: read_events(path))
    audience.finished(about, result)


@cache
def _fields_and_types() -> type[BaseModel]:
    """Return the schema of `result.json`: the saved fields of a result."""
    hints = get_type_hints(Result)
    saved = [field for field in fields(Result) if field.name not in ("path", "weights")]
    # A field with a default came later: older results lack it.
    wanted: dict[str, Any] = {
        field.name: (
            hints[field.name],
            ... if field.default is MISSING and field.default_factory is MISSING else None,
        )
        for field in saved
    }
    return create_model("ResultFile", __config__=ConfigDict(strict=True), **wanted)
