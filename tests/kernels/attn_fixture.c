/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kernels/attn_fixture.h"

#include <string.h>

#include "kernels/attn_merge.h"
#include "kernels/lazy_decode.h"
#include "kernels/lazy_prefill.h"
#include "kernels/rope_append.h"

void
fixture_init(struct fixture *fix, struct kv_layout layout, uint32_t H, uint32_t n_blocks,
             uint64_t seed)
{
    memset(fix, 0, sizeof(*fix));
    ck_assert_int_eq(kv_layout_check(&layout), ST_OK);
    fix->layout = layout;
    fix->H = H;
    fix->n_blocks = n_blocks;
    fix->rope_scale = 1.0f;
    fix->rng.state = seed;
    for (uint32_t i = 0; i < layout.D / 2; i++) {
        fix->inv_freq[i] = pow(10000.0, -2.0 * i / layout.D);
    }
    fix->arena = malloc(n_blocks * kv_layout_block_bytes(&layout));
    fix->free_ids = malloc(n_blocks * sizeof(uint32_t));
    ck_assert(fix->arena != NULL && fix->free_ids != NULL);
    memset(fix->arena, 0xff, n_blocks * kv_layout_block_bytes(&layout));
    for (uint32_t i = 0; i < n_blocks; i++) {
        uint32_t j = rng_below(&fix->rng, i + 1);

        fix->free_ids[i] = fix->free_ids[j];
        fix->free_ids[j] = i;
    }
}

void
fixture_deinit(struct fixture *fix)
{
    free(fix->arena);
    free(fix->free_ids);
}

void
fixture_doc(struct fixture *fix, struct doc *doc, uint32_t n)
{
    uint32_t Hkv = fix->layout.Hkv, D = fix->layout.D, P = fix->layout.P;
    size_t row = (size_t)Hkv * D, qkv_row = (fix->H + 2 * Hkv) * (size_t)D;
    float *qkv = rng_floats(&fix->rng, n * qkv_row);
    uint32_t *at = calloc(3 * (size_t)n + 1, sizeof(*at));

    doc->n = n;
    doc->k = rng_floats(&fix->rng, n * row);
    doc->v = rng_floats(&fix->rng, n * row);
    for (uint32_t i = 0; i < (n + P - 1) / P; i++) {
        ck_assert_uint_lt(fix->n_used, fix->n_blocks);
        doc->blocks[i] = fix->free_ids[fix->n_used++];
    }
    for (uint32_t t = 0; t < n; t++) {
        memcpy(qkv + t * qkv_row + (size_t)fix->H * D, doc->k + t * row, row * sizeof(float));
        memcpy(qkv + t * qkv_row + (size_t)fix->H * D + row, doc->v + t * row, row * sizeof(float));
        at[t] = doc->blocks[t / P];
        at[n + t] = t % P;
        at[2 * n + t] = t;
    }
    ck_assert_int_eq(rope_append_ref((struct rope_append_args){
                         .qkv = qkv,
                         .kv = fix->arena,
                         .layout = fix->layout,
                         .layer = FIXTURE_LAYER,
                         .n_blocks = fix->n_blocks,
                         .row_block = at,
                         .row_slot = at + n,
                         .row_pos = at + 2 * n,
                         .inv_freq = fix->inv_freq,
                         .rope_scale = fix->rope_scale,
                         .T = n,
                         .H = fix->H,
                     }),
                     ST_OK);
    free(qkv);
    free(at);
}

void
fixture_doc_free(struct doc *doc)
{
    free(doc->k);
    free(doc->v);
}

float *
fixture_queries(struct fixture *fix, uint32_t n_rows)
{
    return rng_floats(&fix->rng, (size_t)n_rows * fix->H * fix->layout.D);
}

void
fixture_place(struct prompt *prompt, uint32_t start)
{
    uint32_t at = start;

    for (uint32_t s = 0; s < prompt->n_segs; s++) {
        prompt->offsets[s] = at;
        at += prompt->docs[s]->n;
    }
    prompt->pos_first = at - prompt->n_rows;
}

struct attn_desc
fixture_desc(const struct fixture *fix, const struct prompt *prompt, struct attn_seq *seq_out,
             struct attn_segment *segs_out, uint32_t *ids_out)
{
    uint32_t n_ids = 0, P = fix->layout.P;

