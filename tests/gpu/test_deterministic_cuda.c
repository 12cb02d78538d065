/* SPDX-License-Identifier: Apache-2.0 */
/* --deterministic on a GPU: the same request gives the same ids and log probabilities, bit for bit,
 * alone and among others, in steps of any size, interrupted and resumed after any token, and in a
 * second instance of the operations. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <check.h>

#include "common/mem.h"
#include "tests/support/engine_rig.h"
#include "tests/support/gpu_main.h"

#define ANSWER_TOKENS 20
#define DOCS          3
#define DOC_MAX       1100 /* beyond a chunk of keys, and no multiple of a tile */
#define QUERY_TOKENS  40
#define OTHERS        7
#define NOISE_MAX     0.25 /* of a log probability on these models: several times what is seen */

static const struct device_kind *const kind = &device_cuda;

static const struct tiny_case {
    uint32_t H, Hkv, D, C, F, L;
} cases[] = {
    {4, 2, 64, 128, 256, 2},
    {9, 3, 64, 576, 1536, 3},
    {8, 1, 128, 256, 512, 2},
    {4, 4, 128, 512, 768, 2},
};

static const uint32_t step_sizes[] = {33, 64, 512};

static const uint32_t doc_tokens[DOCS] = {37, DOC_MAX, 92};
static uint32_t doc_ids[DOCS][DOC_MAX];
static uint32_t query_ids[QUERY_TOKENS];

static void
fill_ids(uint32_t *ids, uint32_t count, uint32_t seed)
{
    for (uint32_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        ids[i] = 3 + (seed >> 10) % 256;
    }
}

static struct rig_config
config_of(uint32_t step_tokens)
{
    struct rig_config config = rig_defaults();

    config.kind = kind;
    config.block_count = 1024;
    config.step_tokens = step_tokens;
    config.is_deterministic = true;
    return config;
}

static struct rig *
open_rig(const struct tiny_case *c, bool is_deterministic)
{
    struct tiny_model_config tiny = tiny_model_defaults();
    struct rig_config config = config_of(512);

    tiny.H = c->H;
    tiny.Hkv = c->Hkv;
    tiny.D = c->D;
    tiny.C = c->C;
    tiny.F = c->F;
    tiny.L = c->L;
    tiny.type = GGUF_TENSOR_BF16;
    config.tiny = &tiny;
    config.is_deterministic = is_deterministic;
    return rig_new(&config);
}

/* The request that all is about: number 1, over three documents that it builds. */
struct subject {
    struct rig_doc docs[DOCS];
    struct rig_request request;
};

static void
subject_open(struct rig *rig, float temperature, struct subject *s)
{
    for (uint32_t i = 0; i < DOCS; i++) {
        fill_ids(doc_ids[i], doc_tokens[i], i + 1);
        s->docs[i] = (struct rig_doc){.ids = doc_ids[i],
                                      .n_ids = doc_tokens[i],
                                      .blocks = rig_blocks(rig, doc_tokens[i]),
                                      .build = i + 1};
    }
    fill_ids(query_ids, QUERY_TOKENS, 9);
    s->request = (struct rig_request){.id = 1,
                                      .docs = s->docs,
                                      .n_docs = DOCS,
                                      .query = query_ids,
                                      .n_query = QUERY_TOKENS,
                                      .max_tokens = ANSWER_TOKENS,
                                      .temperature = temperature,
                                      .seed = 7,
                                      .wants_logprobs = true,
                                      .ignores_end = true,
                                      .order = 5};
}

static void
subject_close(struct subject *s)
{
    for (uint32_t i = 0; i < DOCS; i++) {
        MEM_FREE(s->docs[i].blocks);
    }
}

static void
run_alone(struct rig *rig, float temperature, struct rig_heard *heard_out)
{
    struct subject s;

    subject_open(rig, temperature, &s);
    rig_assign(rig, &s.request);
    rig_run(rig);
    *heard_out = rig->heard[1];
    ck_assert_str_eq(heard_out->error, "");
    ck_assert_uint_eq(heard_out->n_ids, ANSWER_TOKENS);
    ck_assert_uint_eq(heard_out->n_logprobs, ANSWER_TOKENS);
    subject_close(&s);
}

static void
check_same(const struct rig_heard *want, const struct rig_heard *got, const char *what)
{
    ck_assert_str_eq(got->error, "");
    ck_assert_uint_eq(got->n_ids, want->n_ids);
    for (size_t i = 0; i < want->n_ids; i++) {
        ck_assert_msg(got->ids[i] == want->ids[i]
                          && memcmp(&got->logprobs[i], &want->logprobs[i], sizeof(float)) == 0,
                      "%s: token %zu is %u (%a), not %u (%a)", what, i, got->ids[i],
                      (double)got->logprobs[i], want->ids[i], (double)want->logprobs[i]);
    }
}

/* The same bits must also be the right ones: an instance that is not deterministic differs by the
 * noise of bf16 as long as it says the same. */
