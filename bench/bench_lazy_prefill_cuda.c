/* SPDX-License-Identifier: Apache-2.0 */
/* lazy_prefill on a GPU at Llama-3.1-8B's shape, a layer: document encoding, queries over
 * documents, what rotation and short documents cost, and data that raises the maximum all the time;
 * beside the matrix product's rate of the same run and the kernel that every GPU has (is_portable).
 *
 * Each measurement replays a recorded graph that walks the layers of a pool (other memory each
 * call, so L2 is cold); the two kernels take turns; medians of ROUNDS.
 *
 *   bench_lazy_prefill_cuda [OPTION...] [SCENE...]   only scenes whose names begin so
 *
 *   --heads H/HKV/D   another model's (32/8/128)
 *   --block P         tokens a block (32)
 *   --values FILE     Q, then K, then V of a model's layer instead of random values: bf16,
 *                     [tokens, H or HKV, D] each, before rotation; repeated as often as needed
 *   --best            only the best kernel
 *   --list            the scenes' names */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/device_memory.h"
#include "bench/wall_clock.h"
#include "kernels/ops.h"
#include "kernels/ops_cuda.h"

#define ROUNDS   7
#define LAYERS   8u
#define TOKENS   76800u /* of the pool */
#define TILE     128u   /* keys that the best kernel works on at a time */
#define SEQS_MAX 64
#define SEGS_MAX 4096
#define IDS_MAX  (1u << 16)
#define ROWS_MAX 16384u

#define RISING_TOKENS 4096u

static uint32_t P = 32, H = 32, HKV = 8, D = 128;
static uint32_t n_blocks; /* of the pool */

/* What is measured: `batch` sequences of `rows` rows, each over n_docs documents of doc_tokens. */
struct shape {
    const char *name;
    uint32_t batch, rows, n_docs, doc_tokens;
    int rise; /* 1: keys whose tiles each raise the maximum, from the first on; -1: from the last */
};

static const struct shape shapes[] = {
    {"causal 512", 1, 512, 0, 0, 0},
    {"causal 1024", 1, 1024, 0, 0, 0},
    {"causal 2048", 1, 2048, 0, 0, 0},
    {"causal 4096", 1, 4096, 0, 0, 0},
    {"causal 8192", 1, 8192, 0, 0, 0},
    {"causal 16384", 1, 16384, 0, 0, 0},
    {"batch 32 x 512", 32, 512, 0, 0, 0},
    {"batch 16 x 1024", 16, 1024, 0, 0, 0},
    {"batch 4 x 4096", 4, 4096, 0, 0, 0},
    {"batch 60 x 150", 60, 150, 0, 0, 0},
    {"query 16 x 5 x 4096", 1, 16, 5, 4096, 0},
    {"query 64 x 5 x 4096", 1, 64, 5, 4096, 0},
    {"query 128 x 5 x 4096", 1, 128, 5, 4096, 0},
    {"query 512 x 5 x 4096", 1, 512, 5, 4096, 0},
    {"query 64 x 1 x 20480", 1, 64, 1, 20480, 0},
    {"query 64 x 20 x 1024", 1, 64, 20, 1024, 0},
    {"query 64 x 40 x 512", 1, 64, 40, 512, 0},
    {"query 64 x 80 x 256", 1, 64, 80, 256, 0},
    {"query 512 x 1 x 20480", 1, 512, 1, 20480, 0},
    {"query 512 x 80 x 256", 1, 512, 80, 256, 0},
    {"query 64 x 15 x 125", 1, 64, 15, 125, 0},
    {"query 64 x 1 x 1875", 1, 64, 1, 1875, 0},
    {"batch 8 x 64 x 15 x 125", 8, 64, 15, 125, 0},
    {"batch 8 x 64 x 1 x 1875", 8, 64, 1, 1875, 0},
    {"rising causal 4096", 1, 4096, 0, 0, 1},
    {"rising query 512 x 5 x 4096", 1, 512, 5, 4096, 1},
    {"falling causal 4096", 1, 4096, 0, 0, -1},
    {"falling query 512 x 5 x 4096", 1, 512, 5, 4096, -1},
};

