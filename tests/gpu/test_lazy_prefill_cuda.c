/* SPDX-License-Identifier: Apache-2.0 */
/* lazy_prefill on the device against its twin over all edges: lengths around tiles and blocks,
 * orders, far offsets, poisoned tails, maxima that rise; and the same bits in any company.
 *
 * Tolerance: gpu_scene.h's.  Where scores are large, angles are zero: the rotated Q is rounded to
 * bf16 then without an error that a large score would make visible. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <check.h>

#include "kernels/ops_cuda.h"
#include "tests/support/gpu_scene.h"

#define TILE     128 /* rows and keys of the sm_90 kernel */
#define PATTERNS 6   /* of height */

/* Every segment gets blocks of its own, and all slots behind its tokens become NaN. */
static void
poison_tails(struct scene *s)
{
    const uint32_t P = s->layout.P, D = s->layout.D;
    const uint16_t nan = 0x7fc0;

    ck_assert_uint_le(s->n_ids, s->n_blocks);
    for (uint32_t i = 0; i < s->n_ids; i++) {
        s->ids[i] = i;
    }
    for (uint32_t g = 0; g < s->n_segs; g++) {
        const struct attn_segment *seg = &s->segs[g];

        for (uint32_t t = seg->n_tokens; t < (seg->n_tokens + P - 1) / P * P; t++) {
            char *block = (char *)s->kv
                          + s->ids[seg->block_first + t / P] * kv_layout_block_bytes(&s->layout);

            for (uint32_t x = 0; x < 2 * 2 * s->layout.Hkv * D; x++) {
                size_t at = kv_layout_offset(&s->layout, x / (2 * s->layout.Hkv * D),
                                             x / (s->layout.Hkv * D) % 2 ? KV_PART_V : KV_PART_K,
                                             x / D % s->layout.Hkv, t % P, x % D);
                memcpy(block + at, &nan, sizeof(nan));
            }
        }
    }
}

START_TEST(every_length_around_tiles_and_blocks_is_right)
{
    for (size_t i = 0; i < gpu_cases(2, HEADS); i++) {
        for (uint32_t P = 16; P <= gpu_cases(16, 64); P *= 2) {
            const uint32_t n[] = {0, 1, P - 1, P, P + 1, TILE - 1, TILE, TILE + 1, 2 * TILE + 1};
            struct scene s;
            char what[96];

            scene_begin(&s, P, heads[i].H, heads[i].Hkv, heads[i].D, 900);
            use_gpu_for(&s);
            for (uint32_t k = 1; k < gpu_cases(5, 9); k++) {
                scene_add_seq(&s, NULL, 0, 0, n[k], n[k]);        /* a document being made */
                scene_add_seq(&s, n + k, 9 - k, k * 70000, 2, 2); /* a query over the longer ones */
            }
            scene_add_seq(&s, n, 9, 2147483000u, TILE + 3, TILE);
            poison_tails(&s);
            scene_upload(&s);
            (void)snprintf(what, sizeof(what), "lengths P=%u H=%u/%u D=%u", P, heads[i].H,
                           heads[i].Hkv, heads[i].D);
            check_prefill(&s, what);
            scene_free(&s);
        }
    }
}
END_TEST

/* Gives the sequence's segments the blocks of the documents in this order. */
static void
share(struct scene *s, const struct attn_seq *seq, const struct attn_segment *documents,
      const uint32_t *order, uint32_t n)
{
    uint32_t offset = s->segs[seq->seg_first].offset;

    for (uint32_t i = 0; i < n; i++) {
        s->segs[seq->seg_first + i] = documents[order[i]];
        s->segs[seq->seg_first + i].offset = offset;
        offset += documents[order[i]].n_tokens;
    }
}

/* The next permutation in lexicographic order. */
static void
permute(uint32_t *order, uint32_t n)
{
    uint32_t i = n - 1, j = n - 1;

    while (i > 0 && order[i - 1] >= order[i]) {
        i--;
    }
    if (i == 0) {
        return;
    }
    while (order[j] <= order[i - 1]) {
        j--;
    }
    uint32_t x = order[i - 1];
    order[i - 1] = order[j];
    order[j] = x;
    for (j = n - 1; i < j; i++, j--) {
        x = order[i];
        order[i] = order[j];
        order[j] = x;
    }
}

