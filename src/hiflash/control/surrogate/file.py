"""Surrogates as JSON files: the fitted numbers, the runs behind them, their errors, and a checksum."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hiflash.agents import FOLDER, shipped_name
from hiflash.config import Config
from hiflash.control.surrogate.model import Surrogate
from hiflash.errors import ConfigError
from hiflash.store.checksums import json_sha256
from hiflash.store.files import write_atomic

__all__ = ["load_surrogate", "save_surrogate"]

FORMAT = "hiflash surrogate 2"


def save_surrogate(path: Path, surrogate: Surrogate, about: dict[str, Any]) -> None:
    """Write a surrogate and the description of its calibration."""
    content = {"format": FORMAT, "parameters": surrogate.to_dict(), "about": about}
    content["sha256"] = json_sha256(content)
    write_atomic(path, json.dumps(content, indent=1).encode() + b"\n")


def load_surrogate(path: str | Path, config: Config) -> Surrogate:
    """Return the surrogate of a file; "auto" takes the shipped one that suits the configuration."""
    found = Path(path)
    if path == "auto":
        name = shipped_name(config.data.name, config.federation.association)
        shipped = sorted(file.stem for file in FOLDER.glob("*.json"))
        if name not in shipped:
            raise ConfigError(
                f"no surrogate {name!r} comes with HiFlash; there are: {', '.join(shipped)}. "
                "Make one with hiflash calibrate, and give the path of its file"
            )
        found = FOLDER / f"{name}.json"
    try:
        text = found.read_text()
        content = json.loads(text, parse_int=float)  # a 400-digit number becomes infinite, not a huge int
        checksum = json_sha256(json.loads(text)) if isinstance(content, dict) else None
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{found} is no surrogate ({error}); make one with: hiflash calibrate") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ConfigError(f"{found} is no surrogate of this version; make one with: hiflash calibrate")
    if content.get("sha256") != checksum:
        raise ConfigError(
            f"{found} is damaged or was edited: its checksum does not match; "
            "copy it again, or make one with: hiflash calibrate"
        )
    numbers = content.get("parameters")
    return Surrogate.from_dict(numbers if isinstance(numbers, dict) else {})
