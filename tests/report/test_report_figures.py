from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from hiflash.errors import StorageError
from hiflash.report import compare_figures, figures
from hiflash.report.compare_figures import draw_compare
from hiflash.report.figures import draw_run
from hiflash.report.methods import looks

MakeResult = Callable[..., dict[str, Any]]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Collect the figures instead of saving them, to look at what is on them."""
    kept: list[Figure] = []

    def keep(figure: Figure, stem: Path) -> list[Path]:
        kept.append(figure)
        return []

    for module in (figures, compare_figures):
        monkeypatch.setattr(module, "save", keep)
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
    assert [path.name for path in first] == [
        f"{name}.{kind}" for name in ("compare", "targets", "tradeoff", "latency") for kind in ("png", "pdf")
    ]
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
    with pytest.raises(StorageError, match=r"run\.png cannot be written: disk full"):
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


CURVES, TARGETS, TRADEOFF, LATENCY = range(4)


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
    bars = drawn[TARGETS].axes[0]
    assert _texts(drawn[TARGETS], 0) == ["60", "40 (1 of 2 seeds)", "not reached (best 30.0%)"]
    assert [text.get_text() for text in bars.get_yticklabels()] == ["FedAvg", "HiFL", "FedAsync"]
    assert len(bars.patches) == 2  # nothing is drawn for what was not reached
    assert [axes.get_xlabel() for axes in drawn[TARGETS].axes] == [
        "Communications", "Client steps", "Virtual time (s)", "WAN bytes",
    ]  # fmt: skip


def test_bars_say_seconds_as_their_axis_does(make_result: MakeResult, drawn: list[Figure]) -> None:
    draw_compare([make_result(every=300)], Path("x"))
    assert _texts(drawn[TARGETS], 2) == ["3 k"]  # 4 * 300 * 2.5 s, not 50 min


def test_a_panel_without_bars_has_no_scale(make_result: MakeResult, drawn: list[Figure]) -> None:
    draw_compare([make_result(accuracies=(0.3,)), make_result(partition="iid")], Path("x"))
    empty, full = drawn[TARGETS].axes[0], drawn[TARGETS].axes[4]
    assert list(empty.get_xticks()) == []
    assert len(full.get_xticks()) > 1


def test_without_a_target_bars_are_the_totals(make_result: MakeResult, drawn: list[Figure]) -> None:
    draw_compare([make_result(target=None, accuracies=(0.1, 0.2))], Path("x"))
    assert _texts(drawn[TARGETS], 0) == ["20"]
    assert "in total" in drawn[TARGETS].get_suptitle()


def test_every_partition_has_its_row_and_the_reference_is_in_all(
    make_result: MakeResult, drawn: list[Figure]
) -> None:
    cells = [make_result("centralized", 0, every=0), make_result("hifl")]
    cells.append(make_result("hifl", accuracies=(0.3, 0.5), partition="noniid1"))
    draw_compare(cells, Path("x"))
    for number, figure in enumerate(drawn[:3]):
        titles = [axes.get_title(loc="left") for axes in figure.axes]
        assert [title for title in titles if title] == ["noniid2", "noniid1"], number
    levels = [
        line
        for axes in drawn[CURVES].axes
        for line in axes.get_lines()
        if list(line.get_ydata()) == [0.91] * 2
    ]
    assert len(levels) == 6  # the centralized level in every panel
    assert _texts(drawn[TARGETS], 4) == ["not reached (best 50.0%)"]


def test_variants_of_one_method_are_apart(make_result: MakeResult, drawn: list[Figure]) -> None:
    cells = [make_result("hifl", label=label) for label in ("hifl", "hifl+delta", "other")]
    draw_compare(cells, Path("x"))
    (legend,) = drawn[CURVES].legends
    assert [text.get_text() for text in legend.get_texts()] == ["HiFL", "HiFL + delta", "other", "Target 90%"]
    lines = drawn[CURVES].axes[0].get_lines()
    assert len({line.get_color() for line in lines if line.get_label()[0] == "_"}) >= 3


def test_the_legend_fits_into_a_narrow_figure(make_result: MakeResult, drawn: list[Figure]) -> None:
    labels = ("fedavg", "hierfavg", "hifl", "hiflash", "hifl+delta+aware+momentum")
    draw_compare([make_result(label=label) for label in labels], Path("x"))
    for figure in drawn:
        figure.draw_without_rendering()
        for legend in figure.legends:
            assert len(legend.get_texts()) == 6
            assert legend.get_window_extent().x0 >= 0
            assert legend.get_window_extent().x1 <= figure.bbox.width


def test_the_tradeoff_goes_through_targets_that_all_seeds_reached_to_the_best(
    make_result: MakeResult, drawn: list[Figure]
) -> None:
    # 0.7 after 30 and 10 communications: 20 in the mean; 0.9 by one seed only; the bests at 40 and 20.
    cells = [make_result("hifl", 0), make_result("hifl", 1, (0.75, 0.85))]
    draw_compare(cells, Path("x"))
    line = drawn[TRADEOFF].axes[0].get_lines()[0]
    assert list(line.get_xdata()) == [20, 30]
    assert list(line.get_ydata()) == pytest.approx([0.7, 0.88])


def test_latencies_are_drawn_once_where_partitions_agree(
    make_result: MakeResult, drawn: list[Figure]
) -> None:
    flat = make_result("fedavg", waiting_ms=0.0, response_latency_ms=12.0)
    cells = [make_result("hifl"), flat, make_result("hifl", partition="iid"), {**flat, "partition": "iid"}]
    draw_compare(cells, Path("x"))
    assert len(drawn[LATENCY].axes) == 2
    assert _texts(drawn[LATENCY], 0) == ["88", "12"]
    assert _texts(drawn[LATENCY], 1) == ["40", "0: no edges"]
    draw_compare([*cells[:3], {**cells[3], "response_latency_ms": 13.0}], Path("x"))
    assert len(drawn[4 + LATENCY].axes) == 4


@pytest.mark.parametrize(("every", "scale"), [(200, "linear"), (201, "log")])
def test_the_axis_is_logarithmic_past_a_ratio_of_twenty(
    make_result: MakeResult, drawn: list[Figure], every: int, scale: str
) -> None:
    draw_compare([make_result("fedavg", every=every), make_result("hifl", every=10)], Path("x"))
    assert drawn[0].axes[0].get_xscale() == scale
    drawn[0].draw_without_rendering()  # where matplotlib would warn about an axis it cannot label


@pytest.mark.parametrize(("late", "scale"), [(98, "linear"), (100, "log")])
def test_the_axis_is_logarithmic_if_curves_rise_in_its_first_hundredths(
    make_result: MakeResult, drawn: list[Figure], late: int, scale: str
) -> None:
    values = (0.1, *[0.9] * late)  # half-way at the second of 99 or 101 evaluations
    draw_compare([make_result("fedavg", 0, values), make_result("hifl", 0, values)], Path("x"))
    assert [axes.get_xscale() for axes in drawn[0].axes] == [scale] * 3


def test_a_comparison_survives_cells_without_accuracy(make_result: MakeResult, drawn: list[Figure]) -> None:
    draw_compare([make_result("fedavg", accuracies=()), make_result("centralized", accuracies=())], Path("x"))
    draw_compare([make_result("fedavg", accuracies=()), make_result("hifl", accuracies=(0.5,))], Path("x"))
    draw_compare([make_result("centralized", every=0)], Path("x"))
    assert _texts(drawn[CURVES], 0) == ["no evaluation"]
    assert _texts(drawn[4 + TARGETS], 0) == ["not reached (best -)", "not reached (best 50.0%)"]
    for figure in drawn:
        figure.draw_without_rendering()


def test_known_methods_always_look_the_same_and_no_two_labels_look_alike() -> None:
    known = ["centralized", "fedavg", "fedprox", "fedasync", "fedbuff", "hierfavg", "tifl", "fedat", "hifl"]
    chosen = looks([*known, "hiflash", *(f"mine{i}" for i in range(30))])
    assert len(set(chosen.values())) == 40
    assert len({look.colour for look in chosen.values()}) == 17
    assert looks(["x", "hifl"])["hifl"] == chosen["hifl"]
