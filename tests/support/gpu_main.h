/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_main - the same main for every Check program that needs a GPU.
 *
 *   GPU_MAIN("ops_cuda", open_device(), test_a, test_b)
 *
 * The second argument is a status: ST_UNAVAILABLE (no device) is a loud skip, or a failure where
 * REQUIRE_GPU is set.  No forks: a CUDA context does not survive one. */
#ifndef TESTS_SUPPORT_GPU_MAIN_H
#define TESTS_SUPPORT_GPU_MAIN_H

#include <stdio.h>
#include <stdlib.h>

#include <check.h>

#include "common/status.h"

/* Under compute-sanitizer, which is slow: `small` of something instead of `all` of it. */
static inline size_t
gpu_cases(size_t small, size_t all)
{
    return getenv("KVASIR_GPU_SMALL") != NULL ? small : all;
}

#define GPU_MAIN(name, opened, ...)                                                                \
    int main(void)                                                                                 \
    {                                                                                              \
        const TTest *const tests[] = {__VA_ARGS__};                                                \
        enum status st = (opened);                                                                 \
        if (st == ST_UNAVAILABLE && getenv("REQUIRE_GPU") == NULL) {                               \
            printf("SKIP: %s\n", status_detail());                                                 \
            return 77;                                                                             \
        }                                                                                          \
        if (st != ST_OK) {                                                                         \
            printf("FAIL: %s\n", status_detail());                                                 \
            return EXIT_FAILURE;                                                                   \
        }                                                                                          \
        Suite *suite = suite_create(name);                                                         \
        TCase *tcase = tcase_create(name);                                                         \
        tcase_set_timeout(tcase, 300);                                                             \
        for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {                            \
            tcase_add_test(tcase, tests[i]);                                                       \
        }                                                                                          \
        suite_add_tcase(suite, tcase);                                                             \
        SRunner *runner = srunner_create(suite);                                                   \
        srunner_set_fork_status(runner, CK_NOFORK);                                                \
        srunner_run_all(runner, CK_NORMAL);                                                        \
        int failed = srunner_ntests_failed(runner);                                                \
        srunner_free(runner);                                                                      \
        return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;                                          \
    }

#endif
