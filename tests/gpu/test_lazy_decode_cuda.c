/* SPDX-License-Identifier: Apache-2.0 */
/* lazy_decode on a device beyond what test_ops_cuda asks of it: documents that several requests
 * read together, the bits of a result, and launches one after another. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/lazy_prefill.h"
#include "tests/support/attn_double.h"
#include "tests/support/gpu_scene.h"

#define DOCS_MAX 16

/* A scene whose documents have blocks of their own, so that what lies behind their ends can be
 * poisoned, and are cited by any number of sequences. */
struct library {
    struct scene scene;
    struct {
        uint32_t first; /* of its blocks */
        uint32_t n_tokens;
    } docs[DOCS_MAX];
    uint32_t n_docs;
    uint32_t n_blocks; /* given out */
};

/* Blocks of a document are not neighbours, nor in order. */
static uint32_t
block_of(const struct scene *s, uint32_t n)
{
    return (uint32_t)((uint64_t)n * 7919 % s->n_blocks);
}

static void
poison_tail(struct scene *s, uint32_t block, uint32_t from)
{
    const struct kv_layout *layout = &s->layout;
    char *base = (char *)s->kv + block * kv_layout_block_bytes(layout);
    const uint16_t nan = 0x7fc0;

    for (uint32_t t = from; t < layout->P; t++) {
        for (uint32_t l = 0; l < layout->L; l++) {
            for (uint32_t x = 0; x < 2 * layout->Hkv * layout->D; x++) {
                size_t at = kv_layout_offset(layout, l, x % 2 ? KV_PART_V : KV_PART_K,
                                             x / 2 / layout->D, t, x / 2 % layout->D);

                memcpy(base + at, &nan, sizeof(nan));
            }
        }
    }
}

static void
library_begin(struct library *lib, uint32_t P, struct heads shape, const uint32_t *lengths,
              uint32_t n)
{
    memset(lib, 0, sizeof(*lib));
    scene_begin(&lib->scene, P, shape.H, shape.Hkv, shape.D, 1024);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t blocks = (lengths[i] + P - 1) / P;

        lib->docs[lib->n_docs].first = lib->n_blocks;
        lib->docs[lib->n_docs++].n_tokens = lengths[i];
        lib->n_blocks += blocks;
        if (lengths[i] % P != 0) {
            poison_tail(&lib->scene, block_of(&lib->scene, lib->n_blocks - 1), lengths[i] % P);
        }
    }
}

static void
add_segment(struct library *lib, uint32_t first, uint32_t n_tokens, uint32_t offset)
{
    struct scene *s = &lib->scene;

    s->segs[s->n_segs++] = (struct attn_segment){s->n_ids, n_tokens, offset, 0};
    for (uint32_t i = 0; i < (n_tokens + s->layout.P - 1) / s->layout.P; i++) {
        ck_assert_uint_lt(s->n_ids, BLOCKS_MAX);
        s->ids[s->n_ids++] = block_of(s, first + i);
    }
}

/* The last `rows` of a request's `own` tokens over documents `cited`, the first at position `base`.
 */
static void
ask(struct library *lib, const uint32_t *cited, uint32_t n, uint32_t base, uint32_t own,
    uint32_t rows)
{
    struct scene *s = &lib->scene;
    struct attn_seq *seq = &s->seqs[s->n_seqs];
    uint32_t offset = base;

    ck_assert_uint_lt(s->n_seqs, SEQS_MAX);
    *seq = (struct attn_seq){s->n_rows, rows, 0, s->n_segs, n + 1};
    for (uint32_t i = 0; i < n; i++) {
        add_segment(lib, lib->docs[cited[i]].first, lib->docs[cited[i]].n_tokens, offset);
        offset += lib->docs[cited[i]].n_tokens;
    }
    add_segment(lib, lib->n_blocks, own, offset);
    lib->n_blocks += (own + s->layout.P - 1) / s->layout.P;
    ck_assert_uint_le(lib->n_blocks, s->n_blocks);
    seq->pos_first = offset + own - rows;
    s->n_seqs++;
    s->n_rows += rows;
}

/* One new token of a request. */
static void
cite(struct library *lib, const uint32_t *cited, uint32_t n, uint32_t base, uint32_t own)
{
    ask(lib, cited, n, base, own, 1);
}

static const uint32_t lengths[] = {1000, 37, 400, 16, 1, 64, 130, 0, 257, 63};

