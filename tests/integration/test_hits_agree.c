/* SPDX-License-Identifier: Apache-2.0 */
/* What the policy counts as hit is what the kernels read: a pool so small that documents come, go
 * whole or lose their tails, under each policy. */
#include "kvpool/evict.h"
#include "tests/support/asking.h"
#include "tests/support/check_main.h"

#define REQUESTS 120
#define DOCS     4 /* a request */

START_TEST(hit_tokens_of_the_kernels_are_those_of_the_policy)
{
    const char *policy = evict_policy_names[_i];
    const char *const args[] = {"--eviction", policy, "--check-pool", NULL};
    struct host *host =
        host_start(&(struct host_options){.workers = 1, .kv_memory = "2MiB", .daemon_args = args});
    uint64_t state = 99, reused = 0, built = 0;

    for (uint32_t r = 0; r < REQUESTS; r++) {
        struct asking_doc docs[DOCS];
        struct question question = {
            .docs = docs, .doc_count = DOCS, .query_seed = r, .max_tokens = 1};
        struct answer answer;

        for (uint32_t i = 0; i < DOCS; i++) {
            uint32_t a, b;

            state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
            a = (uint32_t)(state >> 33) % 16;
            b = (uint32_t)(state >> 48) % 16;
            docs[i] = (struct asking_doc){.n_tokens = 20 + 13 * (a * b / 16 % 7),
                                          .seed = 1 + i * 20 + a * b / 16}; /* often the same */
        }
        ask_ok(host, &question, &answer);
        reused += answer.tokens_reused;
        built += answer.tokens_built;
    }
    printf("%s: %llu tokens reused, %llu built, %llu partial hits\n", policy,
           (unsigned long long)reused, (unsigned long long)built,
           (unsigned long long)host_counter(host, "doc_misses_partial"));
    ck_assert_uint_gt(reused, 1000);
    ck_assert_uint_gt(host_counter(host, "docs_evicted"), 10);
    ck_assert_uint_gt(host_counter(host, "doc_misses_partial"), 0);
    ck_assert_uint_eq(host_counter(host, "tokens_hit"), reused);
    ck_assert_uint_eq(host_counter(host, "tokens_missed"), built);
    host_stop(&host);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("hits_agree");
    TCase *tcase = tcase_create("hits_agree");

    tcase_set_timeout(tcase, CHECK_TIMEOUT_SECONDS);
    tcase_add_loop_test(tcase, hit_tokens_of_the_kernels_are_those_of_the_policy, 0, 4);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
