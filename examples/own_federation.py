"""Plan with a measured federation: files, arrays in Python, and an association that is kept.

Nothing is trained: the runs say what bytes, virtual time and cost methods would take there.
"""

from pathlib import Path

import numpy as np

import hiflash

FILES = Path(__file__).parent / "federation"
PLAN = {"trainer": "none", "data": {"name": "none"}, "stop": {"communications": 300, "client_steps": "none"}}


def main() -> None:
    """Print what a thousand client rounds take with three methods, then a run with arrays."""
    settings = {**PLAN, "federation": {"files": str(FILES)}}
    comparison = hiflash.compare(methods=["fedavg", "hifl", "hiflash"], seeds=1, **settings)
    print("method    WAN MB  virtual s  cost   (per 1,000 client rounds)")
    for row in comparison.rows():
        wan, virtual_s, cost = (
            1000 * row[f"{name}_per_client_round_mean"] for name in ("wan_bytes", "virtual_s", "total_cost")
        )
        print(f"{row['label']:8} {wan / 1e6:7.1f} {virtual_s:10.1f} {cost:5.0f}")

    stream = np.random.default_rng(0)
    measured = hiflash.FederationData(
        send_ms=stream.uniform(20, 200, (12, 3)),  # 12 clients, 3 edges
        step_ms=stream.uniform(2, 20, 12),
        availability=[hiflash.ClientEvent(5.0, 4, "leave"), hiflash.ClientEvent(9.0, 4, "join", edge=1)],
    )
    result = hiflash.run(method="hifl", federation=measured, **PLAN)
    print(f"arrays: {result.communications} communications in {result.virtual_s:.0f} virtual seconds")


if __name__ == "__main__":
    main()
