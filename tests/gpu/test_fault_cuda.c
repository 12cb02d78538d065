/* SPDX-License-Identifier: Apache-2.0 */
/* A device that fails, for good: the context is of no use afterwards, so a program of its own. */
#include <stdio.h>
#include <string.h>

#include <check.h>

#include "tests/support/engine_rig.h"
#include "tests/support/gpu_main.h"

#define NOBODYS_MEMORY ((void *)(uintptr_t)(1u << 20))

START_TEST(a_fault_on_the_device_ends_the_step_with_the_call_that_met_it)
{
    struct rig_config config = rig_defaults();
    const uint32_t query[] = {10, 20, 30, 40, 50};
    Kvasir__V1__Step *step;

    config.kind = &device_cuda;
    struct rig *rig = rig_new(&config);

    rig_assign(rig, &(struct rig_request){.id = 1, .query = query, .n_query = 5, .max_tokens = 4});
    engine_place_kv(rig->engine, NOBODYS_MEMORY, config.block_count);
    ck_assert_int_eq(engine_step(rig->engine, &step), ST_DEVICE);
    printf("the worker's last words: %s\n", status_detail());
    ck_assert_ptr_nonnull(strstr(status_detail(), "cuda"));
    ck_assert_ptr_nonnull(strstr(status_detail(), "cudaErrorIllegalAddress"));
    ck_assert_int_eq(engine_step(rig->engine, &step), ST_DEVICE); /* it stays broken */
}
END_TEST

GPU_MAIN("fault_cuda", device_cuda.choose(0),
         a_fault_on_the_device_ends_the_step_with_the_call_that_met_it)
