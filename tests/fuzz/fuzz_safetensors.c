/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes are opened as a safetensors file, and, as they are, as a config.json and a
 * tokenizer.json; what opens is read. */
#include "tests/fuzz/fuzz.h"

#include "model/config.h"
#include "model/safetensors.h"
#include "model/tokenizer_hf.h"

#define VOCAB_SIZE 512

static void
read_json(const uint8_t *bytes, size_t length)
{
    struct json_object *root = NULL;
    struct tokenizer *tokenizer = NULL;
    struct model_config config;

    if (json_parse("fuzz.json", (const char *)bytes, length, &root) != ST_OK) {
        return;
    }
    struct json_view view = json_root("fuzz.json", root);
    struct tokenizer_hf files = {
        .tokenizer = view, .config = view, .generation = view, .vocab_size = VOCAB_SIZE};

    (void)model_config_from_hf(&view, &config);
    if (tokenizer_new_hf(&files, &tokenizer) == ST_OK) {
        struct tokenizer_scratch *scratch = NULL;
        const uint32_t *ids;
        size_t count;

        if (tokenizer_scratch_new(&scratch) == ST_OK) {
            (void)tokenizer_encode(tokenizer, scratch, "some text, 12 <|end|>", 21, true, &ids,
                                   &count);
        }
        tokenizer_scratch_destroy(&scratch);
        tokenizer_destroy(&tokenizer);
    }
    json_release(&root);
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    struct safetensors *file = NULL;
    volatile uint64_t sum = 0; /* so that the reads are not left out */

    read_json(bytes, length);
    if (safetensors_open_bytes("fuzz.safetensors", bytes, length, &file) != ST_OK) {
        return 0;
    }
    for (size_t i = 0; i < safetensors_count(file); i++) {
        const struct safetensors_tensor *tensor = safetensors_at(file, i);

        for (size_t b = 0; b < tensor->bytes; b++) {
            sum += ((const uint8_t *)tensor->data)[b];
        }
        for (size_t b = 0; b < tensor->name.length; b++) {
            sum += (uint8_t)tensor->name.bytes[b];
        }
    }
    safetensors_close(&file);
    return 0;
}
