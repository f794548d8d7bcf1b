"""The C kernels of convolution stages.

Activations are [row][column][channel] of one sample, so that a kernel row of a convolution reads one
contiguous run of `kernel_w * channels` values. Forward, a vector holds output channels if they fill it,
otherwise the same value of LANES samples. Backward, the gradient before a pooling layer has one nonzero entry
per window and channel, or none where ReLU is shut. The kernels walk lists of these entries, because the dense
gradient is four times larger. A vector then holds a part of the run.
"""

from __future__ import annotations

__all__ = ["CONV_KERNELS"]

CONV_KERNELS = r"""
/* A stage: convolution (stride 1), optional ReLU, max-pooling (1: none). x is the padded input. */
typedef struct {
    int in, out;          /* channels */
    int kernel, run;      /* kernel rows, values in a kernel row */
    int width, pitch;     /* positions and floats per padded input row */
    int pool, rows, cols; /* rows and columns after pooling */
    int relu;
    int run_vecs; /* vectors per kernel row in the packed weights */
    int y_pitch;  /* floats per row of the (padded) output */
} conv;

/* `cols` neighbouring outputs of `vecs` vectors of channels. w is [kernel][run][vecs]. */
INLINE void conv_block(const conv *s, const int cols, const int vecs, const float *x, const float *w,
                       const float *bias, float *z)
{
    vec acc[MAX_BLOCK], kept[MAX_BLOCK];
    UNROLL for (int c = 0; c < cols; c++)
        UNROLL for (int n = 0; n < vecs; n++) acc[c * vecs + n] = load(bias + n * LANES);
    for (int k = 0; k < s->kernel; k++, x += s->pitch - s->run)
        ROLLED for (int t = 0; t < s->run; t++, x++, w += vecs * LANES) {
            FORGET(x);
            UNROLL for (int n = 0; n < vecs; n++) {
                kept[n] = load(w + n * LANES);
                KEEP(kept[n]);
            }
            UNROLL for (int c = 0; c < cols; c++) {
                const vec value = splat(x[c * s->in]);
                UNROLL for (int n = 0; n < vecs; n++) acc[c * vecs + n] += value * kept[n];
            }
        }
    UNROLL for (int i = 0; i < cols * vecs; i++) store(z + i * LANES, acc[i]);
}

/* The largest value of a window (the first, if several are equal), and the position of x at which its kernel
   window starts, -1 where ReLU is shut. Rows of the window are `down` vectors apart, columns `right`. */
INLINE ivec pool_window(const conv *s, int start, int down, int right, const loose_vec *z, vec *largest)
{
    vec best = z[0];
    ivec at = isplat(start);
    UNROLL for (int i = 0; i < s->pool; i++)
        UNROLL for (int j = 0; j < s->pool; j++) {
            if (i + j == 0) continue;
            const vec v = z[i * down + j * right];
            const ivec better = (v > best) | (v != v);
            best = (vec)choose(better, (ivec)v, (ivec)best);
            at = choose(better, isplat(start + i * s->width + j), at);
        }
    *largest = s->relu ? relu(best) : best;
    return s->relu ? at | (best <= 0) : at;
}

INLINE void pool_row(const conv *s, const int vecs, const int channels, int start, const float *z, float *y,
                     int *where)
{
    const int width = vecs * LANES, conv_cols = s->cols * s->pool;
    for (int c = 0; c < s->cols; c++, start += s->pool, z += s->pool * width)
        UNROLL for (int n = 0; n < vecs; n++) {
            vec best;
            const ivec at = pool_window(s, start, conv_cols * vecs, vecs, (const loose_vec *)z + n, &best);
            /* The vector may be longer than the channels that are left. */
            const int left = channels - n * LANES < LANES ? channels - n * LANES : LANES;
            memcpy(y + c * s->out + n * LANES, &best, 4 * left);
            memcpy(where + c * s->out + n * LANES, &at, 4 * left);
        }
}

/* One block of output channels of one sample. z holds the convolution rows of one pooled row; a row is
   cut into register blocks of `wide` columns, the rest of it into blocks of one less. */
INLINE void conv_forward(const conv *s, const int vecs, const int channels, const int wide, const int wides,
                         const int narrows, const float *x, const float *w, const float *bias, float *z,
                         float *y, int *where)
{
    const int width = vecs * LANES;
    for (int r = 0; r < s->rows; r++) {
        float *to = z;
        for (int i = 0; i < s->pool; i++) {
            const float *from = x + (r * s->pool + i) * s->pitch;
            for (int b = 0; b < wides; b++, from += wide * s->in, to += wide * width)
                conv_block(s, wide, vecs, from, w, bias, to);
            for (int b = 0; b < narrows; b++, from += (wide - 1) * s->in, to += (wide - 1) * width)
                conv_block(s, wide - 1, vecs, from, w, bias, to);
        }
        pool_row(s, vecs, channels, r * s->pool * s->width, z, y + r * s->y_pitch,
                 where + r * s->cols * s->out);
    }
}

/* Forward for LANES samples at once: a vector holds the same input of each, so no lane is idle whatever the
   number of channels. The sums have the same order as above, so that both ways give the same bits.

   `outs` channels at one position after pooling. x is [row][column][channel] of vectors. */
INLINE void conv_samples(const conv *s, const int outs, int start, const float *x, const float *w,
                         const float *bias, float *y, int *where)
{
    const int row = s->run_vecs * LANES, filter = s->kernel * row, values = s->pool * s->pool;
    vec acc[MAX_BLOCK], kept[MAX_BLOCK];
    UNROLL for (int o = 0; o < outs; o++)
        UNROLL for (int i = 0; i < values; i++) acc[o * values + i] = splat(bias[o]);
    for (int k = 0; k < s->kernel; k++, x += (s->pitch - s->run) * LANES, w += row - s->run)
        ROLLED for (int t = 0; t < s->run; t++, x += LANES, w++) {
            FORGET(x);
            UNROLL for (int o = 0; o < outs; o++) {
                kept[o] = splat(w[o * filter]);
                KEEP(kept[o]);
            }
            UNROLL for (int i = 0; i < values; i++) {
                vec value = load(x + (i / s->pool * s->pitch + i % s->pool * s->in) * LANES);
                KEEP(value);
                UNROLL for (int o = 0; o < outs; o++) acc[o * values + i] += value * kept[o];
            }
        }
    UNROLL for (int o = 0; o < outs; o++) {
        vec best;
        const ivec at = pool_window(s, start, s->pool, 1, (const loose_vec *)acc + o * values, &best);
        store(y + o * LANES, best);
        memcpy(where + o * LANES, &at, sizeof at);
    }
}

INLINE void conv_samples_row(const conv *s, const int outs, int r, const float *x, const float *w,
                             const float *bias, float *y, int *where)
{
    for (int c = 0; c < s->cols; c++, y += s->out * LANES, where += s->out * LANES) {
        const int start = (r * s->width + c) * s->pool;
        conv_samples(s, outs, start, x + start * s->in * LANES, w, bias, y, where);
    }
}

/* to[i][lane] = from[lane][i]: `count` values of LANES samples that are `stride` floats apart. */
INLINE void interleave(int count, int stride, const float *from, float *to)
{
    const int whole = count - count % LANES;
    for (int i = 0; i < whole; i += LANES) {
        vec block[LANES];
        UNROLL for (int n = 0; n < LANES; n++) block[n] = load(from + n * stride + i);
        transpose(block);
        UNROLL for (int n = 0; n < LANES; n++) store(to + (i + n) * LANES, block[n]);
    }
    for (int i = whole; i < count; i++)
        for (int n = 0; n < LANES; n++) to[i * LANES + n] = from[n * stride + i];
}

/* The way back. Integers may pass too: nothing is computed. */
INLINE void separate(int count, int stride, const float *from, float *to)
{
    const int whole = count - count % LANES;
    for (int i = 0; i < whole; i += LANES) {
        vec block[LANES];
        UNROLL for (int n = 0; n < LANES; n++) block[n] = load(from + (i + n) * LANES);
        transpose(block);
        UNROLL for (int n = 0; n < LANES; n++) store(to + n * stride + i, block[n]);
    }
    for (int i = whole; i < count; i++)
        for (int n = 0; n < LANES; n++) memcpy(to + n * stride + i, from + i * LANES + n, 4);
}

/* Packed weights [out][kernel][run] to what `conv_block` reads: [block][kernel][run][vecs]. */
INLINE void conv_pack(const conv *s, const int first, const int vecs, const int channels, const float *w,
                      float *to)
{
    for (int o = 0; o < channels; o++)
        for (int k = 0; k < s->kernel; k++)
            for (int t = 0; t < s->run; t++)
                to[(k * s->run + t) * vecs * LANES + o] =
                    w[((first + o) * s->kernel + k) * s->run_vecs * LANES + t];
}

/* The gradients of one channel that pass ReLU, and where in x their windows start. Returns how many. */
INLINE int conv_entries(const conv *s, const float *dy, const int *where, int *at, float *g, float *bias)
{
    long count = 0;
    for (int r = 0; r < s->rows; r++)
        for (int c = 0; c < s->cols; c++) {
            const int position = where[(r * s->cols + c) * s->out];
            at[count] = position * s->in;
            g[count] = dy[r * s->y_pitch + c * s->out];
            count += position >= 0;
        }
    /* In vectors: one sum after the other would take longer than everything above. */
    vec sum = {0};
    store(g + count, sum);
    for (int e = 0; e < count; e += LANES) sum += load(g + e);
    *bias += sum_lanes(sum);
    return count;
}

/* dw[rows][vecs] += sum of g times the window; `tail` clears the lanes behind the end of the run. */
INLINE void conv_weight_gradient(const int rows, const int vecs, const int pitch, const int stride, int count,
                                 const int *at, const float *g, const float *x, ivec tail, float *dw)
{
    vec acc[MAX_BLOCK];
    UNROLL for (int i = 0; i < rows * vecs; i++) acc[i] = (vec){0};
    ROLLED for (int e = 0; e < count; e++) {
        const float *from = x + at[e];
        FORGET(from);
        const vec value = splat(g[e]);
        UNROLL for (int r = 0; r < rows; r++)
            UNROLL for (int n = 0; n < vecs; n++)
                acc[r * vecs + n] += value * load(from + r * pitch + n * LANES);
    }
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int n = 0; n < vecs; n++) {
            vec sum = acc[r * vecs + n];
            if (n == vecs - 1) sum = (vec)((ivec)sum & tail);
            float *to = dw + r * stride + n * LANES;
            store(to, load(to) + sum);
        }
}

/* The gradients whose windows start in column c of x, row by row: those of row r are starts[r] to
   starts[r + 1]. at[] has the offset in w of the weights that they multiply for row 0 of dx. */
INLINE void conv_column(const conv *s, int c, const float *dy, const int *where, int *starts, int *at,
                        float *g)
{
    const int row = s->run_vecs * LANES, filter = s->kernel * row;
    long count = 0;
    for (int r = 0; r < s->rows * s->pool; r++) {
        const int position = r * s->width + c;
        const int *from = where + (r / s->pool * s->cols + c / s->pool) * s->out;
        const float *of = dy + r / s->pool * s->y_pitch + c / s->pool * s->out;
        starts[r] = count;
        UNROLL for (int o = 0; o < s->out; o++) {
            at[count] = o * filter - r * row;
            g[count] = of[o];
            count += from[o] == position;
        }
    }
    starts[s->rows * s->pool] = count;
}

/* dx[y][vecs] += sum over the windows of one column that reach row y. These are neighbours in the list, so
   that a part of dx is loaded and stored once for all of them: stores are what is scarce. */
INLINE void conv_input_gradient(const conv *s, const int vecs, const int *starts, const int *at,
                                const float *g, const float *w, float *dx)
{
    const int rows = s->rows * s->pool;
    for (int y = 0; y < rows + s->kernel - 1; y++, dx += s->pitch, w += s->run_vecs * LANES) {
        const int first = starts[y < s->kernel ? 0 : y - s->kernel + 1];
        const int end = starts[y < rows ? y + 1 : rows];
        vec acc[MAX_BLOCK];
        UNROLL for (int n = 0; n < vecs; n++) acc[n] = load(dx + n * LANES);
        ROLLED for (int e = first; e < end; e++) {
            const float *from = w + at[e];
            FORGET(from);
            const vec value = splat(g[e]);
            UNROLL for (int n = 0; n < vecs; n++) acc[n] += value * load(from + n * LANES);
        }
        UNROLL for (int n = 0; n < vecs; n++) store(dx + n * LANES, acc[n]);
    }
}
"""
