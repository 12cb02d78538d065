/* SPDX-License-Identifier: Apache-2.0 */
/* The modes of reuse through the engine on a GPU against the same on the CPU, on a tiny model whose
 * weights both sides hold exactly (bf16).
 *
 * How much a device differs from the CPU is measured in mode lazy, which test_engine_cuda holds to
 * its bound; another mode may differ by NOISE_FACTOR times as much: its errors are of the same kind
 * (reencode rounds its keys once more), and a wrong angle, mask or block is off by far more. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <check.h>

#include "tests/support/gpu_main.h"
#include "tests/support/mode_rig.h"

#define ANSWER_TOKENS 24
#define NOISE_FACTOR  4.0
#define NOISE_MIN     0.01 /* a lucky lazy run must not make the others fail */

static uint32_t ids[400];

static struct cut
three_documents(void)
{
    uint32_t seed = 20261129;

    for (uint32_t i = 0; i < 400; i++) {
        seed = seed * 1664525u + 1013904223u;
        ids[i] = 3 + (seed >> 10) % 300;
    }
    return (struct cut){.ids = ids, .count = 320, .lengths = {100, 33, 127}, .n_docs = 3};
}

static struct rig *
open_rig(const struct device_kind *kind)
{
    struct tiny_model_config tiny = tiny_model_defaults();
    struct rig_config config = modes_config();

    tiny.type = GGUF_TENSOR_BF16;
    config.tiny = &tiny;
    config.kind = kind;
    return rig_new(&config);
}

/* The largest difference of a log probability at the same context; how many tokens that was. */
static double
compare(struct rig *cpu, struct rig *gpu, enum mode mode, uint32_t *count_out)
{
    struct cut cut = three_documents();
    struct rig_request request = {.max_tokens = ANSWER_TOKENS, .wants_logprobs = true};
    double worst = 0.0;
    uint32_t n = 0;

    run_mode(cpu, &cut, mode, request);
    run_mode(gpu, &cut, mode, request);
    for (; n < ANSWER_TOKENS && cpu->heard[1].ids[n] == gpu->heard[1].ids[n]; n++) {
        worst = fmax(worst,
                     fabs((double)cpu->heard[1].logprobs[n] - (double)gpu->heard[1].logprobs[n]));
    }
    if (n < ANSWER_TOKENS) { /* where they part, both were about as likely */
        worst = fmax(
            worst, fabs((double)cpu->heard[1].logprobs[n] - (double)gpu->heard[1].logprobs[n]) / 2);
    }
    *count_out = n;
    return worst;
}

START_TEST(every_mode_on_a_gpu_says_what_it_says_on_the_cpu)
{
    static const char *const names[] = {"lazy", "reencode", "prefix", "none"};
    struct rig *cpu = open_rig(NULL);
    struct rig *gpu = open_rig(&device_cuda);
    uint32_t count;
    double noise = fmax(compare(cpu, gpu, MODE_LAZY, &count), NOISE_MIN);

    for (enum mode mode = MODE_LAZY; mode <= MODE_NONE; mode++) {
        double worst = compare(cpu, gpu, mode, &count);

        printf("%s: %u of %d tokens equal, log probabilities within %.4f (lazy %.4f)\n",
               names[mode], count, ANSWER_TOKENS, worst, noise);
        ck_assert_msg(worst <= NOISE_FACTOR * noise, "%s: off by %g", names[mode], worst);
        ck_assert_uint_gt(count, 0);
    }
    rig_destroy(&cpu);
    rig_destroy(&gpu);
}
END_TEST

GPU_MAIN("modes_cuda", device_cuda.choose(0), every_mode_on_a_gpu_says_what_it_says_on_the_cpu)