START_TEST(shared_documents_in_all_orders_and_one_twice_are_right)
{
    const uint32_t n[] = {1, 37, TILE, 200, 64};
    uint32_t order[] = {0, 1, 2, 3, 4};

    for (uint32_t half = 0; half < gpu_cases(1, 2); half++) {
        struct attn_segment documents[5];
        struct scene s;

        scene_begin_llama(&s, 97);
        use_gpu_for(&s);
        for (uint32_t i = 0; i < gpu_cases(4, 60); i++) {
            scene_add_seq(&s, n, 5, i * 1000, 3, 3);
            if (i == 0) {
                memcpy(documents, s.segs, sizeof(documents));
            }
            share(&s, &s.seqs[i], documents, order, 5);
            permute(order, 5);
        }
        const uint32_t twice[] = {3, 3, 0, 0};

        scene_add_seq(&s, (uint32_t[]){200, 200, 1, 1}, 4, 0, 5, 5);
        share(&s, &s.seqs[s.n_seqs - 1], documents, twice, 4);
        scene_upload(&s);
        check_prefill(&s, "60 orders of 5 documents, one twice");
        scene_free(&s);
    }
}
END_TEST

START_TEST(eight_documents_of_16384_tokens_are_right)
{
    const uint32_t n = gpu_cases(1000, 16384);
    const uint32_t docs[] = {n, n, n, n, n, n, n, n};
    struct scene s;

    scene_begin(&s, 64, 8, 2, 128, 512);
    use_gpu_for(&s);
    scene_add_seq(&s, docs, 8, 0, 40, 5);
    scene_upload(&s);
    check_prefill(&s, "8 x 16384");
    scene_free(&s);
}
END_TEST

START_TEST(many_short_documents_are_made_in_one_batch)
{
    struct scene s;

    scene_begin_llama(&s, 300);
    use_gpu_for(&s);
    for (uint32_t i = 0; i < gpu_cases(6, 20); i++) {
        uint32_t n = 50 + random_u32() % 50;

        scene_add_seq(&s, NULL, 0, 0, n, n);
    }
    poison_tails(&s);
    scene_upload(&s);
    check_prefill(&s, "20 documents of 50 to 100 tokens");
    scene_free(&s);
}
END_TEST

START_TEST(a_row_that_sees_no_key_gives_zero)
{
    struct scene s;

    scene_begin_llama(&s, 97);
    use_gpu_for(&s);
    scene_add_seq(&s, (uint32_t[]){30}, 1, 500, 10, 10);
    s.seqs[0].pos_first = 0; /* before everything */
    scene_add_seq(&s, NULL, 0, 0, 0, 0);
    s.seqs[1].n_rows = 3;
    s.n_rows += 3;
    scene_upload(&s);
    check_prefill(&s, "rows without a key");
    scene_free(&s);
}
END_TEST

/* How high the keys of a tile go. */
static float
height(uint32_t pattern, uint32_t tile)
{
    switch (pattern) {
    case 0: return (float)tile * 16.0f;                /* each tile above the last, without end */
    case 1: return (float)(tile % 3) * 24.0f;          /* up and down */
    case 2: return tile == 7 ? 200.0f : 1.0f;          /* once */
    case 3: return 64.0f / (float)(1u << (tile % 16)); /* falling */
    case 4: return (float)tile * 64.0f;                /* faster than a reference has room for */
    default: return (float)(random_u32() % 64);
    }
}

/* Keys along one direction, as high as the pattern says. */
static void
raise_maxima(struct scene *s, uint32_t pattern)
{
    for (uint32_t h = 0; h < s->layout.Hkv; h++) {
        float direction[128];

        for (uint32_t d = 0; d < s->layout.D; d++) {
            direction[d] = random_value();
        }
        for (uint32_t g = 0; g < s->n_segs; g++) {
            for (uint32_t t = 0; t < s->segs[g].n_tokens; t++) {
                float high = height(pattern, t / TILE) * (float)(random_u32() % 32) / 32.0f;
                char *block = (char *)s->kv
                              + s->ids[s->segs[g].block_first + t / s->layout.P]
                                    * kv_layout_block_bytes(&s->layout);

                for (uint32_t d = 0; d < s->layout.D; d++) {
                    uint16_t k = to_bf16(direction[d] * high);

                    memcpy(block
                               + kv_layout_offset(&s->layout, 1, KV_PART_K, h, t % s->layout.P, d),
                           &k, sizeof(k));
                }
            }
        }
    }
    memset(s->inv_freq, 0, sizeof(s->inv_freq));
}

static void
rising_scene(struct scene *s, uint32_t pattern)
{
    const uint32_t docs[] = {300, 1200, 129};

    scene_begin_llama(s, 400);
    scene_add_seq(s, docs, 3, 0, 70, 70);
    scene_add_seq(s, NULL, 0, 0, (uint32_t)gpu_cases(200, 600), (uint32_t)gpu_cases(200, 600));
    poison_tails(s);
    raise_maxima(s, pattern);
}

