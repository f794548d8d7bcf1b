from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from hiflash.report import figures
from hiflash.report.figures import draw_compare, draw_run
from hiflash.report.methods import colour

MakeResult = Callable[..., dict[str, Any]]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Collect the figures instead of saving them, to look at what is on them."""
    kept: list[Figure] = []

    def keep(figure: Figure, stem: Path) -> list[Path]:
        kept.append(figure)
        return []

    monkeypatch.setattr(figures, "save", keep)
    return kept


def _texts(figure: Figure, panel: int) -> list[str]:
    return [text.get_text() for text in figure.axes[panel].texts]


def test_a_run_is_saved_as_png_and_pdf_and_leaves_nothing_else(
    make_result: MakeResult, tmp_path: Path
) -> None:
    paths = draw_run(make_result(), tmp_path / "new" / "alpha0.7")
    assert [path.name for path in paths] == ["alpha0.7.png", "alpha0.7.pdf"]
    assert paths[0].read_bytes().startswith(b"\x89PNG")
    assert paths[1].read_bytes().startswith(b"%PDF")
    assert sorted((tmp_path / "new").iterdir()) == sorted(paths)


def test_drawing_again_gives_the_same_bytes(make_result: MakeResult, tmp_path: Path) -> None:
    cells = [make_result(method, seed) for method in ("fedavg", "hifl") for seed in (0, 1)]
    first, second = (draw_compare(cells, tmp_path / name) for name in ("a", "b"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_a_failed_save_keeps_the_old_figure(
    make_result: MakeResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "run.png"
    old.write_bytes(b"old")

    def fail(self: Figure, path: Path, **options: object) -> None:
        path.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(OSError, match="disk full"):
        draw_run(make_result(), tmp_path / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["run.png"]
    assert old.read_bytes() == b"old"


def test_a_run_shows_its_best_accuracy_in_three_panels(make_result: MakeResult, drawn: list[Figure]) -> None:
    draw_run(make_result(accuracies=(0.3, 0.95, 0.9)), Path("x"))
    assert [_texts(drawn[0], panel) for panel in range(3)] == [["best 95.0%"]] * 3


@pytest.mark.parametrize(
    ("accuracies", "said"),
    [((0.4,), "best 40.0%"), ((), "no evaluation"), ((None, float("nan")), "no evaluation")],
)
def test_a_run_with_hardly_any_evaluation_is_drawn(
    make_result: MakeResult, drawn: list[Figure], accuracies: tuple[float | None, ...], said: str
) -> None:
    draw_run(make_result(accuracies=accuracies), Path("x"))
    assert _texts(drawn[0], 0) == [said]


def test_a_centralized_run_is_a_level_line(make_result: MakeResult, drawn: list[Figure]) -> None:
    draw_run(make_result("centralized", every=0, target=None), Path("x"))
    (line,) = drawn[0].axes[0].get_lines()
    assert list(line.get_ydata()) == [0.91, 0.91]
    assert _texts(drawn[0], 0) == ["not used; final accuracy 91.0%"]


def test_the_mean_covers_only_where_all_seeds_have_data(make_result: MakeResult, drawn: list[Figure]) -> None:
    cells = [make_result("hifl", 0, (0.2, 0.4, 0.6)), make_result("hifl", 1, (0.4, 0.6))]
    draw_compare(cells, Path("x"))
    mean = drawn[0].axes[0].get_lines()[2]
    assert list(mean.get_xdata()) == [10, 20]
    assert list(mean.get_ydata()) == pytest.approx([0.3, 0.5])


def test_seeds_evaluated_at_different_points_are_interpolated(
    make_result: MakeResult, drawn: list[Figure]
) -> None:
    cells = [
        make_result("hifl", 0, (0.2, 0.4), every=10),
        make_result("hifl", 1, (0.5, 0.5, 0.5, 0.5), every=5),
    ]
    draw_compare(cells, Path("x"))
    mean = drawn[0].axes[0].get_lines()[2]
    assert list(mean.get_xdata()) == [10, 15, 20]
    assert list(mean.get_ydata()) == pytest.approx([0.35, 0.40, 0.45])


def test_bars_say_what_was_reached_and_by_how_many_seeds(
    make_result: MakeResult, drawn: list[Figure]
) -> None:
    never = (0.2, 0.3)
    cells = [
        make_result("fedavg", 0),
        make_result("fedavg", 1, every=20),
        make_result("hifl", 0),
        make_result("hifl", 1, never),
        make_result("fedasync", 0, never),
        make_result("centralized", 0, every=0),
    ]
    draw_compare(cells, Path("x"))
    assert _texts(drawn[0], 3) == ["60", "40 (1/2 seeds)", "not reached"]


def test_without_a_target_bars_are_the_totals(make_result: MakeResult, drawn: list[Figure]) -> None:
    draw_compare([make_result(target=None, accuracies=(0.1, 0.2))], Path("x"))
    assert _texts(drawn[0], 3) == ["20"]
    assert drawn[0].axes[3].get_xlabel() == "Communications in total"


@pytest.mark.parametrize(("every", "scale"), [(200, "linear"), (201, "log")])
def test_the_axis_is_logarithmic_past_a_ratio_of_twenty(
    make_result: MakeResult, drawn: list[Figure], every: int, scale: str
) -> None:
    draw_compare([make_result("fedavg", every=every), make_result("hifl", every=10)], Path("x"))
    assert drawn[0].axes[0].get_xscale() == scale
    drawn[0].draw_without_rendering()  # where matplotlib would warn about an axis it cannot label


def test_a_comparison_survives_cells_without_accuracy(make_result: MakeResult, drawn: list[Figure]) -> None:
    draw_compare([make_result("fedavg", accuracies=()), make_result("centralized", accuracies=())], Path("x"))
    draw_compare([make_result("fedavg", accuracies=()), make_result("hifl", accuracies=(0.5,))], Path("x"))
    assert _texts(drawn[0], 0) == ["no evaluation"]
    assert _texts(drawn[1], 3) == ["not reached", "not reached"]
    drawn[0].draw_without_rendering()


def test_colours_depend_on_the_name_alone_and_known_ones_differ() -> None:
    known = [
        "centralized",
        "fedavg",
        "fedprox",
        "fedasync",
        "fedbuff",
        "hierfavg",
        "tifl",
        "fedat",
        "hifl",
        "hiflash",
    ]
    assert len({colour(method) for method in known}) == len(known)
    assert colour("mine") == colour("mine")
    assert colour("mine") not in {colour(method) for method in known}
