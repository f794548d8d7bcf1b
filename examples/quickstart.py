"""Run HiFL with two ways of mixing and see what each needs to get from 70 % to 80 % and 85 %."""

import hiflash

BUDGET = {"target": 0.85, "communications": 400}


def main() -> None:
    """Print what each way of mixing took."""
    for mixing, alpha in (("interpolate", 0.7), ("delta", 1.0)):
        result = hiflash.run(
            method="hifl", seed=0, stop=BUDGET, cloud={"threshold": 2, "mixing": mixing, "alpha": alpha}
        )
        print(f"{mixing}: accuracy {result.accuracy:.3f}, {result.communications} communications")
        for target in ("0.7", "0.8", "0.85"):
            reached = result.targets[target]
            print(f"  {target}: {reached['communications'] if reached else 'not'} communications")


if __name__ == "__main__":
    main()
