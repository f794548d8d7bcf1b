"""The C kernels of the compiled trainer: loops over vectors of LANES floats, constant after inlining."""

from __future__ import annotations

__all__ = ["KERNELS"]

KERNELS = r"""
#include <math.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 32")
#define ROLLED _Pragma("GCC unroll 1")
#define MAX_BLOCK 32

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int ivec __attribute__((vector_size(4 * LANES)));
typedef float loose_vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

/* Keep a value in a register: gcc would rather reload it for every use, and loads are what is scarce. */
#if (defined __AVX512F__ && LANES == 16) || (defined __AVX__ && LANES == 8) || \
    (defined __SSE2__ && LANES == 4)
#define KEEP(v) __asm__("" : "+v"(v))
#elif defined __aarch64__ && LANES == 4
#define KEEP(v) __asm__("" : "+w"(v))
#else
#define KEEP(v) (void)(v)
#endif
/* Forget what is known about a pointer: gcc would keep what it loaded before, and run out of registers. */
#define FORGET(p) __asm__("" : "+r"(p))

INLINE vec load(const float *p) { return *(const loose_vec *)p; }
INLINE void store(float *p, vec v) { *(loose_vec *)p = v; }
INLINE vec splat(float x) { return x - (vec){0}; }
INLINE ivec isplat(int x) { return x - (ivec){0}; }
INLINE ivec choose(ivec mask, ivec yes, ivec no) { return (mask & yes) | (~mask & no); }
/* Zero where the value is not above zero; a NaN stays one, as in torch. */
INLINE vec relu(vec v) { return (vec)(~(v <= 0) & (ivec)v); }

/* Swap blocks of `step` lanes between rows that are `step` apart: see `_swaps` of the generator. */
#ifdef __clang__
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (ivec){__VA_ARGS__})
#endif
#define SWAP(step) \
    UNROLL for (int i = 0; i < LANES; i++) if (!(i & step)) { \
        const vec a = v[i], b = v[i + step]; \
        v[i] = SHUFFLE(a, b, LOW_##step); \
        v[i + step] = SHUFFLE(a, b, HIGH_##step); \
    }

/* Rows and columns of LANES vectors change places. */
INLINE void transpose(vec *v)
{
#if LANES > 8
    SWAP(8)
#endif
#if LANES > 4
    SWAP(4)
#endif
    SWAP(2)
    SWAP(1)
}

INLINE float sum_lanes(vec v)
{
    float sum = 0;
    UNROLL for (int width = LANES / 2; width; width /= 2)
        UNROLL for (int i = 0; i < width; i++) v[i] += v[i + width];
    return sum + v[0];
}

/* Clear the gradient where ReLU is shut, row by row; y is the output of ReLU. */
INLINE void relu_backward(int rows, int width, int pitch, const float *y, float *dy)
{
    for (int r = 0; r < rows; r++, y += pitch, dy += pitch)
        for (int i = 0; i < width; i++) dy[i] = y[i] <= 0 ? 0 : dy[i];
}

/* y[b][o] += x[b] . w[o] over a part of the inputs, for 4 samples and `outs` outputs. */
INLINE void dense_block(const int outs, int length, int pitch, int y_pitch, const float *x, const float *w,
                        float *y)
{
    vec acc[MAX_BLOCK], kept[4];
    UNROLL for (int i = 0; i < 4 * outs; i++) acc[i] = (vec){0};
    ROLLED for (int i = 0; i < length; i += LANES) {
        UNROLL for (int b = 0; b < 4; b++) {
            kept[b] = load(x + b * pitch + i);
            KEEP(kept[b]);
        }
        UNROLL for (int o = 0; o < outs; o++) {
            const vec value = load(w + o * pitch + i);
            UNROLL for (int b = 0; b < 4; b++) acc[o * 4 + b] += value * kept[b];
        }
    }
    UNROLL for (int o = 0; o < outs; o++)
        UNROLL for (int b = 0; b < 4; b++) y[b * y_pitch + o] += sum_lanes(acc[o * 4 + b]);
}

/* Inputs in parts of PART floats, so that those of all samples stay in the second-level cache. */
#define PART 512
INLINE void dense_forward(int ins, const int outs, int y_pitch, int samples, int with_relu, const float *x,
                          const float *w, const float *bias, float *y)
{
    for (int b = 0; b < (samples + 3) / 4 * 4; b++) memcpy(y + b * y_pitch, bias, 4 * outs);
    for (int i = 0; i < ins; i += PART) {
        const int length = ins - i < PART ? ins - i : PART;
        for (int o = 0; o < outs - outs % 3; o += 3)
            for (int b = 0; b < samples; b += 4)
                dense_block(3, length, ins, y_pitch, x + b * ins + i, w + o * ins + i, y + b * y_pitch + o);
        if (outs % 3)
            for (int b = 0; b < samples; b += 4)
                dense_block(outs % 3, length, ins, y_pitch, x + b * ins + i, w + (outs - outs % 3) * ins + i,
                            y + b * y_pitch + outs - outs % 3);
    }
    if (with_relu)
        for (int b = 0; b < samples; b++, y += y_pitch)
            for (int o = 0; o < outs; o++) y[o] = y[o] <= 0 ? 0 : y[o];
}

/* to[j][vecs] (+)= sum over i of scale[i * i_step + j * j_step] * from[i][vecs], for `count` rows j. */
INLINE void outer_block(const int count, const int vecs, const int add, int length, int i_step, int j_step,
                        int pitch, const float *scale, const float *from, float *to)
{
    vec acc[MAX_BLOCK], kept[MAX_BLOCK];
    UNROLL for (int i = 0; i < count * vecs; i++) acc[i] = (vec){0};
    ROLLED for (int i = 0; i < length; i++) {
        UNROLL for (int n = 0; n < vecs; n++) {
            kept[n] = load(from + i * pitch + n * LANES);
            KEEP(kept[n]);
        }
        UNROLL for (int j = 0; j < count; j++) {
            const vec value = splat(scale[i * i_step + j * j_step]);
            UNROLL for (int n = 0; n < vecs; n++) acc[j * vecs + n] += value * kept[n];
        }
    }
    UNROLL for (int j = 0; j < count; j++)
        UNROLL for (int n = 0; n < vecs; n++) {
            float *spot = to + j * pitch + n * LANES;
            store(spot, add ? load(spot) + acc[j * vecs + n] : acc[j * vecs + n]);
        }
}

/* dx = dy w, and dw += dy' x: for each few vectors of inputs, which then stay in the first-level cache. */
INLINE void dense_backward_part(const int vecs, int ins, const int outs, int y_pitch, int samples,
                                const float *x, const float *w, const float *dy, float *dw, float *dx)
{
    for (int o = 0; o < outs - outs % 4; o += 4)
        outer_block(4, vecs, 1, samples, y_pitch, 1, ins, dy + o, x, dw + o * ins);
    if (outs % 4)
        outer_block(outs % 4, vecs, 1, samples, y_pitch, 1, ins, dy + outs - outs % 4, x,
                    dw + (outs - outs % 4) * ins);
    if (dx)
        for (int b = 0; b < samples; b += 4)
            outer_block(4, vecs, 0, outs, 1, y_pitch, ins, dy + b * y_pitch, w, dx + b * ins);
}

INLINE void dense_backward(const int ins, const int outs, int y_pitch, int samples, const float *x,
                           const float *w, const float *dy, float *dw, float *dbias, float *dx)
{
    const int whole = ins - ins % (3 * LANES);
    for (int b = 0; b < samples; b++)
        for (int o = 0; o < outs; o++) dbias[o] += dy[b * y_pitch + o];
    for (int i = 0; i < whole; i += 3 * LANES)
        dense_backward_part(3, ins, outs, y_pitch, samples, x + i, w + i, dy, dw + i, dx ? dx + i : dx);
    if (whole < ins)
        dense_backward_part(ins % (3 * LANES) / LANES, ins, outs, y_pitch, samples, x + whole, w + whole, dy,
                            dw + whole, dx ? dx + whole : dx);
}

/* Cross-entropy of one sample; z becomes its gradient by the logits, divided by the batch size. */
INLINE double cross_entropy(int classes, int64_t label, int batch, const float *z, float *dz)
{
    float top = z[0], sum = 0;
    for (int o = 1; o < classes; o++) top = z[o] > top ? z[o] : top;
    for (int o = 0; o < classes; o++) sum += dz[o] = expf(z[o] - top);
    const double loss = logf(sum) - (z[label] - top);
    for (int o = 0; o < classes; o++) dz[o] = (dz[o] / sum - (o == label)) / batch;
    return loss;
}

/* The first of the largest logits; a NaN is larger than all, as in torch. */
INLINE int answer(int classes, const float *z)
{
    int best = 0;
    for (int o = 1; o < classes; o++)
        if (z[o] > z[best] || (z[o] != z[o] && z[best] == z[best])) best = o;
    return best;
}

/* torch's clip_grad_norm_: a NaN or an infinity spreads, and so stays visible. */
INLINE void clip_gradient(int size, float clip, float *restrict gradient)
{
    if (clip == INFINITY) return;
    double squares = 0;
    for (int i = 0; i < size; i++) squares += (double)gradient[i] * gradient[i];
    const float factor = clip / ((float)sqrt(squares) + 1e-6f);
    if (factor >= 1) return;
    for (int i = 0; i < size; i++) gradient[i] *= factor;
}

/* torch.optim.SGD behind a correction (null if there is none) and FedProx's term: g + v + mu (u - w). */
INLINE void sgd(int size, float lr, float mu, float momentum, float decay, const float *restrict correction,
                const float *restrict anchor, float *restrict gradient, float *restrict velocity,
                float *restrict u)
{
    if (correction)
        for (int i = 0; i < size; i++) gradient[i] += correction[i];
    if (mu != 0)
        for (int i = 0; i < size; i++) gradient[i] += mu * (u[i] - anchor[i]);
    if (decay != 0)
        for (int i = 0; i < size; i++) gradient[i] += decay * u[i];
    if (momentum != 0)
        for (int i = 0; i < size; i++) gradient[i] = velocity[i] = momentum * velocity[i] + gradient[i];
    for (int i = 0; i < size; i++) u[i] -= lr * gradient[i];
}
"""
