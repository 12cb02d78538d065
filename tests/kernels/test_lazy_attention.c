/* SPDX-License-Identifier: Apache-2.0 */
/* The central proof: attention over position-free documents, rotating only the query, equals
 * attention over keys materialised at their global positions. */
#include <stdbool.h>
#include <string.h>

#include "kernels/lazy_decode.h"
#include "kernels/lazy_prefill.h"
#include "tests/kernels/attn_fixture.h"
#include "tests/support/check_main.h"

static const struct kv_layout small = {
    .P = 16, .L = 2, .Hkv = 1, .D = 64, .type = KV_F32, .id = KV_LAYOUT_PLAIN};

/* Prefill against the reference; prefill in pieces and decode row by row equal it bitwise. */
static void
prove(struct fixture *fix, struct prompt *prompt, const char *what)
{
    size_t n = (size_t)prompt->n_rows * fix->H * fix->layout.D;
    float *whole = malloc((n + 1) * sizeof(float)), *other = malloc((n + 1) * sizeof(float));

    fixture_prefill(fix, prompt, prompt->n_rows, whole);
    fixture_check(fix, prompt, whole, what);
    for (uint32_t piece = 1; piece <= prompt->n_rows; piece = piece * 3 + 1) {
        memset(other, 0xff, n * sizeof(float));
        fixture_prefill(fix, prompt, piece, other);
        ck_assert_msg(memcmp(whole, other, n * sizeof(float)) == 0, "%s: pieces of %u rows differ",
                      what, piece);
    }
    memset(other, 0xff, n * sizeof(float));
    fixture_decode(fix, prompt, other);
    ck_assert_msg(memcmp(whole, other, n * sizeof(float)) == 0, "%s: decode differs from prefill",
                  what);
    free(whole);
    free(other);
}

START_TEST(every_document_length_around_a_block_edge_equals_global_positions)
{
    uint64_t seed = test_seed();

    for (uint32_t P = 16; P <= 64; P *= 2) {
        const uint32_t lens[] = {0, 1, P - 1, P, P + 1, 2 * P - 1, 2 * P, 2 * P + 1};
        struct kv_layout layout = small;
        struct fixture fix;

        layout.P = P;
        fixture_init(&fix, layout, 1, 256, seed + P);
        for (size_t a = 0; a < 8; a++) {
            for (size_t b = 0; b < 8; b++) {
                struct doc docs[3];
                struct prompt prompt = {.docs = {&docs[0], &docs[1], &docs[2]}, .n_segs = 3};

                fix.n_used = 0;
                memset(fix.arena, 0xff, fix.n_blocks * kv_layout_block_bytes(&layout));
                fixture_doc(&fix, &docs[0], lens[a]);
                fixture_doc(&fix, &docs[1], lens[b]);
                fixture_doc(&fix, &docs[2], 5);
                prompt.n_rows = 5;
                prompt.q = fixture_queries(&fix, 5);
                fixture_place(&prompt, 0);
                prove(&fix, &prompt, "edges");
                free((void *)prompt.q);
                for (int d = 0; d < 3; d++) {
                    fixture_doc_free(&docs[d]);
                }
            }
        }
        fixture_deinit(&fix);
    }
}
END_TEST

START_TEST(a_document_alone_is_causal)
{
    struct fixture fix;
    struct doc doc;
    struct prompt prompt = {.docs = {&doc}, .n_segs = 1, .n_rows = 150};

    fixture_init(&fix, small, 1, 32, test_seed());
    fixture_doc(&fix, &doc, 150);
    prompt.q = fixture_queries(&fix, 150);
    fixture_place(&prompt, 0);
    prove(&fix, &prompt, "causal");
    free((void *)prompt.q);
    fixture_doc_free(&doc);
    fixture_deinit(&fix);
}
END_TEST

