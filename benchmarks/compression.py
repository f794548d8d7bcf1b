"""`python -m benchmarks.compression`: the bytes that compression saves HiFL, and its price."""

from __future__ import annotations

from collections.abc import Sequence

import hiflash

GOAL = "0.8"
CODECS = (  # upload, download, share of the values that top-k sends
    ("none", "none", 0.01),
    ("fp16", "fp16", 0.01),
    ("int8", "int8", 0.01),
    ("topk", "int8", 0.1),
    ("topk", "topk", 0.1),
    ("topk", "topk", 0.01),
)


def main(communications: int = 200, codecs: Sequence[tuple[str, str, float]] = CODECS) -> None:
    """Print the cost to reach the target and the final accuracy for each compression."""
    print(
        f"{'upload':<12}{'download':<12}{'accuracy':>9}{'WAN':>10}   to {GOAL}: communications, WAN, virtual"
    )
    for upload, download, share in codecs:
        result = hiflash.run(
            method="hifl",
            seed=0,
            cloud={"threshold": 2, "mixing": "delta", "alpha": 1.0},
            wan={"upload": upload, "download": download, "topk": share},
            stop={"target": "none", "communications": communications},
        )
        names = [f"topk {share}" if name == "topk" else name for name in (upload, download)]
        line = f"{names[0]:<12}{names[1]:<12}{result.accuracy:>9.3f}{result.wan_bytes / 1e6:>7.1f} MB"
        reached = result.targets[GOAL]
        if reached:
            megabytes, seconds = reached["wan_bytes"] / 1e6, reached["virtual_s"]
            line += f"{reached['communications']:>22}{megabytes:>8.1f} MB{seconds:>6.1f} s"
        print(line, flush=True)


if __name__ == "__main__":
    main()
