/* SPDX-License-Identifier: Apache-2.0 */
/* What is prefill's own: several sequences a call.  That results are right is the matter of
 * test_lazy_attention. */
#include <string.h>

#include "kernels/lazy_prefill.h"
#include "tests/kernels/attn_fixture.h"
#include "tests/support/check_main.h"

/* Cold documents and a query in one call: each sequence has the bits it has alone, and rows that
 * belong to none are left as they were. */
START_TEST(sequences_of_one_call_do_not_see_each_other)
{
    enum {
        N = 3,
        H = 3,
        ROWS = 60
    };
    const struct kv_layout layout = {16, 2, 1, 64, KV_F32, KV_LAYOUT_PLAIN};
    const uint32_t lens[N] = {30, 17, 5}, row_first[N] = {25, 0, 57}, n_rows[N] = {30, 17, 2};
    struct fixture fix;
    struct doc docs[N];
    struct attn_segment segs[N + 2];
    struct attn_seq seqs[N];
    uint32_t ids[64], n_ids = 0;
    float *q, out[ROWS * H * 64], alone[ROWS * H * 64];

    fixture_init(&fix, layout, H, 32, test_seed());
    for (uint32_t i = 0; i < N; i++) {
        fixture_doc(&fix, &docs[i], lens[i]);
        segs[i] = (struct attn_segment){.block_first = n_ids, .n_tokens = lens[i]};
        seqs[i] = (struct attn_seq){row_first[i], n_rows[i], lens[i] - n_rows[i], i, 1};
        for (uint32_t b = 0; b < (lens[i] + 15) / 16; b++) {
            ids[n_ids++] = docs[i].blocks[b];
        }
    }
    /* The last one is the query: both documents first, in the other order, then itself. */
    segs[3] = segs[1];
    segs[4] = segs[0];
    segs[2].offset = 47;
    segs[4].offset = 17;
    const struct attn_segment order[5] = {segs[0], segs[1], segs[3], segs[4], segs[2]};

    seqs[2] = (struct attn_seq){row_first[2], 2, 47 + 3, 2, 3};
    q = fixture_queries(&fix, ROWS);
    struct prompt any = {.n_segs = 0};
    struct attn_seq unused;
    struct attn_segment none[1];
    struct attn_desc desc = fixture_desc(&fix, &any, &unused, none, ids + n_ids);

    desc.block_ids = ids;
    desc.segs = order;
    desc.seqs = seqs;
    desc.n_seqs = N;
    memset(out, 0xff, sizeof(out));
    ck_assert_int_eq(lazy_prefill_ref((struct lazy_prefill_args){desc, q, out}), ST_OK);
    for (uint32_t i = 0; i < N; i++) {
        struct prompt one = {.docs = {&docs[i]},
                             .n_segs = 1,
                             .pos_first = lens[i] - n_rows[i],
                             .n_rows = n_rows[i],
                             .q = q + row_first[i] * H * 64};

        if (i == 2) {
            one.docs[0] = &docs[1];
            one.docs[1] = &docs[0];
            one.docs[2] = &docs[2];
            one.n_segs = 3;
            fixture_place(&one, 0);
        }
        fixture_prefill(&fix, &one, n_rows[i], alone);
        ck_assert_mem_eq(alone, out + row_first[i] * H * 64, n_rows[i] * H * 64 * sizeof(float));
        fixture_check(&fix, &one, out + row_first[i] * H * 64, "batched");
    }
    for (uint32_t row = 17; row < 25; row++) {
        ck_assert(isnan(out[row * H * 64]));
    }
    for (int i = 0; i < N; i++) {
        fixture_doc_free(&docs[i]);
    }
    free(q);
    fixture_deinit(&fix);
}
END_TEST

START_TEST(no_sequence_and_no_row_are_fine)
{
    const struct kv_layout layout = {16, 2, 1, 64, KV_F32, KV_LAYOUT_PLAIN};
    struct fixture fix;
    struct prompt prompt = {.n_segs = 0};
    struct attn_segment segs[FIXTURE_SEGS_MAX];
    uint32_t ids[1];
    struct attn_seq seq;
    float q[64] = {0}, out[64] = {7};

    fixture_init(&fix, layout, 1, 1, test_seed());
    struct attn_desc desc = fixture_desc(&fix, &prompt, &seq, segs, ids);

    ck_assert_int_eq(lazy_prefill_ref((struct lazy_prefill_args){desc, q, out}), ST_OK);
    ck_assert_float_eq(out[0], 7.0f);
    desc.n_seqs = 0;
    ck_assert_int_eq(lazy_prefill_ref((struct lazy_prefill_args){desc, q, out}), ST_OK);
    desc.n_seqs = 1;
    seq.n_rows = 1; /* a row with no segment at all */
    ck_assert_int_eq(lazy_prefill_ref((struct lazy_prefill_args){desc, q, out}), ST_OK);
    ck_assert_float_eq(out[0], 0.0f);
    fixture_deinit(&fix);
}
END_TEST

CHECK_MAIN("lazy_prefill", sequences_of_one_call_do_not_see_each_other,
           no_sequence_and_no_row_are_fine)