/* Calls visit with every order of n items (Heap's method, without recursion). */
static void
each_order(uint32_t n, void (*visit)(const uint32_t *order, void *arg), void *arg)
{
    uint32_t order[8], count[8] = {0};

    for (uint32_t i = 0; i < n; i++) {
        order[i] = i;
    }
    visit(order, arg);
    for (uint32_t i = 1; i < n;) {
        if (count[i] == i) {
            count[i++] = 0;
            continue;
        }
        uint32_t other = i % 2 == 0 ? 0 : count[i], id = order[other];

        order[other] = order[i];
        order[i] = id;
        count[i]++;
        i = 1;
        visit(order, arg);
    }
}

struct order_case {
    struct fixture *fix;
    const struct doc *docs;
    struct prompt *prompt;
    uint32_t seen;
};

static void
prove_order(const uint32_t *order, void *arg)
{
    struct order_case *c = arg;

    for (uint32_t i = 0; i < 5; i++) {
        c->prompt->docs[i] = &c->docs[order[i]];
    }
    fixture_place(c->prompt, 0);
    prove(c->fix, c->prompt, "order");
    c->seen++;
}

START_TEST(every_order_of_five_documents_reads_the_same_five_copies)
{
    const uint32_t lens[5] = {17, 1, 32, 40, 15};
    struct fixture fix;
    struct doc docs[6];
    struct prompt prompt = {.n_segs = 6, .n_rows = 3};
    struct order_case c = {.fix = &fix, .docs = docs, .prompt = &prompt};
    size_t bytes;
    unsigned char *before;

    fixture_init(&fix, small, 3, 64, test_seed());
    bytes = fix.n_blocks * kv_layout_block_bytes(&fix.layout);
    for (int i = 0; i < 5; i++) {
        fixture_doc(&fix, &docs[i], lens[i]);
    }
    fixture_doc(&fix, &docs[5], 3);
    before = malloc(bytes);
    memcpy(before, fix.arena, bytes);
    prompt.docs[5] = &docs[5];
    prompt.q = fixture_queries(&fix, 3);
    each_order(5, prove_order, &c);
    ck_assert_uint_eq(c.seen, 120);
    ck_assert_int_eq(memcmp(before, fix.arena, bytes), 0);
    free(before);
    free((void *)prompt.q);
    for (int i = 0; i < 6; i++) {
        fixture_doc_free(&docs[i]);
    }
    fixture_deinit(&fix);
}
END_TEST

START_TEST(a_document_may_occur_twice_in_one_prompt)
{
    struct fixture fix;
    struct doc a, b, own;
    struct prompt prompt = {.docs = {&a, &b, &a, &a, &own}, .n_segs = 5, .n_rows = 9};

    fixture_init(&fix, small, 1, 64, test_seed());
    fixture_doc(&fix, &a, 21);
    fixture_doc(&fix, &b, 33);
    fixture_doc(&fix, &own, 9);
    prompt.q = fixture_queries(&fix, 9);
    fixture_place(&prompt, 0);
    prove(&fix, &prompt, "twice");
    free((void *)prompt.q);
    fixture_doc_free(&a);
    fixture_doc_free(&b);
    fixture_doc_free(&own);
    fixture_deinit(&fix);
}
END_TEST

START_TEST(an_empty_document_corrupts_nothing)
{
    struct fixture fix;
    struct doc six, none, five, own;
    struct prompt with = {.docs = {&six, &none, &five, &own}, .n_segs = 4, .n_rows = 4};
    struct prompt without = {.docs = {&six, &five, &own}, .n_segs = 3, .n_rows = 4};
    float *a, *b;
    size_t bytes;

    fixture_init(&fix, small, 3, 64, test_seed());
    bytes = 4 * fix.H * fix.layout.D * sizeof(float);
    fixture_doc(&fix, &six, 6);
    fixture_doc(&fix, &none, 0);
    fixture_doc(&fix, &five, 5);
    fixture_doc(&fix, &own, 4);
    with.q = without.q = fixture_queries(&fix, 4);
    fixture_place(&with, 0);
    fixture_place(&without, 0);
    prove(&fix, &with, "lens 6 0 5");
    a = malloc(bytes);
    b = malloc(bytes);
    fixture_prefill(&fix, &with, 4, a);
    fixture_prefill(&fix, &without, 4, b);
    ck_assert_int_eq(memcmp(a, b, bytes), 0);
    free(a);
    free(b);
    free((void *)with.q);
    fixture_doc_free(&six);
    fixture_doc_free(&none);
    fixture_doc_free(&five);
    fixture_doc_free(&own);
    fixture_deinit(&fix);
}
END_TEST