    for (uint32_t s = 0; s < prompt->n_segs; s++) {
        segs_out[s] = (struct attn_segment){
            .block_first = n_ids,
            .n_tokens = prompt->docs[s]->n,
            .offset = prompt->offsets[s],
        };
        for (uint32_t b = 0; b < (prompt->docs[s]->n + P - 1) / P; b++) {
            ids_out[n_ids++] = prompt->docs[s]->blocks[b];
        }
    }
    *seq_out = (struct attn_seq){
        .n_rows = prompt->n_rows,
        .pos_first = prompt->pos_first,
        .n_segs = prompt->n_segs,
    };
    return (struct attn_desc){
        .kv = fix->arena,
        .layout = fix->layout,
        .layer = FIXTURE_LAYER,
        .n_blocks = fix->n_blocks,
        .block_ids = ids_out,
        .segs = segs_out,
        .seqs = seq_out,
        .n_seqs = 1,
        .H = fix->H,
        .inv_freq = fix->inv_freq,
        .rope_scale = fix->rope_scale,
        .scale = 1.0f / sqrtf((float)fix->layout.D),
    };
}

void
fixture_prefill(const struct fixture *fix, const struct prompt *prompt, uint32_t piece, float *out)
{
    size_t row = (size_t)fix->H * fix->layout.D;
    struct attn_segment segs[FIXTURE_SEGS_MAX];
    uint32_t ids[FIXTURE_SEGS_MAX * 256];
    struct attn_seq seq;
    struct attn_desc desc = fixture_desc(fix, prompt, &seq, segs, ids);

    for (uint32_t first = 0; first < prompt->n_rows; first += piece) {
        uint32_t n = prompt->n_rows - first < piece ? prompt->n_rows - first : piece;

        seq.n_rows = n;
        seq.pos_first = prompt->pos_first + first;
        ck_assert_int_eq(lazy_prefill_ref((struct lazy_prefill_args){
                             .desc = desc, .q = prompt->q + first * row, .out = out + first * row}),
                         ST_OK);
    }
}

void
fixture_decode(const struct fixture *fix, const struct prompt *prompt, float *out)
{
    size_t row = (size_t)fix->H * fix->layout.D;
    struct attn_segment segs[FIXTURE_SEGS_MAX];
    uint32_t ids[FIXTURE_SEGS_MAX * 256];
    struct attn_seq seq;
    struct attn_desc desc = fixture_desc(fix, prompt, &seq, segs, ids);
    uint32_t n = lazy_decode_partials(&seq, segs);
    const uint32_t partial_first[2] = {0, n};
    float *o = malloc((n * row + 1) * sizeof(float));
    float *ml = malloc((n * (size_t)fix->H * 2 + 1) * sizeof(float));

    for (uint32_t t = 0; t < prompt->n_rows; t++) {
        seq.n_rows = 1;
        seq.pos_first = prompt->pos_first + t;
        ck_assert_int_eq(lazy_decode_ref((struct lazy_decode_args){.desc = desc,
                                                                   .q = prompt->q + t * row,
                                                                   .o = o,
                                                                   .ml = ml,

                                                                   .partial_first = partial_first,
                                                                   .n_partials = n}),
                         ST_OK);
        ck_assert_int_eq(attn_merge_ref((struct attn_merge_args){.o = o,
                                                                 .ml = ml,
                                                                 .partial_first = partial_first,
                                                                 .out = out + t * row,
                                                                 .n_rows = 1,
                                                                 .H = fix->H,
                                                                 .D = fix->layout.D}),
                         ST_OK);
    }
    free(o);
    free(ml);
}

/* x rotated to a global position: float64, the angle in long double. */
static void
rotate_global(const struct fixture *fix, const float *x, uint64_t position, double *out)
{
    uint32_t half = fix->layout.D / 2;

    for (uint32_t i = 0; i < half; i++) {
        long double angle = (long double)position * fix->inv_freq[i];
        double c = (double)cosl(angle) * fix->rope_scale, s = (double)sinl(angle) * fix->rope_scale;

        out[i] = x[i] * c - x[i + half] * s;
        out[i + half] = x[i + half] * c + x[i] * s;
    }
}

/* The prompt's keys at their global positions, and what a row does with them. */
struct reference {
    uint32_t n;           /* keys of all segments */
    uint64_t *position;   /* [n] */
    double *keys;         /* [n, Hkv, D] rotated */
    const float **values; /* [n] -> [Hkv, D] */
    double *weights;      /* [n] of the row and head in hand */
};