START_TEST(maxima_that_rise_tile_after_tile_are_followed)
{
    for (uint32_t pattern = 0; pattern < PATTERNS; pattern++) {
        struct scene s;
        char what[64];

        rising_scene(&s, pattern);
        use_gpu_for(&s);
        scene_upload(&s);
        (void)snprintf(what, sizeof(what), "rising maxima, pattern %u", pattern);
        check_prefill(&s, what);
        scene_free(&s);
    }
}
END_TEST

/* Runs the scene and returns the bits of `rows` rows of out from `first` on. */
static uint16_t *
bits_of(struct scene *s, const void *q, uint32_t first, uint32_t rows)
{
    const size_t row = (size_t)s->H * s->layout.D;
    struct tensor out = tensor_new(s->n_rows * row, false);
    uint16_t *bits = malloc(rows * row * sizeof(*bits));

    scene_begin_step(s, false);
    CHECK_OK(gpu->lazy_prefill(
        gpu, (struct lazy_prefill_args){.desc = scene_desc(s, true), .q = q, .out = out.device}));
    CHECK_OK(
        gpu->download(gpu, bits, (uint16_t *)out.device + first * row, rows * row * sizeof(*bits)));
    CHECK_OK(gpu->finish(gpu));
    tensor_free(&out);
    return bits;
}

/* Whichever way maxima are taken, and whoever else waits for whom meanwhile. */
START_TEST(a_step_that_is_repeated_has_the_same_bits)
{
    for (uint32_t pattern = 0; pattern < gpu_cases(2, PATTERNS); pattern++) {
        struct scene s;

        rising_scene(&s, pattern);
        use_gpu_for(&s);
        scene_upload(&s);
        const size_t row = (size_t)s.H * s.layout.D;
        struct tensor q = tensor_new(s.n_rows * row, true);
        uint16_t *first = bits_of(&s, q.device, 0, s.n_rows);

        for (uint32_t i = 0; i < gpu_cases(2, 20); i++) {
            uint16_t *again = bits_of(&s, q.device, 0, s.n_rows);

            ck_assert_msg(memcmp(first, again, s.n_rows * row * sizeof(*first)) == 0,
                          "pattern %u, repetition %u", pattern, i);
            free(again);
        }
        free(first);
        tensor_free(&q);
        scene_free(&s);
    }
}
END_TEST

START_TEST(a_deterministic_row_has_the_same_bits_in_any_company)
{
    for (uint32_t pattern = 0; pattern < gpu_cases(1, PATTERNS); pattern++) {
        struct scene s;

        rising_scene(&s, pattern);
        ops_destroy(&gpu);
        CHECK_OK(ops_cuda_new((struct ops_config){.H = s.H,
                                                  .Hkv = s.layout.Hkv,
                                                  .D = s.layout.D,
                                                  .rows_max = 2048,
                                                  .seqs_max = SEQS_MAX,
                                                  .segs_max = SEGS_MAX,
                                                  .is_deterministic = true},
                              &gpu));
        scene_upload(&s);
        const size_t row = (size_t)s.H * s.layout.D;
        struct tensor q = tensor_new(s.n_rows * row, true);
        uint16_t *whole = bits_of(&s, q.device, 0, 70);
        const uint32_t pieces[] = {1, 32, 5, 31, 1};

        s.n_seqs = 1; /* alone now, and in pieces */
        s.n_rows = 70;
        for (uint32_t i = 0, first = 0; i < 5; first += pieces[i++]) {
            s.seqs[0].row_first = 0;
            s.seqs[0].n_rows = pieces[i];
            s.seqs[0].pos_first += i == 0 ? 0 : pieces[i - 1];
            CHECK_OK(gpu->upload(gpu, s.d_seqs, s.seqs, sizeof(s.seqs)));
            uint16_t *piece = bits_of(&s, (uint16_t *)q.device + first * row, 0, pieces[i]);

            ck_assert_msg(memcmp(piece, whole + first * row, pieces[i] * row * sizeof(*piece)) == 0,
                          "pattern %u, piece %u", pattern, i);
            free(piece);
        }
        free(whole);
        tensor_free(&q);
        scene_free(&s);
    }
}
END_TEST

GPU_MAIN("lazy_prefill_cuda", gpu_open(), every_length_around_tiles_and_blocks_is_right,
         shared_documents_in_all_orders_and_one_twice_are_right,
         eight_documents_of_16384_tokens_are_right, many_short_documents_are_made_in_one_batch,
         a_row_that_sees_no_key_gives_zero, maxima_that_rise_tile_after_tile_are_followed,
         a_step_that_is_repeated_has_the_same_bits,
         a_deterministic_row_has_the_same_bits_in_any_company)
