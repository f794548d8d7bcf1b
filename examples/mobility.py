"""See whether repairs keep clusters balanced and near while clients move, join and leave.

The control plane alone: nothing is trained. 200 virtual seconds and three seeds each.
"""

from statistics import mean

import hiflash

SETTINGS = {
    "trainer": "none",
    "federation.heterogeneity_weight": 300.0,
    "mobility.moves_per_s": 1.0,
    "mobility.joins_per_s": 0.5,
    "mobility.leaves_per_s": 0.5,
    "mobility.absent": 0.2,
    "stop.communications": "none",
    "stop.client_steps": "none",
    "stop.virtual_s": 200.0,
}
REPAIRS = {
    "never": {},
    "every 60 s": {"mobility.repair_s": 60.0},
    "every 10 s": {"mobility.repair_s": 10.0},
    "every 10 s, switching is free": {"mobility.repair_s": 10.0, "mobility.switching_cost": 0.0},
}


def main() -> None:
    """Print the averages over virtual time and seeds."""
    print("repaired                       total JS  latency  switches  communications")
    for name, repair in REPAIRS.items():
        runs = [hiflash.run(seed=seed, **SETTINGS, **repair) for seed in range(3)]
        total_js = mean(run.mobility["mean_total_js"] for run in runs)
        latency_ms = mean(run.mobility["mean_latency_ms"] for run in runs)
        switches = mean(run.mobility["switches"] for run in runs)
        communications = mean(run.communications for run in runs)
        print(f"{name:30} {total_js:8.2f} {latency_ms:5.1f} ms {switches:9.0f} {communications:15.0f}")


if __name__ == "__main__":
    main()
