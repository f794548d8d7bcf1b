"""Writes the C source of a network: the kernels with the sizes of its layers as constants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from hiflash.train.native.conv import CONV_KERNELS
from hiflash.train.native.kernels import KERNELS
from hiflash.train.native.network import Conv, Dense, NativeUnavailable, Stage, packed_slots, round_up
from hiflash.train.native.templates import CONV_SAMPLES, CONV_STAGE, ENTRY_POINTS

__all__ = ["GROUP", "Machine", "generate"]

GROUP = 64  # samples that pass through the network together; a multiple of 4, the samples of a dense block
CACHE_LINE = 16  # floats
LARGEST_WORKSPACE = 1 << 28  # floats: a gibibyte, and no offset overflows an int


@dataclass(frozen=True)
class Machine:
    """Floats per vector and number of vector registers: they decide the sizes of register blocks."""

    lanes: int
    registers: int

    @property
    def block(self) -> int:
        """Return the number of accumulators in a block; the other registers are for operands."""
        return 12 if self.registers < 32 else 24

    @property
    def channel_vecs(self) -> int:
        """Return the largest number of channel vectors in a block: a block should be about square."""
        return 3 if self.registers < 32 else 4


def generate(stages: tuple[Stage, ...], machine: Machine) -> str:
    """Return the C source: `workspace_floats`, `train` and `evaluate`."""
    writer = _Writer(stages, machine)
    parts = [
        f"#define LANES {machine.lanes}\n#define GROUP {GROUP}\n{_swaps(machine.lanes)}",
        KERNELS,
        CONV_KERNELS,
    ]
    parts += [writer.conv_stage(i, stage) for i, stage in enumerate(stages) if isinstance(stage, Conv)]
    parts += [writer.gather(), writer.forward(), writer.backward(), writer.repack()]
    # Only now is the size of the workspace known: every function above reserved its part.
    if writer.used > LARGEST_WORKSPACE:
        raise NativeUnavailable(f"the network needs {writer.used * 4 / 2**30:.1f} GiB per worker")
    constants = {"SIZE": writer.size, "WORKSPACE": writer.used, "CLASSES": stages[-1].outs, **writer.places}
    defines = "\n".join(f"#define {name} {value}" for name, value in constants.items())
    return "\n".join([parts[0], defines, *parts[1:], ENTRY_POINTS])


class _Writer:
    """Writes the functions of a network's stages and hands out the workspace.

    X<i> is the input of stage i for a group of samples, and D<i> its gradient. LOGITS is the output of the
    last stage, and DLOGITS its gradient.
    """

    def __init__(self, stages: tuple[Stage, ...], machine: Machine) -> None:
        self.stages = stages
        self.machine = machine
        self.places: dict[str, int] = {}
        self.used = 0
        _, starts, self.size = packed_slots(stages, machine.lanes)
        for name in ("WEIGHTS", "GRADIENT", "ANCHOR", "VELOCITY"):
            self._reserve(name, self.size)
        for i, (stage, start) in enumerate(zip(stages, starts, strict=True)):
            end = [*starts, self.size][i + 1]
            bias = end - round_up(stage.outs, machine.lanes)
            self.places[f"WEIGHTS{i}"] = self.places["WEIGHTS"] + start
            self.places[f"GRADIENT{i}"] = self.places["GRADIENT"] + start
            self.places[f"BIAS{i}"] = self.places["WEIGHTS"] + bias
            self.places[f"DBIAS{i}"] = self.places["GRADIENT"] + bias
            self._inputs(i, stage)
        last = round_up(stages[-1].outs, machine.lanes)
        self.places["LOGITS_STRIDE"] = last
        for name in ("LOGITS", "DLOGITS"):
            self._reserve(name, GROUP * last)
        convs = [stage for stage in stages if isinstance(stage, Conv)]
        # Gradients of one channel, or of one column and all channels.
        most = max((max(s.rows * s.cols, s.rows * s.pool * s.outs) for s in convs), default=0)
        for name in ("AT", "ENTRIES"):
            self._reserve(name, most + 1)
        self._reserve("STARTS", max((s.rows * s.pool for s in convs), default=0) + 1)
        laned = [stage for stage in convs if self._by_samples(stage)]
        self._reserve("LANE_X", machine.lanes * max((s.padded_size for s in laned), default=0))
        for name in ("LANE_Y", "LANE_WHERE"):
            self._reserve(name, machine.lanes * max((s.cols * s.outs for s in laned), default=0))
        self._reserve("CORRECTION", self.size)

    def conv_stage(self, i: int, stage: Conv) -> str:
        """Return the functions of one convolution stage."""
        lanes, after = self.machine.lanes, self.stages[i + 1]
        row = round_up(stage.run, lanes)
        y, y_pitch = f"X{i + 1} + b * X{i + 1}_STRIDE", stage.cols * stage.outs
        dy = f"D{i + 1} + b * X{i + 1}_STRIDE"
        if isinstance(after, Conv):  # its input is padded, and its gradient kept for one sample at a time
            y, y_pitch = f"{y} + {after.interior}", after.pitch
            dy = f"D{i + 1} + {after.interior}"
        outputs = stage.rows * stage.cols * stage.outs
        blocks = self._channel_blocks(stage)
        self._reserve(f"PACKED{i}", stage.kernel_h * stage.run * lanes * sum(vecs for vecs, _ in blocks))
        self._reserve(f"WHERE{i}", GROUP * outputs)
        self._reserve(f"Z{i}", stage.pool**2 * stage.cols * self.machine.channel_vecs * lanes)
        functions = CONV_STAGE.format(
            i=i, s=stage, relu=int(stage.relu), run_vecs=row // lanes, y_pitch=y_pitch,
            y=y, dy=dy, outputs=outputs, filter=stage.kernel_h * row,
            forward=_indent(self._forward_blocks(i, stage, blocks)),
            pack=_indent(self._pack_blocks(i, stage, blocks)),
            weight_gradients=_indent(self._weight_gradients(stage), 8),
            input_gradients=_indent(self._input_gradients(i, stage) if i else []),
        )  # fmt: skip
        if not self._by_samples(stage):
            return functions
        return functions + CONV_SAMPLES.format(
            i=i, s=stage, y=y, y_stride=f"X{i + 1}_STRIDE", y_pitch=y_pitch, outputs=outputs,
            row=stage.cols * stage.outs, blocks=_indent(self._sample_blocks(i, stage), 8),
        )  # fmt: skip

    def gather(self) -> str:
        """Return the function that copies a sample of the dataset to its place in the first input."""
        first = self.stages[0]
        to = "ws + X0 + b * X0_STRIDE"
        if isinstance(first, Dense):
            self.places["SAMPLE"] = first.ins
            body = [f"memcpy({to}, from, 4 * SAMPLE);"]
        else:
            self.places["SAMPLE"] = first.channels * first.height * first.width
            body = [
                f"float *to = {to} + {first.interior};",
                f"for (int c = 0; c < {first.channels}; c++)",
                f"    for (int y = 0; y < {first.height}; y++)",
                f"        for (int x = 0; x < {first.width}; x++)",
                f"            to[y * {first.pitch} + x * {first.channels} + c] = *from++;",
            ]
        return _function("static void gather(float *ws, int b, const float *from)", body)

    def forward(self) -> str:
        """Return the function that computes the logits of the gathered samples."""
        body = []
        for i, stage in enumerate(self.stages):
            if isinstance(stage, Conv):
                first = "0"
                if self._by_samples(stage):  # a vector more than half full is faster than one by one
                    first = f"b{i}"
                    body.append(f"int b{i} = 0;")
                    body.append(
                        f"for (; b{i} + LANES / 2 < samples; b{i} += LANES) forward_samples_{i}(ws, b{i});"
                    )
                body.append(f"for (int b = {first}; b < samples; b++) forward_{i}(ws, b);")
            else:
                body.append(
                    f"dense_forward({self._row(stage)}, {stage.outs}, {self._stride(i + 1)}, samples, "
                    f"{int(stage.relu)}, ws + X{i}, ws + WEIGHTS{i}, ws + BIAS{i}, ws + {self._name(i + 1)});"
                )
        return _function("static void forward(float *ws, int samples)", body)

    def backward(self) -> str:
        """Return the function that computes the gradients of all weights from the gradient of the logits."""
        body: list[str] = []
        for i, stage in reversed(list(enumerate(self.stages))):
            if isinstance(stage, Dense):
                name, stride = self._name(i + 1), self._stride(i + 1)
                dy = f"ws + {self._gradient_name(i + 1)}"
                if stage.relu:
                    body.append(f"relu_backward(samples, {stage.outs}, {stride}, ws + {name}, {dy});")
                body.append(
                    f"dense_backward({self._row(stage)}, {stage.outs}, {stride}, samples, ws + X{i}, "
                    f"ws + WEIGHTS{i}, {dy}, ws + GRADIENT{i}, ws + DBIAS{i}, {f'ws + D{i}' if i else '0'});"
                )
        convs = [i for i, stage in enumerate(self.stages) if isinstance(stage, Conv)]
        if convs:
            calls = " ".join(f"backward_{i}(ws, b);" for i in reversed(convs))
            body.append(f"for (int b = 0; b < samples; b++) {{ {calls} }}")
        body += [
            f"memset(ws + DBIAS{i}, 0, 4 * {stage.outs});  /* no bias: keep it zero */"
            for i, stage in enumerate(self.stages)
            if not stage.bias
        ]
        return _function("static void backward(float *ws, int samples)", body)

    def repack(self) -> str:
        """Return the function that brings the weights into the order of the forward kernels."""
        body = [f"repack_{i}(ws);" for i, stage in enumerate(self.stages) if isinstance(stage, Conv)]
        return _function("static void repack(float *ws)", body)

    def _reserve(self, name: str, floats: int) -> None:
        """Reserve a place with a spare vector: the last load of a run may reach past the end."""
        self.places[name] = self.used
        self.used += round_up(floats + self.machine.lanes, CACHE_LINE)

    def _inputs(self, i: int, stage: Stage) -> None:
        if isinstance(stage, Conv):
            stride = round_up(stage.padded_size, CACHE_LINE)
            gradients = 1
        else:
            stride = self._row(stage)
            gradients = GROUP
        self.places[f"X{i}_STRIDE"] = stride
        self._reserve(f"X{i}", GROUP * stride)
        if i > 0:
            self._reserve(f"D{i}", gradients * stride)

    def _row(self, dense: Dense) -> int:
        return round_up(dense.ins, self.machine.lanes)

    def _name(self, i: int) -> str:
        return f"X{i}" if i < len(self.stages) else "LOGITS"

    def _gradient_name(self, i: int) -> str:
        return f"D{i}" if i < len(self.stages) else "DLOGITS"

    def _stride(self, i: int) -> str:
        return f"{self._name(i)}_STRIDE"

    def _by_samples(self, stage: Conv) -> bool:
        """Return whether to use vectors of samples, because output channels would leave lanes empty."""
        return stage.outs % self.machine.lanes > 0 and stage.pool**2 <= self.machine.block

    def _sample_blocks(self, i: int, stage: Conv) -> list[str]:
        """Return the calls for one row, a few channels each: row and weights fit the first-level cache."""
        return [
            f"conv_samples_row(&C{i}, {last - first}, r, x, "
            f"w + {first * stage.kernel_h} * C{i}.run_vecs * LANES, "
            f"bias + {first}, y + {first} * LANES, where + {first} * LANES);"
            for first, last in _spans(stage.outs, self.machine.block // stage.pool**2)
        ]

    def _channel_blocks(self, stage: Conv) -> list[tuple[int, int]]:
        """Return the (vectors, channels) of each block of output channels."""
        vecs = -(-stage.outs // self.machine.lanes)
        blocks, left = [], stage.outs
        for size in _split(vecs, self.machine.channel_vecs):
            blocks.append((size, min(left, size * self.machine.lanes)))
            left -= blocks[-1][1]
        return blocks

    def _forward_blocks(self, i: int, stage: Conv, blocks: Sequence[tuple[int, int]]) -> list[str]:
        lines = []
        for (vecs, channels), same in groupby(blocks):
            cols = _split(stage.cols * stage.pool, self.machine.block // vecs)
            wides = cols.count(cols[0])
            lines.append(
                f"for (int n = 0; n < {len(list(same))}; n++, w += {stage.kernel_h * stage.run} * {vecs} "
                f"* LANES, bias += {channels}, y += {channels}, where += {channels})"
            )
            lines.append(
                f"    conv_forward(&C{i}, {vecs}, {channels}, {cols[0]}, {wides}, {len(cols) - wides}, "
                f"x, w, bias, ws + Z{i}, y, where);"
            )
        return lines

    def _pack_blocks(self, i: int, stage: Conv, blocks: Sequence[tuple[int, int]]) -> list[str]:
        lines, first = [], 0
        for vecs, channels in blocks:
            lines.append(f"conv_pack(&C{i}, {first}, {vecs}, {channels}, w, to);")
            lines.append(f"to += {stage.kernel_h * stage.run} * {vecs} * LANES;")
            first += channels
        return lines

    def _weight_gradients(self, stage: Conv) -> list[str]:
        """Return the calls that cover a filter with register blocks."""
        lanes = self.machine.lanes
        row = round_up(stage.run, lanes)
        tail = ", ".join("-1" if row - lanes + n < stage.run else "0" for n in range(lanes))
        lines = []
        for k0, k1, n0, n1 in self._filter_blocks(stage):
            at = f"{k0} * {stage.pitch} + {n0} * LANES"
            mask = tail if n1 == row // lanes else ", ".join(["-1"] * lanes)
            lines.append(
                f"conv_weight_gradient({k1 - k0}, {n1 - n0}, {stage.pitch}, {row}, count, at, ws + ENTRIES, "
                f"x + {at}, (ivec){{{mask}}}, dw + {k0} * {row} + {n0} * LANES);"
            )
        return lines

    def _input_gradients(self, i: int, stage: Conv) -> list[str]:
        """Return the statements that add up the gradient of a stage's input."""
        vecs = -(-stage.run // self.machine.lanes)
        return [
            "int *starts = (int *)(ws + STARTS);",
            f"float *dx = memset(ws + D{i}, 0, 4 * {stage.padded_size});",
            f"for (int c = 0; c < {stage.cols * stage.pool}; c++, dx += {stage.channels}) {{",
            f"    conv_column(&C{i}, c, dy, where, starts, at, ws + ENTRIES);",
            *[
                f"    conv_input_gradient(&C{i}, {last - first}, starts, at, ws + ENTRIES, "
                f"ws + WEIGHTS{i} + {first} * LANES, dx + {first} * LANES);"
                for first, last in _spans(vecs, self.machine.block + 2)
            ],
            "}",
        ]

    def _filter_blocks(self, stage: Conv) -> list[tuple[int, int, int, int]]:
        """Return the register blocks of a filter, each as a span of rows and a span of vectors in a row."""
        vecs = -(-stage.run // self.machine.lanes)
        most = self.machine.block + 2  # one operand comes from memory, the other is one value
        rows = _spans(stage.kernel_h, max(1, most // vecs))
        return [(*span, *part) for span in rows for part in _spans(vecs, most)]


def _swaps(lanes: int) -> str:
    """Return the C macros LOW_<step> and HIGH_<step>: the lanes of two rows after a swap of blocks."""
    lines, step = [], lanes // 2
    while step:
        low = [lane if not lane & step else lanes + lane - step for lane in range(lanes)]
        lines.append(f"#define LOW_{step} {', '.join(map(str, low))}")
        lines.append(f"#define HIGH_{step} {', '.join(str(lane + step) for lane in low)}")
        step //= 2
    return "\n".join(lines)


def _split(total: int, most: int) -> list[int]:
    """Return the sizes of the fewest parts of at most `most`, as equal as can be, large ones first."""
    count = -(-total // most)
    return [total // count + (part < total % count) for part in range(count)]


def _spans(total: int, most: int) -> list[tuple[int, int]]:
    sizes = _split(total, most)
    return list(pairwise(sum(sizes[:end]) for end in range(len(sizes) + 1)))


def _indent(lines: Sequence[str], spaces: int = 4) -> str:
    return "\n".join(" " * spaces + line for line in lines)


def _function(head: str, body: Sequence[str]) -> str:
    return f"\n{head}\n{{\n{_indent(body)}\n}}\n"
