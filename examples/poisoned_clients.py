"""Let 2 of 10 clients poison FedAvg: the mean collapses, median and Krum hold."""

import hiflash

ATTACK = {"kind": "sign_flip", "share": 0.2, "scale": 10.0}
COMMON = {
    "method": "fedavg",
    "federation": {"clients": 10, "edges": 1},
    "data": {"partition": "iid"},
    "client": {"lr": 0.05},
    "stop": {"target": "none", "communications": 400, "client_steps": 1200},
    "evaluate": {"every": 100},
}


def main() -> None:
    """Print the accuracy without an attack, and of three rules under it."""
    clean = hiflash.run(**COMMON)
    print(f"mean, nobody malicious: {clean.accuracy:.3f} after {clean.communications} communications")
    for rule in ({"aggregate": "mean"}, {"aggregate": "median"}, {"aggregate": "krum", "byzantine": 2}):
        result = hiflash.run(cloud=rule, attack=ATTACK, **COMMON)
        print(f"{rule['aggregate']}, 2 of 10 malicious: {result.accuracy:.3f}")


if __name__ == "__main__":
    main()
