/* SPDX-License-Identifier: Apache-2.0 */
/* The whole engine on a GPU against the whole engine on the CPU, on tiny models.
 *
 * The device computes in bf16, the CPU in float32, so greedy texts may part where two tokens are
 * nearly tied: up to there every token is the same with a log probability within LOGPROB_TOLERANCE,
 * and at the parting the device's choice is as probable as the CPU's within twice that.  The
 * tolerance: bf16 rounds to 2^-9; a logit of these models is below 16 and gathers the roundings of
 * some 20 operations on its way, in quadrature about 16 * 2^-9 * sqrt(20) = 0.14 at worst. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <check.h>

#include "common/mem.h"
#include "tests/support/engine_rig.h"

#define LOGPROB_TOLERANCE 0.14
#define ANSWER_TOKENS     48
#define DOCS              3

static const struct tiny_case {
    uint32_t H, Hkv, D, C, F, L;
} cases[] = {
    {4, 2, 64, 128, 256, 2},
    {9, 3, 64, 576, 1536, 3},
    {8, 1, 128, 256, 512, 2},
    {4, 4, 128, 512, 768, 2},
};

static struct rig *
open_rig(const struct tiny_case *c, const struct device_kind *kind, uint32_t step_tokens)
{
    struct tiny_model_config tiny = tiny_model_defaults();
    struct rig_config config = rig_defaults();

    tiny.H = c->H;
    tiny.Hkv = c->Hkv;
    tiny.D = c->D;
    tiny.C = c->C;
    tiny.F = c->F;
    tiny.L = c->L;
    tiny.type = GGUF_TENSOR_BF16; /* the same weights on both sides */
    config.tiny = &tiny;
    config.kind = kind;
    config.step_tokens = step_tokens;
    return rig_new(&config);
}

/* Three documents, built by request 1 and read again in another order by request 2. */
static void
run_requests(struct rig *rig)
{
    uint32_t ids[DOCS][150];
    uint32_t query[40];
    struct rig_doc docs[DOCS];
    struct rig_doc again[DOCS];

    for (uint32_t i = 0; i < DOCS; i++) {
        uint32_t n = 37 + i * 55;

        for (uint32_t t = 0; t < n; t++) {
            ids[i][t] = 3 + (t * 31 + i * 17 + t * t) % 256;
        }
        docs[i] = (struct rig_doc){
            .ids = ids[i], .n_ids = n, .blocks = rig_blocks(rig, n), .build = i + 1};
        again[DOCS - 1 - i] = docs[i];
        again[DOCS - 1 - i].build = 0;
    }
    for (uint32_t t = 0; t < 40; t++) {
        query[t] = 3 + (t * 7) % 256;
    }
    struct rig_request request = {.id = 1,
                                  .docs = docs,
                                  .n_docs = DOCS,
                                  .query = query,
                                  .n_query = 40,
                                  .max_tokens = ANSWER_TOKENS,
                                  .wants_logprobs = true,
                                  .ignores_end = true};
    rig_assign(rig, &request);
    rig_run(rig);
    request.id = 2;
    request.docs = again;
    rig_assign(rig, &request);
    rig_run(rig);
    for (uint32_t i = 0; i < DOCS; i++) {
        mem_free(docs[i].blocks);
    }
}

static void
compare(const struct rig_heard *want, const struct rig_heard *got, const char *what)
{
    size_t n = 0;
    double worst = 0.0;

    ck_assert_str_eq(got->error, "");
    ck_assert_uint_eq(want->n_ids, ANSWER_TOKENS);
    ck_assert_uint_eq(got->n_ids, ANSWER_TOKENS);
    while (n < ANSWER_TOKENS && got->ids[n] == want->ids[n]) {
        worst = fmax(worst, fabs((double)got->logprobs[n] - want->logprobs[n]));
        n++;
    }
    printf("%s: %zu of %d tokens equal, log probabilities within %.4f\n", what, n, ANSWER_TOKENS,
           worst);
    ck_assert_msg(worst <= LOGPROB_TOLERANCE, "%s: log probabilities differ by %g", what, worst);
    if (n < ANSWER_TOKENS) {
        double gap = fabs((double)got->logprobs[n] - want->logprobs[n]);

        ck_assert_msg(gap <= 2 * LOGPROB_TOLERANCE, "%s: token %zu differs, gap %g", what, n, gap);
    }
}

START_TEST(the_gpu_answers_as_the_cpu_does)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (uint32_t step_tokens = 33; step_tokens <= 512; step_tokens += 479) {
            struct rig *cpu = open_rig(&cases[i], &device_cpu, step_tokens);
            struct rig *gpu = open_rig(&cases[i], &device_cuda, step_tokens);
            char what[96];

            run_requests(cpu);
            run_requests(gpu);
            for (uint32_t r = 1; r <= 2; r++) {
                (void)snprintf(what, sizeof(what), "H=%u/%u D=%u steps of %u, request %u",
                               cases[i].H, cases[i].Hkv, cases[i].D, step_tokens, r);
                compare(&cpu->heard[r], &gpu->heard[r], what);
            }
            rig_destroy(&cpu);
            rig_destroy(&gpu);
        }
    }
}
END_TEST

START_TEST(a_real_model_answers_on_the_gpu_as_on_the_cpu)
{
    struct rig_config config = rig_defaults();

    config.model_path = getenv("KVASIR_TEST_MODEL");
    if (config.model_path == NULL) {
        printf("SKIP: no $KVASIR_TEST_MODEL\n");
        return;
    }
    config.step_tokens = 512;
    struct rig *cpu = rig_new(&config);

    config.kind = &device_cuda;
    struct rig *gpu = rig_new(&config);

    run_requests(cpu);
    run_requests(gpu);
    compare(&cpu->heard[1], &gpu->heard[1], "real model, cold");
    compare(&cpu->heard[2], &gpu->heard[2], "real model, hot");
    rig_destroy(&cpu);
    rig_destroy(&gpu);
}
END_TEST

int
main(void)
{
    enum status st = device_cuda.choose(0);

    if (st == ST_UNAVAILABLE && getenv("REQUIRE_GPU") == NULL) {
        printf("SKIP: %s\n", status_detail());
        return 77;
    }
    Suite *suite = suite_create("engine_cuda");
    TCase *tcase = tcase_create("engine_cuda");
    tcase_set_timeout(tcase, 300);
    tcase_add_test(tcase, the_gpu_answers_as_the_cpu_does);
    tcase_add_test(tcase, a_real_model_answers_on_the_gpu_as_on_the_cpu);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK); /* a CUDA context does not survive fork */
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