static void
prove_shape(struct kv_layout layout, uint32_t H, uint32_t start, uint64_t seed)
{
    struct fixture fix;
    struct doc a, b, own;
    struct prompt prompt = {.docs = {&a, &b, &own}, .n_segs = 3, .n_rows = 7};

    fixture_init(&fix, layout, H, 64, seed);
    fixture_doc(&fix, &a, 70);
    fixture_doc(&fix, &b, 129);
    fixture_doc(&fix, &own, 20);
    prompt.q = fixture_queries(&fix, 7);
    fixture_place(&prompt, start);
    prove(&fix, &prompt, "shape");
    free((void *)prompt.q);
    fixture_doc_free(&a);
    fixture_doc_free(&b);
    fixture_doc_free(&own);
    fixture_deinit(&fix);
}

START_TEST(every_head_layout_and_block_size_equals_global_positions)
{
    const uint32_t groups[] = {1, 3, 4, 8};
    uint64_t seed = test_seed();

    for (size_t g = 0; g < 4; g++) {
        for (uint32_t D = 64; D <= 128; D *= 2) {
            for (uint32_t P = 16; P <= 64; P *= 2) {
                struct kv_layout layout = {.P = P, .L = 2, .Hkv = 2, .D = D};

                prove_shape(layout, 2 * groups[g], 0, seed + groups[g] * 1000 + D + P);
            }
        }
    }
}
END_TEST

/* More query heads than share a tile: the block is cut between heads of one row. */
START_TEST(a_group_of_seventy_heads_equals_global_positions)
{
    struct kv_layout layout = {.P = 16, .L = 2, .Hkv = 2, .D = 64};

    prove_shape(layout, 140, 0, test_seed());
}
END_TEST

START_TEST(offsets_beyond_16_bits_keep_their_distance)
{
    const uint32_t starts[] = {65535, 65536, 70000, 1u << 24, 1u << 31, UINT32_MAX - 219};
    uint64_t seed = test_seed();

    for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++) {
        struct kv_layout layout = small;

        layout.Hkv = 2;
        prove_shape(layout, 4, starts[i], seed + i);
    }
}
END_TEST

START_TEST(a_bf16_cache_is_read_in_both_layouts)
{
    uint64_t seed = test_seed();

    for (uint32_t D = 64; D <= 128; D *= 2) {
        for (uint32_t P = 16; P <= 64; P *= 2) {
            struct kv_layout layout = {.P = P, .L = 2, .Hkv = 2, .D = D, .type = KV_BF16};

            prove_shape(layout, 6, 100, seed + D + P);
            layout.id = KV_LAYOUT_CK8;
            prove_shape(layout, 6, 100, seed + D + P);
        }
    }
}
END_TEST

START_TEST(a_layout_changes_no_bit_of_the_result)
{
    struct kv_layout layout = {.P = 32, .L = 2, .Hkv = 2, .D = 128, .type = KV_BF16};
    uint64_t seed = test_seed();
    float out[2][5 * 4 * 128];

    for (int id = 0; id < 2; id++) {
        struct fixture fix;
        struct doc a;
        struct prompt prompt = {.docs = {&a}, .n_segs = 1, .n_rows = 5};

        layout.id = id == 0 ? KV_LAYOUT_PLAIN : KV_LAYOUT_CK8;
        fixture_init(&fix, layout, 4, 16, seed);
        fixture_doc(&fix, &a, 100);
        prompt.q = fixture_queries(&fix, 5);
        fixture_place(&prompt, 0);
        fixture_prefill(&fix, &prompt, 5, out[id]);
        free((void *)prompt.q);
        fixture_doc_free(&a);
        fixture_deinit(&fix);
    }
    ck_assert_int_eq(memcmp(out[0], out[1], sizeof(out[0])), 0);
}
END_TEST