/* Documents with 2 to n_seqs sharers, in different orders and slots; one of them twice. */
static void
cite_all(struct library *lib, uint32_t n_seqs)
{
    const uint32_t a[] = {2, 0, 1}, b[] = {7, 2, 6, 4, 8}, c[] = {3, 5, 2, 2}, d[] = {0, 9};

    for (uint32_t i = 0; i < n_seqs; i++) {
        uint32_t base = i == 1 ? 2147480000u : i * 1000;

        switch (i % 4) {
        case 0: cite(lib, a, 3, base, 5 + i); break;
        case 1: cite(lib, b, 5, base, 1 + i); break;
        case 2: cite(lib, c, 4, base, 16 + i * 12); break;
        default: cite(lib, d, i > 8 ? 1 : 2, base, 33); break;
        }
    }
}

/* The output of one layer's lazy_decode, as bits. */
static uint16_t *
decode(const struct scene *s, const void *q)
{
    size_t count = (size_t)s->n_seqs * s->H * s->layout.D;
    uint16_t *bits = malloc(count * sizeof(*bits));
    void *out;

    memset(bits, 0xff, count * sizeof(*bits));
    CHECK_OK(gpu->alloc(gpu, count * sizeof(*bits), &out));
    CHECK_OK(gpu->upload(gpu, out, bits, count * sizeof(*bits)));
    scene_begin_step(s, true);
    CHECK_OK(
        gpu->lazy_decode(gpu, (struct lazy_decode_args){.desc = scene_desc(s, true), .q = q}, out));
    CHECK_OK(gpu->download(gpu, bits, out, count * sizeof(*bits)));
    CHECK_OK(gpu->finish(gpu));
    gpu->release(gpu, out);
    return bits;
}

START_TEST(documents_read_together_equal_their_twin_for_every_head_layout_and_block_size)
{
    for (size_t i = 0; i < gpu_cases(2, HEADS); i++) {
        for (uint32_t P = 16; P <= gpu_cases(16, 64); P *= 2) {
            static struct library lib;
            char what[96];

            library_begin(&lib, P, heads[i], lengths, 10);
            use_gpu_for(&lib.scene);
            cite_all(&lib, (uint32_t)gpu_cases(7, 40));
            scene_upload(&lib.scene);
            (void)snprintf(what, sizeof(what), "shared P=%u H=%u/%u D=%u", P, heads[i].H,
                           heads[i].Hkv, heads[i].D);
            check_decode(&lib.scene, what);
            scene_free(&lib.scene);
        }
    }
}
END_TEST

static double
relative_error(const uint16_t *got, const uint16_t *want, size_t count)
{
    double error = 0.0, norm = 0.0;

    for (size_t i = 0; i < count; i++) {
        double x = from_bf16(got[i]), y = from_bf16(want[i]);

        error += (x - y) * (x - y);
        norm += y * y;
    }
    return sqrt(error / norm); /* NaN if any of them is: above every limit */
}

/* Each way to read the documents, against float64. */
static void
check_double(uint32_t P, struct heads shape)
{
    static const struct {
        const char *name;
        struct ops_config config;
    } ways[] = {
        {"apart", {.is_unshared = true}}, {"together", {0}}, {"sm_80", {.is_portable = true}}};
    static struct library lib;

    library_begin(&lib, P, shape, lengths, 10);
    cite_all(&lib, (uint32_t)gpu_cases(3, 9));
    use_gpu_for(&lib.scene);
    scene_upload(&lib.scene);
    const struct attn_desc desc = scene_desc(&lib.scene, false);
    const size_t count = (size_t)lib.scene.n_seqs * shape.H * shape.D;
    struct tensor q = tensor_new(count, true);
    uint16_t *want = malloc(count * sizeof(*want));

    attn_double(&desc, q.host, want);
    CHECK_OK(gpu->finish(gpu));
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        use_gpu_with(&lib.scene, ways[i].config);
        uint16_t *got = decode(&lib.scene, q.device);
        double error = relative_error(got, want, count);

        printf("double P=%u H=%u/%u D=%u %s: rel %.2e\n", P, shape.H, shape.Hkv, shape.D,
               ways[i].name, error);
        ck_assert_msg(error <= 6e-3, "relative error %g", error);
        free(got);
    }
    free(want);
    tensor_free(&q);
    scene_free(&lib.scene);
}

START_TEST(every_group_head_size_and_block_size_equals_attention_in_double)
{
    static const uint32_t groups[] = {4, 1, 3, 8, 16};

    for (size_t i = 0; i < gpu_cases(1, 5); i++) {
        uint32_t Hkv = groups[i] < 8 ? 2 : 1;

        for (uint32_t P = 16; P <= 64; P *= 2) {
            check_double(P, (struct heads){groups[i] * Hkv, Hkv, 64});
            check_double(P, (struct heads){groups[i] * Hkv, Hkv, 128});
        }
    }
}
END_TEST

/* A step of the scene's sequences, the first n_decode of them decodes; all rows against the twin.
 */
