"""The way of a label histogram from a deployed client to whoever associates: written with noise, then read.

The exact histogram never leaves the memory of the client's process, and is neither printed nor written.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hiflash.config import Config
from hiflash.data.arrays import as_answers, as_samples
from hiflash.data.federation import FederationData, read_federation, remember
from hiflash.errors import ConfigError, DataError, RunError
from hiflash.privacy.histograms import Histograms, Release, release_of
from hiflash.privacy.randomness import Randomness, SystemRandomness, require_system
from hiflash.serve.samples import read_samples
from hiflash.sim.federation import outline
from hiflash.store.files import write_atomic

__all__ = ["read_histograms", "with_histograms", "write_histogram"]

Counts = npt.NDArray[np.int64]
FORMAT = "hiflash histogram 1"
MOST_BYTES = 10_000_000


def write_histogram(
    config: Config | str | Path | None, client: int, data: str, path: str | Path
) -> dict[str, Any] | None:
    """Write the label histogram of a deployed client, with noise; return the noise, None if it is exact.

    The noise is that of `privacy.*`, on by default, from the operating system. `data` are the client's own
    samples as in `hiflash client`. A file that exists is not replaced: fresh noise on the same labels would
    spend epsilon again.
    """
    chosen, path = config if isinstance(config, Config) else Config.load(config), Path(path)
    if chosen.serve.data != "own":
        raise ConfigError(
            'clients with data of their own send a histogram: set serve.data = "own"; in a simulation, '
            "hiflash associate shows what noise costs"
        )
    if not 0 <= client < chosen.federation.clients:
        raise ConfigError(
            f"there is no client {client}; federation.clients is {chosen.federation.clients}, from 0"
        )
    if path.exists():
        raise RunError(
            f"{path} exists: send it again as it is, or remove it if it was never sent. Fresh noise on the "
            "same labels would spend epsilon again"
        )
    release = release_of(chosen.privacy, deployed=True)
    counts = _sent(_own_counts(chosen, client, data), release, SystemRandomness())
    rules = None if release is None else asdict(release)
    told = {"format": FORMAT, "client": client, "release": rules, "counts": counts.tolist()}
    write_atomic(path, json.dumps(told) + "\n", mode=0o600)
    return rules


def read_histograms(folder: str | Path) -> tuple[Counts, dict[str, Any] | None]:
    """Return the histograms that clients have sent, a row each, and their noise, None if they are exact.

    All are there, and protected alike.
    """
    files = sorted(Path(folder).glob("*.json"))
    if not files:
        raise DataError(f"{folder} has no histograms; put there the files that hiflash histogram has written")
    found: dict[int, tuple[Path, dict[str, Any]]] = {}
    for path in files:
        told = _read(path)
        if told["client"] in found:
            raise DataError(f"{path} and {found[told['client']][0]} are both of client {told['client']}")
        found[told["client"]] = (path, told)
    missing = sorted(set(range(len(found))) - set(found))
    if missing:
        raise DataError(f"{folder}: the histogram of client {missing[0]} is missing; clients count from 0")
    first_path, first = found[0]
    for path, told in found.values():
        for name, words in (("release", "noise"), ("counts", "number of classes")):
            one, other = (_comparable(each[name]) for each in (told, first))
            if one != other:
                raise DataError(f"{path} and {first_path} differ in their {words}: {one} and {other}")
    counts: Counts = np.array([found[client][1]["counts"] for client in range(len(found))], np.int64)
    counts[counts.sum(axis=1) == 0] = 1  # noise has left nothing: all classes alike
    return counts, first["release"]


def with_histograms(config: Config, folder: str | Path) -> tuple[Config, FederationData]:
    """Return a configuration that associates by the histograms of a folder, and its federation.

    Keep the federation while the configuration is used. Noise is not added again. Latencies and links come
    from `federation.files`; numbers of samples from there do not count.
    """
    if config.privacy.histograms != "single":
        raise ConfigError(
            f'--histograms are of single clients, and privacy.histograms = "{config.privacy.histograms}" '
            "opens none; leave one of them out"
        )
    (labels, sent), files = read_histograms(folder), config.federation.files
    _check_release(config, sent, folder)
    if len(labels) != config.federation.clients:
        raise ConfigError(
            f"{folder} has histograms of {len(labels)} clients, and federation.clients is "
            f"{config.federation.clients}; all clients must send theirs"
        )
    measured = read_federation(files) if files else FederationData()
    federation = replace(measured, labels=labels, samples=None, association=None, origins={})
    own = {"federation.files": remember(federation), "serve.data": "partition", "privacy.epsilon": "off"}
    return config.with_choices(own), federation


def _check_release(config: Config, sent: dict[str, Any] | None, folder: str | Path) -> None:
    """Raise if histograms were sent with other noise than the configuration has: ledgers go by that."""
    release = release_of(config.privacy, deployed=True)
    wanted = None if release is None else asdict(release)
    if sent != wanted:
        raise ConfigError(
            f"{folder} has histograms with {_comparable(sent)}, and the configuration has "
            f"{_comparable(wanted)}, which privacy ledgers would charge; give the privacy.* with which "
            "clients have sent them"
        )


def _own_counts(config: Config, client: int, data: str) -> Counts:
    """Return the exact histogram of a client's own samples."""
    reference, _ = outline(config)
    tasks = {config.data.task, "classification" if reference is None else reference.task}
    if reference is None or not tasks <= {"auto", "classification"}:
        raise ConfigError("a label histogram counts classes, and the data of this configuration has none")
    where, (x, y) = f"samples of client {client}", read_samples(data, client)
    task = reference.task
    own = replace(reference, x_test=as_samples(x, task, where), y_test=as_answers(y, task, where))
    return np.bincount(own.y_test, minlength=reference.classes).astype(np.int64)


def _sent(counts: Counts, release: Release | None, randomness: Randomness) -> Counts:
    """Return what a client gives away of its histogram: whole counts, with noise."""
    histograms, stream = Histograms(release), require_system(randomness).stream("histogram")
    (sent,) = histograms.read(histograms.sent(counts[None], stream))
    return np.asarray(sent, np.int64)


def _read(path: Path) -> dict[str, Any]:
    try:
        told: dict[str, Any] = json.loads(path.read_bytes()) if path.stat().st_size <= MOST_BYTES else {}
        why = _problem(told)
    except (OSError, ValueError, RecursionError) as error:
        why = str(error)
    if why:
        raise DataError(f"{path} is not what hiflash histogram writes: {why}; let its client write it anew")
    return told


def _problem(told: object) -> str:
    """Return what is wrong with the content of a file, empty if nothing is."""
    if not isinstance(told, dict) or told.get("format") != FORMAT:
        return "it has another form"
    counts = told.get("counts")
    if not isinstance(counts, list) or not counts or not all(map(_is_count, [*counts, told.get("client")])):
        return "it must have the number of a client, and a whole number >= 0 for every class"
    return "" if isinstance(told.get("release", ""), dict | None) else "it does not say how it is protected"


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 10**12


def _comparable(value: Any) -> Any:
    if isinstance(value, list):
        return len(value)
    return "no noise" if value is None else ", ".join(f"{key} {each}" for key, each in sorted(value.items()))
