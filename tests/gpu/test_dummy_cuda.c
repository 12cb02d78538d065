/* SPDX-License-Identifier: Apache-2.0 */
/* A dummy's weights are the same numbers on a device as on the CPU. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <check.h>
#include <cuda_runtime.h>

#include "model/shape.h"
#include "worker/load_weights.h"

static void *
fill(const struct device_kind *kind, const struct model_config *config, void *memory)
{
    struct weights_plan plan;

    ck_assert_int_eq(weights_plan(config, kind->weight_type, &plan), ST_OK);
    ck_assert_msg(load_dummy_weights(kind, config, &plan, 42, memory) == ST_OK, "%s",
                  status_detail());
    return memory;
}

static size_t
bytes_of(const struct device_kind *kind, const struct model_config *config)
{
    struct weights_plan plan;

    ck_assert_int_eq(weights_plan(config, kind->weight_type, &plan), ST_OK);
    return plan.bytes;
}

START_TEST(a_dummy_is_the_same_model_on_the_device)
{
    struct model_config config;
    struct weights_plan plans[2];
    void *memory;

    ck_assert_int_eq(shape_find("smollm2-135m", &config), ST_OK);
    config.L = 3;
    size_t bytes = bytes_of(&device_cuda, &config);
    uint8_t *host = calloc(1, bytes_of(&device_cpu, &config));
    uint8_t *device = calloc(1, bytes);
    ck_assert_int_eq(cudaMalloc(&memory, bytes), cudaSuccess);
    ck_assert_int_eq(cudaMemset(memory, 0, bytes), cudaSuccess);
    (void)fill(&device_cpu, &config, host);
    ck_assert_int_eq(
        cudaMemcpy(device, fill(&device_cuda, &config, memory), bytes, cudaMemcpyDeviceToHost),
        cudaSuccess);
    ck_assert_int_eq(weights_plan(&config, WEIGHT_F32, &plans[0]), ST_OK);
    ck_assert_int_eq(weights_plan(&config, WEIGHT_BF16, &plans[1]), ST_OK);
    for (uint32_t w = 0; w < WEIGHT_KINDS; w++) {
        for (uint32_t layer = 0; layer < (plans[0].stride[w] == 0 ? 1 : config.L); layer++) {
            const uint8_t *wide = host + weights_offset(&plans[0], (enum weight)w, layer);
            const uint8_t *half = device + weights_offset(&plans[1], (enum weight)w, layer);

            uint64_t i = 0;

            /* Exact in bfloat16: its bits are the upper ones of the float32. */
            while (i < weights_elements(&config, (enum weight)w)
                   && memcmp(wide + 4 * i + 2, half + 2 * i, 2) == 0 && wide[4 * i] == 0
                   && wide[4 * i + 1] == 0) {
                i++;
            }
            ck_assert_msg(i == weights_elements(&config, (enum weight)w),
                          "weight %u of layer %u, element %llu", w, layer, (unsigned long long)i);
        }
    }
    ck_assert_int_eq(cudaFree(memory), cudaSuccess);
    free(host);
    free(device);
}
END_TEST

int
main(void)
{
    if (device_cuda.choose(0) != ST_OK && getenv("REQUIRE_GPU") == NULL) {
        printf("SKIP: %s\n", status_detail());
        return 77;
    }
    Suite *suite = suite_create("dummy_cuda");
    TCase *tcase = tcase_create("dummy_cuda");
    tcase_set_timeout(tcase, 300);
    tcase_add_test(tcase, a_dummy_is_the_same_model_on_the_device);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK); /* a CUDA context does not survive fork */
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