static void
check_step(struct scene *s, uint32_t n_decode, const char *what)
{
    const size_t count = (size_t)s->n_rows * s->H * s->layout.D;
    struct tensor q = tensor_new(count, true);
    struct tensor out = tensor_new(count, false);
    struct attn_desc desc = scene_desc(s, true);

    CHECK_OK(cpu->lazy_prefill(
        cpu,
        (struct lazy_prefill_args){.desc = scene_desc(s, false), .q = q.host, .out = out.host}));
    CHECK_OK(gpu->begin_step(gpu, (struct attn_step){.segs = s->segs,
                                                     .block_ids = s->ids,
                                                     .prefill = s->seqs + n_decode,
                                                     .decode = s->seqs,
                                                     .n_prefill = s->n_seqs - n_decode,
                                                     .n_decode = n_decode,
                                                     .H = s->H,
                                                     .layout = s->layout,
                                                     .inv_freq = s->d_inv_freq,
                                                     .rope_scale = 1.0f}));
    desc.n_seqs = n_decode;
    if (n_decode > 0) {
        CHECK_OK(gpu->lazy_decode(gpu, (struct lazy_decode_args){.desc = desc, .q = q.device},
                                  out.device));
    }
    desc.seqs += n_decode;
    desc.n_seqs = s->n_seqs - n_decode;
    CHECK_OK(gpu->lazy_prefill(
        gpu, (struct lazy_prefill_args){.desc = desc, .q = q.device, .out = out.device}));
    compare_device(what, out.device, out.host, count, false, 6e-3);
    tensor_free(&q);
    tensor_free(&out);
}

START_TEST(short_queries_on_documents_of_others_equal_their_twin)
{
    const uint32_t a[] = {2, 0, 1}, b[] = {0, 6}, alone[] = {8};

    for (size_t i = 0; i < gpu_cases(2, HEADS); i++) {
        for (uint32_t n_decode = 0; n_decode <= 3; n_decode += 3) {
            static struct library lib;
            char what[96];

            library_begin(&lib, 32, heads[i], lengths, 10);
            use_gpu_for(&lib.scene);
            for (uint32_t k = 0; k < n_decode; k++) {
                cite(&lib, a, 3, k * 100, 7 + k);
            }
            for (uint32_t k = 0; k < gpu_cases(4, 14); k++) { /* these go along */
                ask(&lib, k % 3 == 0 ? b : a, k % 3 == 0 ? 2 : 3, k * 1000, 9 + k, 1 + k % 4);
                if (k == 2) {
                    ask(&lib, b, 2, 5, 90, 80);    /* too long, in their midst */
                    ask(&lib, alone, 1, 70, 6, 3); /* nobody else's document */
                }
            }
            scene_upload(&lib.scene);
            (void)snprintf(what, sizeof(what), "queries H=%u/%u D=%u, %u decodes", heads[i].H,
                           heads[i].Hkv, heads[i].D, n_decode);
            check_step(&lib.scene, n_decode, what);
            scene_free(&lib.scene);
        }
    }
}
END_TEST

START_TEST(read_apart_they_give_the_same_to_rounding)
{
    static struct library lib;
    const struct heads llama = {32, 8, 128};
    size_t count;

    library_begin(&lib, 32, llama, lengths, 10);
    use_gpu_for(&lib.scene);
    cite_all(&lib, (uint32_t)gpu_cases(5, 40));
    scene_upload(&lib.scene);
    count = (size_t)lib.scene.n_seqs * lib.scene.H * lib.scene.layout.D;
    struct tensor q = tensor_new(count, true);
    uint16_t *together = decode(&lib.scene, q.device);

    use_gpu_with(&lib.scene, (struct ops_config){.is_unshared = true});
    uint16_t *apart = decode(&lib.scene, q.device);
    double error = relative_error(together, apart, count);

    /* Both are within 2^-9 of the same number, but for the order of sums and the rounding of P. */
    ck_assert_msg(error <= 4e-3, "relative error %g", error);
    free(together);
    free(apart);
    tensor_free(&q);
    scene_free(&lib.scene);
}
END_TEST