struct scene {
    uint32_t n_seqs, n_segs, n_ids, n_rows;
    double flops;
    struct attn_seq seqs[SEQS_MAX];
    struct attn_segment segs[SEGS_MAX];
    uint32_t ids[IDS_MAX];
};

/* An instance with its own copy of a scene's description. */
struct side {
    struct ops *ops;
    void *seqs, *segs, *ids, *inv_freq;
    double us[ROUNDS];
};

static struct kv_layout layout;
static struct scene scene;
static struct side sides[2]; /* the best kernel, the portable one */
static void *pool, *rising_pool, *q, *rising_q, *out;
static double ceiling_tflops;
static int n_sides = 2;

static double
median(double *values)
{
    qsort(values, ROUNDS, sizeof(values[0]), by_value);
    return values[ROUNDS / 2];
}

static void
set_value(uint16_t *block, uint32_t layer, enum kv_part part, uint32_t head, uint32_t t, uint32_t d,
          uint16_t value)
{
    memcpy((char *)block + kv_layout_offset(&layout, layer, part, head, t, d), &value,
           sizeof(value));
}

/* Keys along one direction of the dims that hardly turn, higher from tile to tile so that each tile
 * of 128 raises the maximum by more than 2^20 of probability; one document's worth of blocks. */
static void
make_rising(struct ops *ops)
{
    const size_t bytes = kv_layout_block_bytes(&layout);
    uint16_t *block = calloc(1, bytes);
    uint16_t *rows = malloc((size_t)ROWS_MAX * H * D * 2);

    rising_pool = random_bf16(ops, bytes / 2 * (RISING_TOKENS / P));
    for (uint32_t b = 0; b < RISING_TOKENS / P; b++) {
        for (uint32_t i = 0; i < LAYERS * HKV * P * D; i++) {
            uint32_t d = i % D, t = i / D % P, layer = i / D / P / HKV, head = i / D / P % HKV;
            float v = d >= D / 2 - 8 && d < D / 2 ? (float)(b * P / TILE) * 12.0f + (float)t / 32.0f
                                                  : 0.0f;

            set_value(block, layer, KV_PART_K, head, t, d, to_bf16(v));
            set_value(block, layer, KV_PART_V, head, t, d,
                      to_bf16((float)(int)(i * 2654435761u >> 24) / 64.0f));
        }
        MUST(ops->upload(ops, (char *)rising_pool + b * bytes, block, bytes));
        MUST(ops->finish(ops));
    }
    for (size_t i = 0; i < (size_t)ROWS_MAX * H * D; i++) {
        rows[i] = to_bf16(i % D >= D / 2 - 8 && i % D < D / 2 ? 2.0f : 0.25f);
    }
    rising_q = device(ops, rows, (size_t)ROWS_MAX * H * D * 2);
    free(rows);
    free(block);
}

/* --- a model's values --------------------------------------------------------------------- */

/* The block that holds a document's tokens index * P and after, were it the only one. */
static uint32_t
block_of(uint32_t index)
{
    return (uint32_t)((uint64_t)index * 1549 % n_blocks);
}

static const uint16_t *
row_of(const uint16_t *part, uint32_t token, uint32_t heads, uint32_t head)
{
    return part + ((size_t)token * heads + head) * D;
}

static void
fill_block(uint16_t *block, const uint16_t *k, uint32_t first, uint32_t n_tokens)
{
    const uint16_t *v = k + (size_t)n_tokens * HKV * D;

    for (uint32_t i = 0; i < LAYERS * HKV * P; i++) {
        uint32_t t = i % P, head = i / P % HKV, layer = i / P / HKV;
        const uint32_t token = (first + t) % n_tokens;

        for (uint32_t d = 0; d < D; d++) {
            set_value(block, layer, KV_PART_K, head, t, d, row_of(k, token, HKV, head)[d]);
            set_value(block, layer, KV_PART_V, head, t, d, row_of(v, token, HKV, head)[d]);
        }
    }
}

