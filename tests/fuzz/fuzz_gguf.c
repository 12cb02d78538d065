/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes are opened as a GGUF; what opens is read through every accessor, as a config, and, if
 * it is small, as weights. */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>

#include "model/config.h"
#include "model/gguf.h"
#include "model/weights.h"

#define WEIGHTS_BYTES_MAX (16u << 20)

static uint64_t
touch(const void *bytes, size_t length)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < length; i++) {
        sum += ((const uint8_t *)bytes)[i];
    }
    return sum;
}

static void
read_keys(const struct gguf *gguf)
{
    static const char *const keys[] = {"general.architecture", "tokenizer.ggml.tokens",
                                       "tokenizer.ggml.token_type", "tokenizer.ggml.scores", "k"};
    struct gguf_string strings[64];
    int32_t integers[64];
    float floats[64];

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        size_t count = 0;

        if (gguf_str(gguf, keys[i], &strings[0]) == ST_OK) {
            (void)touch(strings[0].bytes, strings[0].length);
        }
        if (gguf_array_count(gguf, keys[i], &count) == ST_OK && count <= 64) {
            (void)gguf_array_i32(gguf, keys[i], integers, count);
            (void)gguf_array_f32(gguf, keys[i], floats, count);
            if (gguf_array_strings(gguf, keys[i], strings, count) == ST_OK && count > 0) {
                (void)touch(strings[count - 1].bytes, strings[count - 1].length);
            }
        }
    }
}

static void
read_model(const struct gguf *gguf)
{
    struct model_config config;
    struct weights_plan plan;

    if (model_config_from_gguf(gguf, &config) != ST_OK
        || weights_plan(&config, WEIGHT_BF16, &plan) != ST_OK || plan.bytes > WEIGHTS_BYTES_MAX) {
        return;
    }
    void *memory = aligned_alloc(WEIGHT_ALIGN, plan.bytes);
    if (memory != NULL) {
        (void)weights_load(gguf, &config, &plan, memory, NULL, NULL);
    }
    free(memory);
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    struct gguf *gguf = NULL;
    volatile uint64_t sum = 0; /* so that the reads are not left out */

    if (gguf_open_bytes("fuzz.gguf", bytes, length, &gguf) != ST_OK) {
        return 0;
    }
    for (size_t i = 0; i < gguf_tensor_count(gguf); i++) {
        const struct gguf_tensor *tensor = gguf_tensor_at(gguf, i);

        sum += touch(tensor->name.bytes, tensor->name.length);
        sum += touch(tensor->data, tensor->bytes);
    }
    read_keys(gguf);
    read_model(gguf);
    gguf_close(&gguf);
    return 0;
}