START_TEST(chunk_edges_of_the_split_equal_global_positions)
{
    const uint32_t lens[] = {1023, 1024, 1025, 2050};
    uint64_t seed = test_seed();

    for (int i = 0; i < 4; i++) {
        struct fixture fix;
        struct doc a, own;
        struct prompt prompt = {.docs = {&a, &own, &a}, .n_segs = 3, .n_rows = 2};

        fixture_init(&fix, small, 2, 400, seed + (uint64_t)i);
        fixture_doc(&fix, &a, lens[i]);
        fixture_doc(&fix, &own, 1030);
        prompt.q = fixture_queries(&fix, 2);
        fixture_place(&prompt, 0);
        prove(&fix, &prompt, "chunks");
        prompt.n_segs = 2;
        fixture_place(&prompt, 0);
        prove(&fix, &prompt, "chunks, own last");
        free((void *)prompt.q);
        fixture_doc_free(&a);
        fixture_doc_free(&own);
        fixture_deinit(&fix);
    }
}
END_TEST

START_TEST(a_yarn_scale_multiplies_both_sides_once)
{
    struct fixture fix;
    struct doc a;
    struct prompt prompt = {.docs = {&a}, .n_segs = 1, .n_rows = 8};

    fixture_init(&fix, small, 1, 16, test_seed());
    fix.rope_scale = 1.2f;
    fixture_doc(&fix, &a, 50);
    prompt.q = fixture_queries(&fix, 8);
    fixture_place(&prompt, 0);
    prove(&fix, &prompt, "mscale");
    free((void *)prompt.q);
    fixture_doc_free(&a);
    fixture_deinit(&fix);
}
END_TEST

START_TEST(a_row_without_a_visible_key_gives_zero)
{
    struct fixture fix;
    struct doc a, none;
    struct prompt prompt = {.docs = {&a, &none}, .offsets = {10, 0}, .n_segs = 2, .n_rows = 3};
    float out[3 * 64];

    fixture_init(&fix, small, 1, 16, test_seed());
    fixture_doc(&fix, &a, 4);
    fixture_doc(&fix, &none, 0);
    prompt.q = fixture_queries(&fix, 3);
    prompt.pos_first = 8; /* rows at 8, 9, 10; the document starts at 10 */
    prove(&fix, &prompt, "partly blind");
    fixture_prefill(&fix, &prompt, 3, out);
    for (int d = 0; d < 2 * 64; d++) {
        ck_assert_float_eq(out[d], 0.0f);
    }
    ck_assert_float_ne(out[2 * 64], 0.0f);
    free((void *)prompt.q);
    fixture_doc_free(&a);
    fixture_doc_free(&none);
    fixture_deinit(&fix);
}
END_TEST

START_TEST(a_nan_reaches_only_rows_that_see_it)
{
    struct fixture fix;
    struct doc a;
    struct prompt prompt = {.docs = {&a}, .n_segs = 1, .n_rows = 40};
    float out[40 * 64], decoded[40 * 64], nan_key = NAN, inf_value = INFINITY;

    fixture_init(&fix, small, 1, 16, test_seed());
    fixture_doc(&fix, &a, 40);
    prompt.q = fixture_queries(&fix, 40);
    fixture_place(&prompt, 0);
    for (int part = 0; part < 2; part++) {
        unsigned char *slot = fix.arena + a.blocks[1] * kv_layout_block_bytes(&fix.layout)
                              + kv_layout_offset(&fix.layout, FIXTURE_LAYER,
                                                 part == 0 ? KV_PART_K : KV_PART_V, 0, 4, 7);

        memcpy(slot, part == 0 ? &nan_key : &inf_value, sizeof(float));
    }
    fixture_prefill(&fix, &prompt, 40, out);
    fixture_decode(&fix, &prompt, decoded);
    for (int i = 0; i < 40 * 64; i++) {
        ck_assert_msg(isnan(out[i]) == (i / 64 >= 20), "row %d", i / 64);
        ck_assert_msg(isnan(decoded[i]) == (i / 64 >= 20), "decoded row %d", i / 64);
    }
    free((void *)prompt.q);
    fixture_doc_free(&a);
    fixture_deinit(&fix);
}
END_TEST