START_TEST(the_order_of_the_requests_changes_no_bit)
{
    static struct library lib;
    static struct scene other;
    const struct heads llama = {32, 8, 128};

    library_begin(&lib, 16, llama, lengths, 10);
    use_gpu_for(&lib.scene);
    cite_all(&lib, (uint32_t)gpu_cases(6, 37));
    scene_upload(&lib.scene);
    const struct scene *s = &lib.scene;
    size_t row = (size_t)s->H * s->layout.D;
    struct tensor q = tensor_new(s->n_seqs * row, true);
    uint16_t *want = decode(s, q.device);

    other = *s;
    struct tensor moved = tensor_new(s->n_seqs * row, true);
    uint16_t *rows = malloc(2 * s->n_seqs * row * sizeof(*rows));

    CHECK_OK(gpu->download(gpu, rows, q.device, s->n_seqs * row * 2));
    CHECK_OK(gpu->finish(gpu));
    for (uint32_t i = 0; i < s->n_seqs; i++) { /* row i comes from (5 i + 3) % n, n not by 5 */
        uint32_t from = (5 * i + 3) % s->n_seqs;

        other.seqs[i] = s->seqs[from];
        other.seqs[i].row_first = i;
        memcpy(rows + (s->n_seqs + i) * row, rows + from * row, row * 2);
    }
    CHECK_OK(gpu->upload(gpu, moved.device, rows + s->n_seqs * row, s->n_seqs * row * 2));
    CHECK_OK(gpu->upload(gpu, other.d_seqs, other.seqs, sizeof(other.seqs)));
    uint16_t *got = decode(&other, moved.device);

    for (uint32_t i = 0; i < s->n_seqs; i++) {
        ck_assert_mem_eq(got + i * row, want + (5 * i + 3) % s->n_seqs * row, row * 2);
    }
    free(rows);
    free(want);
    free(got);
    tensor_free(&q);
    tensor_free(&moved);
    scene_free(&lib.scene);
}
END_TEST

START_TEST(with_fixed_cuts_a_row_has_the_same_bits_alone)
{
    static struct library lib;
    static struct scene alone;
    const struct heads llama = {32, 8, 128};
    const uint32_t docs[] = {3000, 37, 2500, 16, 1, 64, 130, 0, 257, 63};

    library_begin(&lib, 32, llama, docs, 10);
    use_gpu_with(&lib.scene, (struct ops_config){.has_fixed_cuts = true});
    cite_all(&lib, (uint32_t)gpu_cases(5, 30));
    scene_upload(&lib.scene);
    const struct scene *s = &lib.scene;
    size_t row = (size_t)s->H * s->layout.D;
    struct tensor q = tensor_new(s->n_seqs * row, true);
    uint16_t *want = decode(s, q.device);

    for (uint32_t i = 0; i < s->n_seqs; i++) {
        alone = *s;
        alone.n_seqs = alone.n_rows = 1;
        alone.seqs[0] = s->seqs[i];
        alone.seqs[0].row_first = 0;
        CHECK_OK(gpu->upload(gpu, alone.d_seqs, alone.seqs, sizeof(alone.seqs[0])));
        uint16_t *got = decode(&alone, (const char *)q.device + i * row * 2);

        ck_assert_mem_eq(got, want + i * row, row * 2);
        free(got);
    }
    free(want);
    tensor_free(&q);
    scene_free(&lib.scene);
}
END_TEST

/* Launches overlap, and each has to find the counters of the one before at zero. */
START_TEST(launches_in_a_row_give_the_same_bits_each_time)
{
    static struct library lib;
    const struct heads llama = {32, 8, 128};

    library_begin(&lib, 64, llama, lengths, 10);
    use_gpu_for(&lib.scene);
    cite_all(&lib, (uint32_t)gpu_cases(5, 33));
    scene_upload(&lib.scene);
    const struct scene *s = &lib.scene;
    size_t count = (size_t)s->n_seqs * s->H * s->layout.D;
    struct tensor q = tensor_new(count, true);
    struct tensor out = tensor_new(count, false);
    uint16_t *want = decode(s, q.device);
    uint16_t *got = malloc(count * sizeof(*got));
    struct attn_desc desc = scene_desc(s, true);

    for (int round = 0; round < 20; round++) {
        scene_begin_step(s, true);
        for (uint32_t layer = 0; layer < s->layout.L; layer++) {
            desc.layer = layer; /* ends with the one that was asked above */
            CHECK_OK(gpu->lazy_decode(gpu, (struct lazy_decode_args){.desc = desc, .q = q.device},
                                      out.device));
        }
        CHECK_OK(gpu->download(gpu, got, out.device, count * sizeof(*got)));
        CHECK_OK(gpu->finish(gpu));
        ck_assert_mem_eq(got, want, count * sizeof(*got));
    }
    free(want);
    free(got);
    tensor_free(&q);
    tensor_free(&out);
    scene_free(&lib.scene);
}
END_TEST

GPU_MAIN("lazy_decode_cuda", gpu_open(),
         every_group_head_size_and_block_size_equals_attention_in_double,
         documents_read_together_equal_their_twin_for_every_head_layout_and_block_size,
         short_queries_on_documents_of_others_equal_their_twin,
         read_apart_they_give_the_same_to_rounding, the_order_of_the_requests_changes_no_bit,
         with_fixed_cuts_a_row_has_the_same_bits_alone,
         launches_in_a_row_give_the_same_bits_each_time)
