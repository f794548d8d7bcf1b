"""What the files of a federation bring to a configuration, and which settings they leave without effect.

Paths in settings become absolute here, those of training functions too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hiflash.errors import ConfigError, DataError
from hiflash.methods.plugins import function_from_anywhere

if TYPE_CHECKING:
    from hiflash.config.tree import Config
    from hiflash.data.federation import FederationData

__all__ = ["brought_by_files", "content_digest", "misfits", "with_absolute_files"]

KEY = "federation.files"
FUNCTION = "client.function"
TOLD = {
    "resources.f_ghz": ("f_ghz", "step_ms"),
    "resources.cycles_per_bit": ("step_ms",),
    "resources.bandwidth_mhz": ("bandwidth_mbps", "send_ms"),
    "resources.snr_db": ("bandwidth_mbps", "send_ms"),
    "wan.rtt_ms": ("wan_rtt_ms",),
    "wan.bandwidth_mbps": ("wan_bandwidth_mbps",),
}
"""Ranges that nothing is drawn from where one of these arrays is given."""
DRAWN = ("moves_per_s", "joins_per_s", "leaves_per_s", "absent")


def with_absolute_files(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return dotted settings whose folder of files and training function can be found from anywhere."""
    absolute, files, function = dict(given), given.get(KEY), given.get(FUNCTION)
    if isinstance(function, str):
        absolute[FUNCTION] = function_from_anywhere(function)
    if files and isinstance(files, str):
        from hiflash.data.federation import from_anywhere

        absolute[KEY] = from_anywhere(files)
    return absolute


def brought_by_files(given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that the files of a federation imply: its size, and its association."""
    files = given.get(KEY)
    if not files or not isinstance(files, str):
        return {}
    found = _read(files)
    brought: dict[str, Any] = {"federation.clients": found.clients, "federation.edges": found.edges}
    # Latency tiers are a schedule of the method, and no places that an association could name.
    if found.association is not None and recipe.get("federation.association") != "latency":
        brought["federation.association"] = "given"
    return {key: value for key, value in brought.items() if value is not None}


def content_digest(files: str) -> str:
    """Return a short hash of what the files of a federation say."""
    return _read(files).digest[:12]


def misfits(config: Config) -> list[str]:
    """Return the settings that contradict the files of a federation, or have no effect because of them."""
    federation = config.federation
    if not federation.files:
        return []
    found = _read(federation.files)
    with _as_config_errors():
        found.check(federation.clients, federation.edges)
    problems = []
    if federation.association == "given" and found.association is None and not federation.flat:
        problems.append(
            f'federation.association = "given" needs an association.csv, and {federation.files} has none; '
            "use another association"
        )
    for key, names in TOLD.items():
        section, name = key.split(".")
        value, usual = getattr(getattr(config, section), name), _default(config, section, name)
        told = next((name for name in names if getattr(found, name) is not None), None)
        if told is not None and value != usual:
            problems.append(f"{key} has no effect: {found.origin(told)} gives {told}; leave it out")
    return problems + (_mobility_misfits(config) if found.availability is not None else [])


def _mobility_misfits(config: Config) -> list[str]:
    """Return the settings that do not go with a schedule of joins, leaves and moves."""
    federation = config.federation
    problems = [
        f"mobility.{name} draws what {federation.files} gives (availability); leave it out"
        for name in DRAWN
        if getattr(config.mobility, name)
    ]
    if config.resources.slow_edge != 1:
        problems.append("resources.slow_edge needs fixed clusters, and there is availability; leave it out")
    if federation.association == "latency" and not federation.flat:
        problems.append(
            f"availability needs edges at places, and the edges of {config.method} are latency tiers "
            '(federation.association = "latency"); use another method or leave availability out'
        )
    if config.privacy.histograms == "group" and not federation.flat:
        problems.append(
            'privacy.histograms = "group" opens no single histogram, and clients that join by availability '
            'are placed by theirs; use "single" with a privacy.epsilon, or leave availability out'
        )
    return problems


def _default(config: Config, section: str, name: str) -> Any:
    return type(getattr(config, section)).model_fields[name].default


def _read(files: str) -> FederationData:
    from hiflash.data.federation import read_federation

    with _as_config_errors():
        return read_federation(files)


@contextmanager
def _as_config_errors() -> Iterator[None]:
    """Raise what is wrong with files as an error of the configuration that names them."""
    try:
        yield
    except DataError as error:
        raise ConfigError(str(error)) from error