static void
reference_init(struct reference *ref, const struct fixture *fix, const struct prompt *prompt)
{
    size_t row = (size_t)fix->layout.Hkv * fix->layout.D, n = 1;

    for (uint32_t s = 0; s < prompt->n_segs; s++) {
        n += prompt->docs[s]->n;
    }
    ref->n = 0;
    ref->position = malloc(n * sizeof(ref->position[0]));
    ref->keys = malloc(n * row * sizeof(double));
    ref->values = malloc(n * sizeof(ref->values[0]));
    ref->weights = malloc(n * sizeof(double));
    for (uint32_t s = 0; s < prompt->n_segs; s++) {
        for (uint32_t j = 0; j < prompt->docs[s]->n; j++, ref->n++) {
            ref->position[ref->n] = (uint64_t)prompt->offsets[s] + j;
            ref->values[ref->n] = &prompt->docs[s]->v[j * row];
            for (size_t d = 0; d < row; d += fix->layout.D) {
                rotate_global(fix, &prompt->docs[s]->k[j * row + d], ref->position[ref->n],
                              &ref->keys[ref->n * row + d]);
            }
        }
    }
}

static void
reference_deinit(struct reference *ref)
{
    free(ref->position);
    free(ref->keys);
    free(ref->values);
    free(ref->weights);
}

/* Softmax weights of one rotated query over its visible keys; returns the allowed error of an
 * output.
 *
 * A score is a sum of D products of rotated values: each rotation rounds about 3 times, the sum D
 * times, so |ds| <= (D + 8) eps sum|q k| scale (a bf16 key adds one rounding of its own).  Weights
 * are exp(s): relative error 2 ds for a quotient, plus the rounding of exp and of sums in 64-key
 * tiles, below
 * 128 eps; all relative to the largest value. */
static double
reference_weigh(struct reference *ref, const struct fixture *fix, uint64_t position, uint32_t g,
                const double *q)
{
    uint32_t D = fix->layout.D, Hkv = fix->layout.Hkv;
    double top = -INFINITY, sum = 0.0, magnitude_max = 0.0, value_max = 0.0;
    double eps_kv = fix->layout.type == KV_BF16 ? EPS_BF16 / 2 : 0.0;

    for (uint32_t j = 0; j < ref->n; j++) {
        const double *k = &ref->keys[((size_t)j * Hkv + g) * D];
        double score = 0.0, magnitude = 0.0;

        if (ref->position[j] > position) {
            continue;
        }
        for (uint32_t d = 0; d < D; d++) {
            score += q[d] * k[d];
            magnitude += fabs(q[d] * k[d]);
            double v = fabs((double)ref->values[j][(size_t)g * D + d]);

            value_max = v > value_max ? v : value_max;
        }
        ref->weights[j] = score / sqrt(D);
        top = fmax(top, ref->weights[j]);
        magnitude_max = fmax(magnitude_max, magnitude / sqrt(D));
    }
    for (uint32_t j = 0; j < ref->n; j++) {
        ref->weights[j] = ref->position[j] > position ? 0.0 : exp(ref->weights[j] - top);
        sum += ref->weights[j];
    }
    for (uint32_t j = 0; j < ref->n && sum > 0.0; j++) {
        ref->weights[j] /= sum;
    }
    return value_max * (2 * magnitude_max * ((D + 8) * EPS_F32 + eps_kv) + 128 * EPS_F32 + eps_kv);
}

void
fixture_check(const struct fixture *fix, const struct prompt *prompt, const float *out,
              const char *what)
{
    uint32_t D = fix->layout.D, H = fix->H, G = H / fix->layout.Hkv;
    struct reference ref;
    double q[128];

    reference_init(&ref, fix, prompt);
    for (uint32_t i = 0; i < prompt->n_rows * H; i++) {
        uint64_t position = (uint64_t)prompt->pos_first + i / H;
        uint32_t g = i % H / G;

        rotate_global(fix, &prompt->q[(size_t)i * D], position, q);
        double allowed = reference_weigh(&ref, fix, position, g, q);

        for (uint32_t d = 0; d < D; d++) {
            double want = 0.0;

            for (uint32_t j = 0; j < ref.n; j++) {
                want += ref.weights[j] * ref.values[j][(size_t)g * D + d];
            }
            assert_close(out[(size_t)i * D + d], want, allowed, 0.0, what, (size_t)i * D + d);
        }
    }
    reference_deinit(&ref);
}