static void
check_near(const struct tiny_case *c, float temperature, const struct rig_heard *want)
{
    struct rig *rig = open_rig(c, false);
    static struct rig_heard got;
    double worst = 0.0;
    size_t n = 0;

    run_alone(rig, temperature, &got);
    for (; n < ANSWER_TOKENS && got.ids[n] == want->ids[n]; n++) {
        worst = fmax(worst, fabs((double)got.logprobs[n] - want->logprobs[n]));
    }
    printf("H=%u/%u D=%u: against an instance that is not: %zu of %d tokens, within %.4f\n", c->H,
           c->Hkv, c->D, n, ANSWER_TOKENS, worst);
    ck_assert_msg(worst <= NOISE_MAX, "log probabilities differ by %g", worst);
    if (n == 0) {
        ck_assert_double_le(fabs((double)got.logprobs[0] - want->logprobs[0]), NOISE_MAX);
    }
    rig_destroy(&rig);
}

/* Another request: a document of its own and one of the subject's, once that is there. */
static void
assign_other(struct rig *rig, uint32_t number, const struct subject *s)
{
    uint32_t ids[400];
    uint32_t query[90];
    uint32_t n_ids = 30 + 50 * number;
    uint32_t n_query = 5 + 12 * number;
    struct rig_doc docs[2] = {
        {.ids = ids, .n_ids = n_ids, .blocks = rig_blocks(rig, n_ids), .build = 10 + number},
        s->docs[number % DOCS]};

    fill_ids(ids, n_ids, 20 + number);
    fill_ids(query, n_query, 40 + number);
    docs[1].is_joined = true;
    rig_assign(rig, &(struct rig_request){.id = 1 + number,
                                          .docs = docs,
                                          .n_docs = number % 3 == 0 ? 1 : 2,
                                          .query = query,
                                          .n_query = n_query,
                                          .max_tokens = 10 + 3 * number,
                                          .ignores_end = true,
                                          .order = number});
    mem_free(docs[0].blocks);
}

static void
run_among_others(struct rig *rig, float temperature)
{
    struct subject s;

    subject_open(rig, temperature, &s);
    rig_assign(rig, &s.request);
    for (uint32_t i = 1; i <= OTHERS; i++) {
        assign_other(rig, i, &s);
        (void)rig_step(rig);
    }
    rig_run(rig);
    for (uint32_t i = 1; i <= OTHERS; i++) {
        ck_assert_str_eq(rig->heard[1 + i].error, "");
    }
    subject_close(&s);
}

/* Stopped after `tokens` tokens, resumed in other blocks. */
static void
run_interrupted(struct rig *rig, float temperature, uint32_t tokens)
{
    static struct rig_heard before;
    struct subject s;

    subject_open(rig, temperature, &s);
    rig_assign(rig, &s.request);
    while (rig->heard[1].n_ids < tokens) {
        ck_assert(rig_step(rig));
    }
    rig_stop(rig, 1);
    (void)rig_step(rig);
    ck_assert_uint_eq(rig->heard[1].n_released, 1);
    before = rig->heard[1];
    s.request.sent = before.ids;
    s.request.n_sent = before.n_ids;
    s.request.sent_text_bytes = (uint32_t)before.n_text;
    for (uint32_t i = 0; i < DOCS; i++) {
        s.docs[i].build = 0;
    }
    rig_assign(rig, &s.request);
    rig_run(rig);
    subject_close(&s);
}

static void
check_case(const struct tiny_case *c, float temperature)
{
    static struct rig_heard alone;
    struct rig *rig = open_rig(c, true);
    char what[96];

    run_alone(rig, temperature, &alone);
    check_near(c, temperature, &alone);
    for (size_t i = 0; i < sizeof(step_sizes) / sizeof(step_sizes[0]); i++) {
        struct rig_config config = config_of(step_sizes[i]);
        static struct rig_heard again;

        (void)snprintf(what, sizeof(what), "H=%u/%u D=%u temperature %g steps of %u", c->H, c->Hkv,
                       c->D, (double)temperature, step_sizes[i]);
        rig_restart(rig, &config);
        run_alone(rig, temperature, &again);
        check_same(&alone, &again, what);
        rig_restart(rig, &config);
        run_among_others(rig, temperature);
        check_same(&alone, &rig->heard[1], what);
        for (uint32_t tokens = 1; tokens < ANSWER_TOKENS; tokens++) {
            rig_restart(rig, &config);
            run_interrupted(rig, temperature, tokens);
            check_same(&alone, &rig->heard[1], what);
        }
        printf("%s: alone, among %d others, resumed after each token: equal\n", what, OTHERS);
    }
    rig_destroy(&rig);

    struct rig *other = open_rig(c, true);

    run_among_others(other, temperature);
    check_same(&alone, &other->heard[1], "another instance");
    rig_destroy(&other);
}

