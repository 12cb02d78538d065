/* SPDX-License-Identifier: Apache-2.0 */
/* What is decode's own: partials, their identity, batches.  That results are right is the matter of
 * test_lazy_attention. */
#include <string.h>

#include "kernels/attn_merge.h"
#include "kernels/lazy_decode.h"
#include "tests/kernels/attn_fixture.h"
#include "tests/support/check_main.h"

static const struct kv_layout small = {16, 2, 1, 64, KV_F32, KV_LAYOUT_PLAIN};

START_TEST(partials_are_counted_per_segment)
{
    const struct attn_segment segs[] = {{.n_tokens = 5000},
                                        {.n_tokens = 0},
                                        {.n_tokens = 1},
                                        {.n_tokens = 1024},
                                        {.n_tokens = 1025}};
    const struct attn_seq seq = {.seg_first = 1, .n_segs = 4};

    ck_assert_uint_eq(lazy_decode_partials(&seq, segs), 0 + 1 + 1 + 2);
    ck_assert_uint_eq(lazy_decode_partials(&(struct attn_seq){.seg_first = 0, .n_segs = 1}, segs),
                      5);
    ck_assert_uint_eq(lazy_decode_partials(&(struct attn_seq){0}, segs), 0);
}
END_TEST

/* A row that stands before the second chunk of a segment leaves the identity there. */
START_TEST(a_chunk_without_a_visible_key_is_the_identity)
{
    struct fixture fix;
    struct doc a;
    struct prompt prompt = {.docs = {&a}, .n_segs = 1, .n_rows = 1};
    struct attn_segment segs[FIXTURE_SEGS_MAX];
    uint32_t ids[FIXTURE_SEGS_MAX * 256];
    const uint32_t first[] = {0, 2};
    struct attn_seq seq;
    float o[2 * 64], ml[4];

    fixture_init(&fix, small, 1, 128, test_seed());
    fixture_doc(&fix, &a, 1100);
    prompt.q = fixture_queries(&fix, 1);
    struct attn_desc desc = fixture_desc(&fix, &prompt, &seq, segs, ids);

    seq.pos_first = 1000;
    memset(o, 0xff, sizeof(o));
    ck_assert_int_eq(lazy_decode_ref((struct lazy_decode_args){desc, prompt.q, o, ml, first, 2}),
                     ST_OK);
    ck_assert(isfinite(ml[0]) && ml[1] >= 1.0f);
    ck_assert(isinf(ml[2]) && ml[2] < 0);
    ck_assert_float_eq(ml[3], 0.0f);
    for (int d = 0; d < 64; d++) {
        ck_assert_float_eq(o[64 + d], 0.0f);
    }
    free((void *)prompt.q);
    fixture_doc_free(&a);
    fixture_deinit(&fix);
}
END_TEST

/* Three sequences in one call give the bits that each gives alone, and none of 0 keys disturbs. */
START_TEST(a_batch_changes_no_bit_of_a_sequence)
{
    enum {
        N = 3,
        H = 2
    };
    struct fixture fix;
    struct doc docs[N];
    const uint32_t lens[N] = {1050, 0, 33};
    struct attn_segment segs[N];
    struct attn_seq seqs[N];
    uint32_t ids[3 * 256], first[N + 1] = {0}, n_ids = 0;
    float *q, *o, *ml, out[N * H * 64], alone[H * 64];

    fixture_init(&fix, small, H, 128, test_seed());
    for (uint32_t i = 0; i < N; i++) {
        fixture_doc(&fix, &docs[i], lens[i]);
        segs[i] = (struct attn_segment){.block_first = n_ids, .n_tokens = lens[i], .offset = 7};
        seqs[i] = (struct attn_seq){
            .row_first = 99, .n_rows = 1, .pos_first = 7 + lens[i], .seg_first = i, .n_segs = 1};
        for (uint32_t b = 0; b < (lens[i] + 15) / 16; b++) {
            ids[n_ids++] = docs[i].blocks[b];
        }
        first[i + 1] = first[i] + lazy_decode_partials(&seqs[i], segs);
    }
    q = fixture_queries(&fix, N);
    o = malloc(first[N] * H * 64 * sizeof(float));
    ml = malloc(first[N] * H * 2 * sizeof(float));
    struct prompt any = {.n_segs = 0};
    struct attn_seq unused;
    struct attn_segment none[1];
    struct attn_desc desc = fixture_desc(&fix, &any, &unused, none, ids + n_ids);

    desc.block_ids = ids;
    desc.segs = segs;
    desc.seqs = seqs;
    desc.n_seqs = N;
    ck_assert_int_eq(lazy_decode_ref((struct lazy_decode_args){desc, q, o, ml, first, first[N]}),
                     ST_OK);
    ck_assert_int_eq(attn_merge_ref((struct attn_merge_args){o, ml, first, NULL, out, N, H, 64}),
                     ST_OK);
    for (uint32_t i = 0; i < N; i++) {
        struct prompt one = {.docs = {&docs[i]},
                             .offsets = {7},
                             .n_segs = 1,
                             .pos_first = 7 + lens[i],
                             .n_rows = 1,
                             .q = q + i * H * 64};

        fixture_prefill(&fix, &one, 1, alone);
        ck_assert_mem_eq(alone, &out[i * H * 64], sizeof(alone));
        fixture_doc_free(&docs[i]);
    }
    free(q);
    free(o);
    free(ml);
    fixture_deinit(&fix);
}
END_TEST

START_TEST(what_decode_cannot_take_is_refused)
{
    struct fixture fix;
    struct doc a;
    struct prompt prompt = {.docs = {&a}, .n_segs = 1, .n_rows = 1};
    struct attn_segment segs[FIXTURE_SEGS_MAX];
    uint32_t ids[FIXTURE_SEGS_MAX * 256], first[] = {0, 1};
    struct attn_seq seq;
    float q[64] = {0}, o[64], ml[2];

    fixture_init(&fix, small, 1, 16, test_seed());
    fixture_doc(&fix, &a, 20);
    struct lazy_decode_args args = {.desc = fixture_desc(&fix, &prompt, &seq, segs, ids),
                                    .q = q,
                                    .o = o,
                                    .ml = ml,
                                    .partial_first = first,
                                    .n_partials = 1};

    ck_assert_int_eq(lazy_decode_ref(args), ST_OK);
    args.n_partials = 2;
    ck_assert_int_eq(lazy_decode_ref(args), ST_INVALID);
    args.n_partials = first[1] = 2;
    ck_assert_int_eq(lazy_decode_ref(args), ST_INVALID);
    ck_assert_str_eq(status_detail(), "sequence 0: 2 partials given, its segments need 1");
    args.n_partials = first[1] = 1;
    seq.n_rows = 2;
    ck_assert_int_eq(lazy_decode_ref(args), ST_INVALID);
    ck_assert_str_eq(status_detail(), "sequence 0 has 2 rows: decode takes one");
    fixture_doc_free(&a);
    fixture_deinit(&fix);
}
END_TEST

CHECK_MAIN("lazy_decode", partials_are_counted_per_segment,
           a_chunk_without_a_visible_key_is_the_identity, a_batch_changes_no_bit_of_a_sequence,
           what_decode_cannot_take_is_refused)