static uint16_t *
read_values(const char *path, uint32_t *n_tokens)
{
    const size_t token_bytes = (size_t)(H + 2 * HKV) * D * 2;
    FILE *file = fopen(path, "rb");
    uint16_t *values = NULL;

    *n_tokens = 0;
    if (file != NULL && fseek(file, 0, SEEK_END) == 0) {
        *n_tokens = (uint32_t)((size_t)ftell(file) / token_bytes);
        values = malloc(*n_tokens * token_bytes + 1);
        rewind(file);
    }
    if (*n_tokens == 0 || fread(values, token_bytes, *n_tokens, file) != *n_tokens) {
        printf("FAIL %s: no values of %u/%u heads of %u\n", path, H, HKV, D);
        exit(1);
    }
    (void)fclose(file);
    return values;
}

/* Puts them into the pool and Q. */
static void
use_values(struct ops *ops, const char *path)
{
    const size_t bytes = kv_layout_block_bytes(&layout), row = (size_t)H * D * 2;
    uint32_t n_tokens;
    uint16_t *values = read_values(path, &n_tokens);
    uint16_t *block = malloc(bytes);

    for (uint32_t i = 0; i < n_blocks; i++) {
        fill_block(block, values + (size_t)n_tokens * H * D, i * P % n_tokens, n_tokens);
        MUST(ops->upload(ops, (char *)pool + block_of(i) * bytes, block, bytes));
        MUST(ops->finish(ops));
    }
    for (uint32_t r = 0; r < ROWS_MAX; r += n_tokens) {
        uint32_t n = ROWS_MAX - r < n_tokens ? ROWS_MAX - r : n_tokens;

        MUST(ops->upload(ops, (char *)q + r * row, values, n * row));
        MUST(ops->finish(ops));
    }
    free(block);
    free(values);
}

/* Block `index` of the rising document, or of the one whose tiles are in reverse order. */
static uint32_t
rising_block(uint32_t index, int rise)
{
    const uint32_t a_tile = TILE / P, n = RISING_TOKENS / P;

    index %= n;
    return rise > 0 ? index : n - a_tile - index / a_tile * a_tile + index % a_tile;
}

static void
add_segment(uint32_t n_tokens, uint32_t offset, int rise)
{
    scene.segs[scene.n_segs++] = (struct attn_segment){scene.n_ids, n_tokens, offset, 0};
    for (uint32_t b = 0; b < (n_tokens + P - 1) / P; b++, scene.n_ids++) {
        scene.ids[scene.n_ids] = rise != 0 ? rising_block(b, rise) : block_of(scene.n_ids);
    }
}

static void
make_scene(const struct shape *shape)
{
    scene.n_seqs = scene.n_segs = scene.n_ids = scene.n_rows = 0;
    scene.flops = 0;
    for (uint32_t i = 0; i < shape->batch; i++) {
        const uint32_t docs = shape->n_docs * shape->doc_tokens;

        scene.seqs[scene.n_seqs++] =
            (struct attn_seq){scene.n_rows, shape->rows, docs, scene.n_segs, shape->n_docs + 1};
        for (uint32_t d = 0; d < shape->n_docs; d++) {
            add_segment(shape->doc_tokens, d * shape->doc_tokens, shape->rise);
        }
        add_segment(shape->rows, docs, shape->rise);
        scene.n_rows += shape->rows;
        scene.flops += 4.0 * D * H * shape->rows * (docs + (shape->rows + 1) / 2.0);
    }
}

