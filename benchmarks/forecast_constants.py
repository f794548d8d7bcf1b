"""Collects the constants that ship with forecasts from finished comparisons of FedAvg.

```
hiflash compare --methods fedavg --data.name mnist --partitions noniid2,noniid1 --seeds 3 --stop.target 0.95 \
    --stop.communications 20000 --name constants-mnist
hiflash compare --methods fedavg --partitions noniid2,noniid1 --seeds 3 --stop.target 0.95 \
    --stop.communications 20000 --name constants-mnist5k
python -m benchmarks.forecast_constants runs/constants-mnist runs/constants-mnist5k \
    > src/hiflash/study/forecast/constants.json
```
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hiflash.config import Config
from hiflash.core.metrics import ACCURACY
from hiflash.store.run_directory import is_finished
from hiflash.study.forecast.constants import rounds_of
from hiflash.study.saved import read_result

__all__ = ["constants", "main"]


def constants(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Return for every dataset and partition the rounds to each target that all seeds reached."""
    runs: dict[tuple[str, str], dict[int, Path]] = {}
    for path in sorted(path for folder in folders for path in folder.iterdir() if path.is_dir()):
        if is_finished(path):
            config = Config.load(path / "config.toml")
            runs.setdefault((config.data.name, config.data.partition), {})[config.seed] = path
    return [_constant(*task, by_seed) for task, by_seed in runs.items()]


def _constant(data: str, partition: str, by_seed: dict[int, Path]) -> dict[str, Any]:
    config = Config.load(next(iter(by_seed.values())) / "config.toml")
    results = [read_result(path) for path in by_seed.values()]
    found = {
        target: [rounds_of(result, float(target), ACCURACY) for result in results]
        for target in results[0].targets
    }
    stop = config.stop
    return {
        "settings": {"data.name": data, "data.partition": partition},
        "targets": {target: rounds for target, rounds in found.items() if None not in rounds},
        "seeds": list(by_seed),
        "digests": [result.digest[:12] for result in results],
        "command": f"hiflash compare --methods fedavg --data.name {data} --partitions {partition} --seeds "
        f"{len(by_seed)} --stop.target {stop.target} --stop.communications {stop.communications}",
    }


def main() -> None:
    """Print the constants of the named folders."""
    print(json.dumps({"constants": constants([Path(name) for name in sys.argv[1:]])}, indent=1))


if __name__ == "__main__":
    main()
