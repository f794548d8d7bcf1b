"""`hiflash associate`: compares strategies that assign clients to edges."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hiflash.cli.common import PAUSED, print_paths
from hiflash.cli.words import settings_options
from hiflash.errors import ConfigError

if TYPE_CHECKING:
    from hiflash.config import Config
    from hiflash.study.associate import AssociationStudy
    from hiflash.study.private_association import PrivacyStudy

__all__ = ["add"]


def add(commands: Any) -> None:
    """Add the command."""
    command = commands.add_parser(
        "associate", help="compare strategies that assign clients to edges", add_help=False
    )
    settings_options(command)
    command.add_argument(
        "--strategy",
        metavar="NAMES",
        help="names with commas (federation.association if given, or heterogeneity)",
    )
    command.add_argument("--sweep", metavar="NUMBERS", help="values of lambda, e.g. 0,50,...,1000")
    command.add_argument(
        "--histograms", metavar="FOLDER", help="associate by what clients sent (hiflash histogram)"
    )
    command.add_argument(
        "--epsilons", metavar="NUMBERS", help="the price of privacy.epsilon at these values, e.g. 0.1,1,inf"
    )
    command.add_argument(
        "--draws", type=int, metavar="N", help="with epsilons: draws of the noise for each value (10)"
    )
    command.add_argument(
        "--out",
        metavar="FILE",
        help="write the association, e.g. FOLDER/association.csv (docs/federation.md)",
    )
    command.set_defaults(call=_associate)


def _associate(options: argparse.Namespace) -> int:
    from rich.console import Console

    from hiflash.report.association import association_table
    from hiflash.report.private_association import privacy_table
    from hiflash.store.files import check_writable
    from hiflash.store.run_directory import check_name
    from hiflash.study.associate import chosen_strategies
    from hiflash.study.histograms import with_histograms
    from hiflash.study.private_association import PrivacyStudy

    by_sent = None if options.histograms is None else "heterogeneity"  # whatever a node's file names
    config, strategies = chosen_strategies(
        options.config, options.strategy or by_sent, options.sweep or (), options.settings
    )
    if options.out is not None:
        _check_out(Path(options.out), strategies, swept=bool(options.sweep))
    if options.histograms is not None:
        if options.epsilons is not None:
            raise ConfigError("--histograms have their noise already; leave out --epsilons")
        config, options.federation = with_histograms(config, options.histograms)
    private = options.epsilons is not None or not isinstance(config.privacy.epsilon, str)
    _check_privacy(options, strategies, private=private)
    name = check_name(options.name or f"associate-{config.data.name}-{config.data.partition}")
    folder = Path(options.runs) / name
    check_writable(folder)
    try:
        study = _study(options, config, strategies, folder, private=private)
    except KeyboardInterrupt:
        print("stopped; nothing was written", file=sys.stderr)
        return PAUSED
    if options.out is not None:
        study.write_association(Path(options.out))
    if options.json:
        print(json.dumps(study.to_json()))
        return 0
    console = Console()
    console.print(privacy_table(study) if isinstance(study, PrivacyStudy) else association_table(study))
    print_paths(console, study.files)
    if options.out is not None:
        print_paths(console, [Path(options.out)])
    return 0


def _study(
    options: argparse.Namespace, config: Config, strategies: list[str], folder: Path, *, private: bool
) -> AssociationStudy | PrivacyStudy:
    """Return the study that was asked for; a bar shows how far it is."""
    from rich.console import Console
    from rich.progress import Progress, TimeElapsedColumn

    from hiflash.study.associate import associate
    from hiflash.study.private_association import DRAWS, price_of_privacy

    columns = (*Progress.get_default_columns()[:3], TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task("clients and resources", total=config.federation.clients)

        def progress(what: str, placed: int) -> None:
            bars.update(bar, description=what, completed=placed)

        if not private:
            sweep = options.sweep or ()
            return associate(config, strategies=strategies, sweep=sweep, directory=folder, progress=progress)
        draws = DRAWS if options.draws is None else options.draws
        epsilons = options.epsilons or ()
        return price_of_privacy(config, epsilons=epsilons, draws=draws, directory=folder, progress=progress)


def _check_privacy(options: argparse.Namespace, strategies: list[str], *, private: bool) -> None:
    """Refuse what does not go with a study of privacy, and what needs one."""
    if not private and options.draws is not None:
        raise ConfigError("--draws counts draws of noise; give --epsilons or --privacy.epsilon too")
    if private and options.sweep:
        raise ConfigError("--sweep varies lambda and --epsilons or --privacy.epsilon the noise; give one")
    if private and len(strategies) > 1:
        raise ConfigError(
            f"the price of privacy is that of one strategy, beside random; --strategy has {len(strategies)}"
        )


def _check_out(path: Path, strategies: list[str], *, swept: bool) -> None:
    """Refuse to write before anything is computed: no association, several, or no place for the file."""
    from hiflash.store.files import check_writable

    if len(strategies) > 1 and not swept:
        raise ConfigError(f"--out writes one association, and --strategy has {len(strategies)}; name one")
    if strategies == ["latency"]:
        raise ConfigError(
            "--out writes the edge of every client, and latency tiers are not places; use another"
        )
    if path.is_dir():
        raise ConfigError(f"--out must be a file, and {path} is a folder; use {path / 'association.csv'}")
    check_writable(path.parent)