/* The interleaved model's vector from the permuted one that we store: i, i + D/2 -> 2i, 2i + 1. */
static void
interleave(const float *halves, double *pairs, uint32_t D)
{
    for (uint32_t i = 0; i < D / 2; i++) {
        pairs[2 * i] = halves[i];
        pairs[2 * i + 1] = halves[i + D / 2];
    }
}

/* Rotates adjacent pairs, as such a checkpoint was trained. */
static void
rotate_pairs(double *x, uint32_t position, const double *inv_freq, uint32_t D)
{
    for (uint32_t i = 0; i < D / 2; i++) {
        double c = cos(position * inv_freq[i]), s = sin(position * inv_freq[i]);
        double a = x[2 * i], b = x[2 * i + 1];

        x[2 * i] = a * c - b * s;
        x[2 * i + 1] = b * c + a * s;
    }
}

/* A checkpoint with interleaved pairs is served by permuting the rows of its Q and K projections at
 * load.  Attention over the permuted vectors equals the model's own over its interleaved ones. */
START_TEST(interleaved_pairs_become_halves_by_a_permutation)
{
    enum {
        D = 64,
        N = 20
    };
    struct fixture fix;
    struct doc a;
    struct prompt prompt = {.docs = {&a}, .n_segs = 1, .n_rows = 1};
    float out[D];
    double q[D], k[D], weights[N], sum = 0.0, top = -INFINITY;

    fixture_init(&fix, small, 1, 16, test_seed());
    fixture_doc(&fix, &a, N);
    prompt.q = fixture_queries(&fix, 1);
    fixture_place(&prompt, 0);
    fixture_prefill(&fix, &prompt, 1, out);
    interleave(prompt.q, q, D);
    rotate_pairs(q, N - 1, fix.inv_freq, D);
    for (uint32_t j = 0; j < N; j++) {
        weights[j] = 0.0;
        interleave(&a.k[(size_t)j * D], k, D);
        rotate_pairs(k, j, fix.inv_freq, D);
        for (int d = 0; d < D; d++) {
            weights[j] += q[d] * k[d] / sqrt(D);
        }
        top = fmax(top, weights[j]);
    }
    for (int j = 0; j < N; j++) {
        weights[j] = exp(weights[j] - top);
        sum += weights[j];
    }
    for (int d = 0; d < D; d++) {
        double want = 0.0;

        for (int j = 0; j < N; j++) {
            want += weights[j] / sum * a.v[j * D + d];
        }
        /* Scores below 10 of 64 terms: 2 ds + 128 eps of values below 6 (attn_fixture.c). */
        assert_close(out[d], want, 6 * (2 * 10 * (D + 8) + 128) * EPS_F32, 0.0, "interleaved",
                     (size_t)d);
    }
    free((void *)prompt.q);
    fixture_doc_free(&a);
    fixture_deinit(&fix);
}
END_TEST

START_TEST(what_is_wrong_with_a_description_is_named)
{
    struct fixture fix;
    struct doc a;
    struct prompt prompt = {.docs = {&a}, .n_segs = 1, .n_rows = 1};
    struct attn_segment segs[FIXTURE_SEGS_MAX];
    uint32_t ids[FIXTURE_SEGS_MAX * 256];
    struct attn_seq seq;
    struct attn_desc desc, bad;
    float q[64] = {0}, out[64];

    fixture_init(&fix, small, 1, 16, test_seed());
    fixture_doc(&fix, &a, 20);
    fixture_place(&prompt, 0);
    desc = fixture_desc(&fix, &prompt, &seq, segs, ids);
    bad = desc;
    bad.layer = 2;
    ck_assert_int_eq(lazy_prefill_ref((struct lazy_prefill_args){bad, q, out}), ST_INVALID);
    ck_assert_str_eq(status_detail(), "layer 2 of 2");
    bad = desc;
    bad.H = 0;
    ck_assert_int_eq(lazy_prefill_ref((struct lazy_prefill_args){bad, q, out}), ST_INVALID);
    bad = desc;
    bad.layout.D = 96;
    ck_assert_int_eq(lazy_prefill_ref((struct lazy_prefill_args){bad, q, out}), ST_INVALID);
    bad = desc;
    ids[1] = 16;
    ck_assert_int_eq(lazy_prefill_ref((struct lazy_prefill_args){bad, q, out}), ST_INVALID);
    ck_assert_ptr_nonnull(strstr(status_detail(), "block id 16, the arena has 16"));
    fixture_doc_free(&a);
    fixture_deinit(&fix);
}
END_TEST