static void
describe(struct side *side)
{
    struct ops *ops = side->ops;

    MUST(ops->upload(ops, side->seqs, scene.seqs, scene.n_seqs * sizeof(scene.seqs[0])));
    MUST(ops->upload(ops, side->segs, scene.segs, scene.n_segs * sizeof(scene.segs[0])));
    MUST(ops->upload(ops, side->ids, scene.ids, scene.n_ids * sizeof(scene.ids[0])));
    MUST(ops->begin_step(ops, (struct attn_step){.segs = scene.segs,
                                                 .prefill = scene.seqs,
                                                 .n_prefill = scene.n_seqs,
                                                 .H = H,
                                                 .layout = layout,
                                                 .inv_freq = side->inv_freq,
                                                 .rope_scale = 1.0f}));
    MUST(ops->finish(ops));
}

/* One walk over the layers: as a graph from the second time on. */
static void
walk(struct side *side, const struct shape *shape)
{
    uint8_t key[OPS_GRAPH_KEY_BYTES] = {0};
    enum ops_graph found;

    memcpy(key, shape->name, strlen(shape->name));
    MUST(side->ops->graph_begin(side->ops, key, &found));
    if (found == OPS_GRAPH_REPLAYED) {
        return;
    }
    for (uint32_t l = 0; l < LAYERS; l++) {
        MUST(side->ops->lazy_prefill(
            side->ops,
            (struct lazy_prefill_args){.desc = {.kv = shape->rise != 0 ? rising_pool : pool,
                                                .layout = layout,
                                                .layer = l,
                                                .n_blocks = n_blocks,
                                                .block_ids = side->ids,
                                                .segs = side->segs,
                                                .seqs = side->seqs,
                                                .n_seqs = scene.n_seqs,
                                                .H = H,
                                                .inv_freq = side->inv_freq,
                                                .rope_scale = 1.0f,
                                                .scale = 1.0f / sqrtf((float)D)},
                                       .q = shape->rise != 0 ? rising_q : q,
                                       .out = out}));
    }
    if (found == OPS_GRAPH_RECORDING) {
        MUST(side->ops->graph_end(side->ops));
    }
}

static void
measure(const struct shape *shape)
{
    make_scene(shape);
    const int walks = scene.flops > 5e11 ? 1 : 4;

    for (int i = 0; i < n_sides; i++) {
        describe(&sides[i]);
        for (int k = 0; k < 3; k++) {
            walk(&sides[i], shape);
        }
        MUST(sides[i].ops->finish(sides[i].ops));
    }
    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 0; i < n_sides; i++) {
            double start = now_us();

            for (int k = 0; k < walks; k++) {
                walk(&sides[i], shape);
            }
            MUST(sides[i].ops->finish(sides[i].ops));
            sides[i].us[r] = (now_us() - start) / (walks * LAYERS);
        }
    }
    double us = median(sides[0].us), portable = n_sides > 1 ? median(sides[1].us) : NAN;
    double spread = (sides[0].us[ROUNDS - 1] - sides[0].us[0]) / us * 100;

    printf(
        "%-28s %8.1f us %5.0f TFLOP/s %3.0f%% of gemm, spread %4.1f%%; portable %8.1f us %4.0f\n",
        shape->name, us, scene.flops / us / 1e6, scene.flops / us / 1e4 / ceiling_tflops, spread,
        portable, scene.flops / portable / 1e6);
    (void)fflush(stdout);
}

static void
measure_ceiling(struct ops *ops)
{
    const uint32_t M = 4096, N = 28672, K = 4096;
    void *x = random_bf16(ops, (size_t)M * K), *w = random_bf16(ops, (size_t)N * K);
    void *y = device(ops, NULL, (size_t)M * N * 2);
    double us[ROUNDS];

    for (int r = -1; r < ROUNDS; r++) {
        double start = now_us();

        for (int k = 0; k < 4; k++) {
            MUST(
                ops->gemm(ops, (struct gemm_args){.x = x, .w = w, .y = y, .M = M, .N = N, .K = K}));
        }
        MUST(ops->finish(ops));
        us[r < 0 ? 0 : r] = (now_us() - start) / 4;
    }
    ceiling_tflops = 2.0 * M * N * K / median(us) / 1e6;
    printf("gemm %u x %u x %u: %.0f TFLOP/s\n", M, N, K, ceiling_tflops);
    ops->release(ops, x);
    ops->release(ops, w);
    ops->release(ops, y);
}

