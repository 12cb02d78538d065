/* SPDX-License-Identifier: Apache-2.0 */
#include "model/shape.h"

#include <string.h>

#include "model/rope.h"

/* Of Llama 3.1, whose small models stretch further. */
#define LLAMA3_ROPE(times)                                                                         \
    {                                                                                              \
        .base = 500000, .scaling = ROPE_LLAMA3, .factor = (times), .low_freq_factor = 1,           \
        .high_freq_factor = 4, .original_context = 8192                                            \
    }

static const struct shape {
    const char *name;
    struct model_config config;
    struct rope rope;
} shapes[] = {
    {"llama-3.1-8b",
     {.L = 32,
      .C = 4096,
      .H = 32,
      .Hkv = 8,
      .D = 128,
      .F = 14336,
      .V = 128256,
      .context_max = 131072},
     LLAMA3_ROPE(8)},
    {"llama-3.2-1b",
     {.L = 16,
      .C = 2048,
      .H = 32,
      .Hkv = 8,
      .D = 64,
      .F = 8192,
      .V = 128256,
      .context_max = 131072,
      .has_tied_embeddings = true},
     LLAMA3_ROPE(32)},
    {"smollm2-135m",
     {.L = 30,
      .C = 576,
      .H = 9,
      .Hkv = 3,
      .D = 64,
      .F = 1536,
      .V = 49152,
      .context_max = 8192,
      .has_tied_embeddings = true},
     {.base = 100000}},
    {"tiny",
     {.L = 2,
      .C = 128,
      .H = 4,
      .Hkv = 2,
      .D = 64,
      .F = 256,
      .V = 512,
      .context_max = 8192,
      .has_tied_embeddings = true},
     {.base = ROPE_BASE_DEFAULT}},
};

enum status
shape_find(const char *name, struct model_config *config_out)
{
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        if (strcmp(shapes[i].name, name) == 0) {
            *config_out = shapes[i].config;
            config_out->rms_eps = 1e-5f;
            config_out->rope_scale = 1.0f;
            rope_frequencies(&shapes[i].rope, config_out->D, config_out->inv_freq);
            return ST_OK;
        }
    }
    return ERR(ST_INVALID, "shape \"%.40s\": known are " SHAPE_NAMES, name);
}