/* The metadata that the paper's implementation would make for these lengths, from its definition:
 * padded slots, per-block de-rotation and mask. */
struct paper_metadata {
    uint32_t q_offset[16];
    uint32_t q_mask[16];
    uint32_t n;
    uint32_t padded; /* slots before the query */
};

static struct paper_metadata
paper_metadata(const struct attn_segment *segs, uint32_t n_docs, uint32_t B)
{
    struct paper_metadata m = {{0}, {0}, 0, 0};
    uint32_t padding = 0;

    for (uint32_t d = 0; d < n_docs; d++) {
        padding += (B - segs[d].n_tokens % B) % B;
    }
    for (uint32_t d = 0; d < n_docs; d++) {
        uint32_t blocks = (segs[d].n_tokens + B - 1) / B;

        for (uint32_t b = 0; b < blocks; b++) {
            m.q_offset[m.n] = padding + segs[d].offset + 1;
            m.q_mask[m.n++] = b + 1 == blocks ? blocks * B - segs[d].n_tokens : 0;
        }
        m.padded += blocks * B;
    }
    m.q_offset[m.n] = 1; /* the query's own block: the original rotation */
    m.q_mask[m.n++] = 0;
    return m;
}

START_TEST(our_segments_yield_the_papers_offsets_and_distances)
{
    enum {
        B = 8,
        DOCS = 4
    };
    const uint32_t lens[DOCS] = {6, 15, 8, 2};
    const uint32_t want_offset[] = {10, 16, 16, 31, 39, 1}, want_mask[] = {2, 0, 1, 0, 6, 0};
    struct attn_segment segs[DOCS];
    uint32_t at = 0, block = 0;

    for (int d = 0; d < DOCS; d++) {
        segs[d] = (struct attn_segment){.n_tokens = lens[d], .offset = at};
        at += lens[d];
    }
    struct paper_metadata m = paper_metadata(segs, DOCS, B);

    ck_assert_uint_eq(m.n, 6);
    ck_assert_mem_eq(m.q_offset, want_offset, sizeof(want_offset));
    ck_assert_mem_eq(m.q_mask, want_mask, sizeof(want_mask));
    /* Query token t: theirs stands at padded slot P + t and is turned back; ours at the true sum.
     */
    for (int d = 0; d < DOCS; d++) {
        for (uint32_t j = 0; j < lens[d]; j++) {
            for (uint32_t t = 0; t < 3; t++) {
                uint32_t theirs = m.padded + t - (m.q_offset[block + j / B] - 1) - j;
                uint32_t ours = at + t - (segs[d].offset + j);

                ck_assert_uint_eq(theirs, ours);
            }
        }
        block += (lens[d] + B - 1) / B;
    }
}
END_TEST

CHECK_MAIN("lazy_attention", every_document_length_around_a_block_edge_equals_global_positions,
           a_document_alone_is_causal, every_order_of_five_documents_reads_the_same_five_copies,
           a_document_may_occur_twice_in_one_prompt, an_empty_document_corrupts_nothing,
           every_head_layout_and_block_size_equals_global_positions,
           a_group_of_seventy_heads_equals_global_positions,
           offsets_beyond_16_bits_keep_their_distance, a_bf16_cache_is_read_in_both_layouts,
           a_layout_changes_no_bit_of_the_result, chunk_edges_of_the_split_equal_global_positions,
           a_yarn_scale_multiplies_both_sides_once, a_row_without_a_visible_key_gives_zero,
           a_nan_reaches_only_rows_that_see_it, interleaved_pairs_become_halves_by_a_permutation,
           what_is_wrong_with_a_description_is_named,
           our_segments_yield_the_papers_offsets_and_distances)
