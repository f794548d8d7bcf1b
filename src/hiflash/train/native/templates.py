"""The C around the kernels: the functions of a convolution stage, and the functions for Python."""

from __future__ import annotations

__all__ = ["CONV_SAMPLES", "CONV_STAGE", "ENTRY_POINTS"]

CONV_STAGE = r"""
static const conv C{i} = {{.in = {s.channels}, .out = {s.outs}, .kernel = {s.kernel_h}, .run = {s.run},
    .width = {s.pitch} / {s.channels}, .pitch = {s.pitch}, .pool = {s.pool}, .rows = {s.rows},
    .cols = {s.cols}, .relu = {relu}, .run_vecs = {run_vecs}, .y_pitch = {y_pitch}}};

static void forward_{i}(float *ws, int b)
{{
    const float *x = ws + X{i} + b * X{i}_STRIDE, *w = ws + PACKED{i}, *bias = ws + BIAS{i};
    float *y = ws + {y};
    int *where = (int *)(ws + WHERE{i}) + b * {outputs};
{forward}
}}

static void repack_{i}(float *ws)
{{
    const float *w = ws + WEIGHTS{i};
    float *to = ws + PACKED{i};
{pack}
}}

static void backward_{i}(float *ws, int b)
{{
    const float *x = ws + X{i} + b * X{i}_STRIDE;
    const int *where = (const int *)(ws + WHERE{i}) + b * {outputs};
    float *dy = ws + {dy}, *dw = ws + GRADIENT{i}, *dbias = ws + DBIAS{i};
    int *at = (int *)(ws + AT);
    for (int o = 0; o < {s.outs}; o++, dw += {filter}) {{
        const int count = conv_entries(&C{i}, dy + o, where + o, at, ws + ENTRIES, dbias + o);
{weight_gradients}
    }}
{input_gradients}
}}
"""

CONV_SAMPLES = r"""
static void forward_samples_{i}(float *ws, int b)
{{
    const float *w = ws + WEIGHTS{i}, *bias = ws + BIAS{i};
    float *x = ws + LANE_X, *y = ws + LANE_Y;
    int *where = (int *)(ws + LANE_WHERE);
    interleave({s.padded_size}, X{i}_STRIDE, ws + X{i} + b * X{i}_STRIDE, x);
    for (int r = 0; r < {s.rows}; r++) {{
{blocks}
        separate({row}, {y_stride}, y, ws + {y} + r * {y_pitch});
        separate({row}, {outputs}, ws + LANE_WHERE, ws + WHERE{i} + b * {outputs} + r * {row});
    }}
}}
"""

ENTRY_POINTS = r"""
long workspace_floats(void) { return WORKSPACE; }

/* slots[k] is the place of parameter k in torch's order; the rest of the packed vector is zero. */
static void set_weights(float *ws, int count, const int *slots, const float *weights)
{
    memset(ws + WEIGHTS, 0, 4 * SIZE); /* a NaN of the last task may have spread to the padding */
    for (int k = 0; k < count; k++) ws[WEIGHTS + slots[k]] = weights[k];
    repack(ws);
}

/* All steps of a client task. `index` has the samples of all steps, batches[step] of them each; `correction`
   is added to every gradient, unless it is null. */
double train(float *ws, const float *x, const int64_t *labels, const int64_t *index, const int *batches,
             int steps, int count, const int *slots, float *weights, const float *correction, float lr,
             float mu, float momentum, float decay, float clip)
{
    double loss = 0;
    if (correction) {
        memset(ws + CORRECTION, 0, 4 * SIZE);
        for (int k = 0; k < count; k++) ws[CORRECTION + slots[k]] = correction[k];
    }
    set_weights(ws, count, slots, weights);
    memcpy(ws + ANCHOR, ws + WEIGHTS, 4 * SIZE);
    memset(ws + VELOCITY, 0, 4 * SIZE);
    for (int step = 0; step < steps; step++) {
        const int batch = batches[step];
        double step_loss = 0;
        memset(ws + GRADIENT, 0, 4 * SIZE);
        for (int first = 0; first < batch; first += GROUP) {
            const int samples = batch - first < GROUP ? batch - first : GROUP;
            for (int b = 0; b < samples; b++) gather(ws, b, x + index[first + b] * SAMPLE);
            forward(ws, samples);
            for (int b = 0; b < samples; b++)
                step_loss += cross_entropy(CLASSES, labels[index[first + b]], batch,
                                           ws + LOGITS + b * LOGITS_STRIDE,
                                           ws + DLOGITS + b * LOGITS_STRIDE);
            backward(ws, samples);
        }
        loss += step_loss / batch;
        index += batch;
        clip_gradient(SIZE, clip, ws + GRADIENT);
        sgd(SIZE, lr, mu, momentum, decay, correction ? ws + CORRECTION : 0, ws + ANCHOR, ws + GRADIENT,
            ws + VELOCITY, ws + WEIGHTS);
        repack(ws);
    }
    for (int k = 0; k < count; k++) weights[k] = ws[WEIGHTS + slots[k]];
    return loss / steps;
}

/* Right answers (returned) and summed loss of a span of samples. */
long evaluate(float *ws, const float *x, const int64_t *labels, long start, long stop, int count,
              const int *slots, const float *weights, double *loss)
{
    long right = 0;
    *loss = 0;
    set_weights(ws, count, slots, weights);
    for (long first = start; first < stop; first += GROUP) {
        const int samples = stop - first < GROUP ? stop - first : GROUP;
        for (int b = 0; b < samples; b++) gather(ws, b, x + (first + b) * SAMPLE);
        forward(ws, samples);
        for (int b = 0; b < samples; b++) {
            const float *logits = ws + LOGITS + b * LOGITS_STRIDE;
            right += answer(CLASSES, logits) == labels[first + b];
            *loss += cross_entropy(CLASSES, labels[first + b], 1, logits, ws + DLOGITS);
        }
    }
    return right;
}
"""
