/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_main - the same main for every Check program that needs a GPU.
 *
 *   GPU_MAIN("ops_cuda", open_device(), test_a, test_b)
 *
 * The second argument is a status: ST_UNAVAILABLE (no device) is a loud skip, or a failure where
 * REQUIRE_GPU is set.  No forks: a CUDA context does not survive one.  Each test is a case of its
 * own name, so CK_RUN_CASE runs one; --list names them. */
#ifndef TESTS_SUPPORT_GPU_MAIN_H
#define TESTS_SUPPORT_GPU_MAIN_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <check.h>

#include "common/status.h"

/* Under compute-sanitizer, which is slow: `small` of something instead of `all` of it. */
static inline size_t
gpu_cases(size_t small, size_t all)
{
    return getenv("KVASIR_GPU_SMALL") != NULL ? small : all;
}

#define GPU_MAIN(title, opened, ...)                                                               \
    int main(int argc, char **argv)                                                                \
    {                                                                                              \
        const TTest *const tests[] = {__VA_ARGS__};                                                \
        const size_t count = sizeof(tests) / sizeof(tests[0]);                                     \
        if (argc > 1 && strcmp(argv[1], "--list") == 0) {                                          \
            for (size_t i = 0; i < count; i++) {                                                   \
                printf("%s\n", tests[i]->name);                                                    \
            }                                                                                      \
            return EXIT_SUCCESS;                                                                   \
        }                                                                                          \
        enum status st = (opened);                                                                 \
        if (st == ST_UNAVAILABLE && getenv("REQUIRE_GPU") == NULL) {                               \
            printf("SKIP: %s\n", status_detail());                                                 \
            return 77;                                                                             \
        }                                                                                          \
        if (st != ST_OK) {                                                                         \
            printf("FAIL: %s\n", status_detail());                                                 \
            return EXIT_FAILURE;                                                                   \
        }                                                                                          \
        Suite *suite = suite_create(title);                                                        \
        for (size_t i = 0; i < count; i++) {                                                       \
            TCase *tcase = tcase_create(tests[i]->name);                                           \
            tcase_set_timeout(tcase, 300);                                                         \
            tcase_add_test(tcase, tests[i]);                                                       \
            suite_add_tcase(suite, tcase);                                                         \
        }                                                                                          \
        SRunner *runner = srunner_create(suite);                                                   \
        srunner_set_fork_status(runner, CK_NOFORK);                                                \
        srunner_run_all(runner, CK_NORMAL);                                                        \
        int failed = srunner_ntests_failed(runner);                                                \
        srunner_free(runner);                                                                      \
        return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;                                          \
    }

#endif