START_TEST(a_greedy_answer_has_the_same_bits_in_any_company)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        check_case(&cases[i], 0.0f);
    }
}
END_TEST

START_TEST(a_drawn_answer_has_the_same_bits_in_any_company)
{
    check_case(&cases[1], 0.8f);
}
END_TEST

/* --- products ------------------------------------------------------------------------ */

#define GEMM_ROWS 2300 /* by 1024 as far as that goes, then by 128 */

static void *
device_memory(const struct ops *ops, size_t bytes)
{
    void *memory = NULL;

    ck_assert_msg(ops->alloc(ops, bytes, &memory) == ST_OK, "%s", status_detail());
    return memory;
}

static void
random_bf16(struct ops *ops, void *memory, size_t count, uint32_t seed)
{
    uint16_t *host = mem_zalloc(count, sizeof(host[0]));

    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        /* Signs, seven bits of mantissa, exponents of 2^-3 to 1: sums that round. */
        host[i] = (uint16_t)((seed >> 16 & 0x807f) | (124 + (seed >> 10) % 4) << 7);
    }
    ck_assert_int_eq(ops->upload(ops, memory, host, count * sizeof(host[0])), ST_OK);
    ck_assert_int_eq(ops->finish(ops), ST_OK);
    mem_free(host);
}

/* The same row at every place of a product of GEMM_ROWS rows, between others; then alone. */
static void
check_product(struct ops *ops, uint32_t N, uint32_t K, bool is_f32)
{
    const size_t rows = 2 * (size_t)ops->row_multiple + GEMM_ROWS;
    const size_t y_bytes = is_f32 ? 4 : 2;
    char *x = device_memory(ops, rows * K * 2);
    void *w = device_memory(ops, (size_t)N * K * 2);
    void *y = device_memory(ops, rows * N * y_bytes);
    char *want = mem_zalloc(N, y_bytes);
    char *got = mem_zalloc((size_t)GEMM_ROWS * N, y_bytes);
    uint16_t *row = mem_zalloc(K, sizeof(row[0]));
    struct gemm_args args = {.x = x, .w = w, .y = y, .M = 1, .N = N, .K = K, .is_y_f32 = is_f32};

    random_bf16(ops, w, (size_t)N * K, 1);
    random_bf16(ops, x, rows * K, 2);
    ck_assert_int_eq(ops->download(ops, row, x, K * sizeof(row[0])), ST_OK);
    ck_assert_int_eq(ops->gemm(ops, args), ST_OK);
    ck_assert_int_eq(ops->download(ops, want, y, N * y_bytes), ST_OK);
    ck_assert_int_eq(ops->finish(ops), ST_OK);
    for (uint32_t i = 0; i < GEMM_ROWS; i += 2) {
        ck_assert_int_eq(ops->upload(ops, x + (size_t)i * K * 2, row, K * sizeof(row[0])), ST_OK);
    }
    args.M = GEMM_ROWS;
    ck_assert_int_eq(ops->gemm(ops, args), ST_OK);
    ck_assert_int_eq(ops->download(ops, got, y, GEMM_ROWS * N * y_bytes), ST_OK);
    ck_assert_int_eq(ops->finish(ops), ST_OK);
    for (uint32_t i = 0; i < GEMM_ROWS; i += 2) {
        ck_assert_msg(memcmp(got + i * N * y_bytes, want, N * y_bytes) == 0,
                      "N=%u K=%u: row %u differs from the same one alone", N, K, i);
    }
    mem_free(row);
    mem_free(got);
    mem_free(want);
    ops->release(ops, x);
    ops->release(ops, w);
    ops->release(ops, y);
}

START_TEST(a_row_of_a_product_has_the_same_bits_at_every_place)
{
    static const struct {
        uint32_t N, K;
        bool is_f32;
    } shapes[] = {
        /* Llama-3.1-8B */
        {6144, 4096, false},
        {4096, 4096, false},
        {28672, 4096, false},
        {4096, 14336, false},
        {128256, 4096, true},
        /* SmolLM2-135M */
        {960, 576, false},
        {576, 576, false},
        {3072, 576, false},
        {576, 1536, false},
        {49152, 576, true},
    };
    struct ops *ops = NULL;

    ck_assert_msg(kind->ops_new((struct ops_config){.threads = 1,
                                                    .is_deterministic = true,
                                                    .H = 32,
                                                    .Hkv = 8,
                                                    .D = 128,
                                                    .rows_max = 512,
                                                    .seqs_max = 64,
                                                    .segs_max = 64},
                                &ops)
                      == ST_OK,
                  "%s", status_detail());
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        check_product(ops, shapes[i].N, shapes[i].K, shapes[i].is_f32);
    }
    ops_destroy(&ops);
}
END_TEST

GPU_MAIN("deterministic_cuda", kind->choose(0), a_row_of_a_product_has_the_same_bits_at_every_place,
         a_greedy_answer_has_the_same_bits_in_any_company,
         a_drawn_answer_has_the_same_bits_in_any_company)