static enum status
open_sides(void)
{
    double inv_freq[64];

    for (uint32_t i = 0; i < D / 2; i++) {
        inv_freq[i] = pow(500000.0, -2.0 * i / D);
    }
    for (int i = 0; i < 2; i++) {
        TRY(ops_cuda_new((struct ops_config){.H = H,
                                             .Hkv = HKV,
                                             .D = D,
                                             .rows_max = ROWS_MAX,
                                             .seqs_max = SEQS_MAX,
                                             .segs_max = SEGS_MAX,
                                             .is_portable = i == 1},
                         &sides[i].ops));
        sides[i].seqs = device(sides[i].ops, NULL, sizeof(scene.seqs));
        sides[i].segs = device(sides[i].ops, NULL, sizeof(scene.segs));
        sides[i].ids = device(sides[i].ops, NULL, sizeof(scene.ids));
        sides[i].inv_freq = device(sides[i].ops, inv_freq, sizeof(inv_freq));
    }
    return ST_OK;
}

static bool
read_options(int argc, char **argv, const char **values)
{
    static const struct option options[] = {
        {"heads", required_argument, NULL, 'h'},  {"block", required_argument, NULL, 'p'},
        {"values", required_argument, NULL, 'v'}, {"best", no_argument, NULL, 'b'},
        {"list", no_argument, NULL, 'l'},         {0}};

    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (c) {
        case 'h':
            if (sscanf(optarg, "%u/%u/%u", &H, &HKV, &D) != 3) {
                return false;
            }
            break;
        case 'p': P = (uint32_t)strtoul(optarg, NULL, 10); break;
        case 'v': *values = optarg; break;
        case 'b': n_sides = 1; break;
        case 'l':
            for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
                printf("%s\n", shapes[i].name);
            }
            exit(0);
        default: return false;
        }
    }
    return H > 0 && HKV > 0 && H % HKV == 0 && D > 0 && P > 0 && TILE % P == 0;
}

int
main(int argc, char **argv)
{
    const char *values = NULL;

    if (!read_options(argc, argv, &values)) {
        (void)fprintf(stderr,
                      "usage: %s [--heads H/HKV/D] [--block P] [--values FILE] [--best] "
                      "[--list] [SCENE...]\n",
                      argv[0]);
        return 2;
    }
    n_blocks = TOKENS / P;
    layout = (struct kv_layout){P, LAYERS, HKV, D, KV_BF16, KV_LAYOUT_CK8};
    if (open_sides() != ST_OK) {
        printf("SKIP: %s\n", status_detail());
        return 77;
    }
    struct ops *ops = sides[0].ops;

    measure_ceiling(ops);
    pool = random_bf16(ops, kv_layout_block_bytes(&layout) / 2 * n_blocks);
    q = random_bf16(ops, (size_t)ROWS_MAX * H * D);
    if (values != NULL) {
        use_values(ops, values);
    }
    out = device(ops, NULL, (size_t)ROWS_MAX * H * D * 2);
    make_rising(ops);
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        bool is_wanted = optind == argc;

        for (int k = optind; k < argc; k++) {
            is_wanted |= strncmp(shapes[i].name, argv[k], strlen(argv[k])) == 0;
        }
        if (is_wanted) {
            measure(&shapes[i]);
        }
    }
    ops_destroy(&sides[0].ops);
    ops_destroy(&sides[1].ops);
    return 0;
}
