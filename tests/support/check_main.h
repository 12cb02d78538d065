/* SPDX-License-Identifier: Apache-2.0 */
/* check_main - the same main for every Check program.
 *
 *   CHECK_MAIN("kvpool", a_pinned_block_is_never_evicted, a_full_pool_refuses)
 *
 * Prints Check's closing line, which CI counts.  TEST_SEED in the environment replays a random
 * test. */
#ifndef TESTS_SUPPORT_CHECK_MAIN_H
#define TESTS_SUPPORT_CHECK_MAIN_H

#include <stdio.h>
#include <stdlib.h>

#include <check.h>

/* How much of a random or long scene is played: the plain build plays it whole; sanitizers make it
 * several times as slow, valgrind (the build of make check-valgrind) thirty times and more, so
 * their builds play less of the same kind. */
#if defined(KVASIR_VALGRIND)
#define SCENE(whole, sanitized, valgrind) (valgrind)
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SCENE(whole, sanitized, valgrind) (sanitized)
#else
#define SCENE(whole, sanitized, valgrind) (whole)
#endif

/* A skip is loud and is counted by the harness: automake's exit status 77. */
#define CHECK_SKIP_PROGRAM(why)                                                                    \
    do {                                                                                           \
        printf("SKIP: %s\n", (why));                                                               \
        exit(77);                                                                                  \
    } while (0)

/* What a test may take: many times what any needs where the machine is quiet, since it is for what
 * hangs.  CK_TIMEOUT_MULTIPLIER multiplies it. */
#define CHECK_TIMEOUT_SECONDS 900

/* Runs the tests as one suite and returns what main returns. */
static inline int
check_run(const char *name, const TTest *const *tests, size_t count, double timeout_seconds)
{
    Suite *suite = suite_create(name);
    TCase *tcase = tcase_create(name);

    tcase_set_timeout(tcase, timeout_seconds);
    for (size_t i = 0; i < count; i++) {
        tcase_add_test(tcase, tests[i]);
    }
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

#define CHECK_MAIN(name, ...)                                                                      \
    int main(void)                                                                                 \
    {                                                                                              \
        const TTest *const tests[] = {__VA_ARGS__};                                                \
        return check_run(name, tests, sizeof(tests) / sizeof(tests[0]), CHECK_TIMEOUT_SECONDS);    \
    }

/* Seed of a random test: from TEST_SEED or fixed; printed so that a failure can be replayed. */
static inline unsigned long long
test_seed(void)
{
    const char *text = getenv("TEST_SEED");
    unsigned long long seed = text == NULL ? 20261129ull : strtoull(text, NULL, 0);

    printf("TEST_SEED=%llu\n", seed);
    return seed;
}

#endif
