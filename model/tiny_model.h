/* SPDX-License-Identifier: Apache-2.0 */
/* tiny_model - a complete GGUF checkpoint made from a seed: random weights, a working tokenizer.
 *
 * For tests, and for a first run without a download.  Its answers mean nothing.  The same config
 * gives the same bytes on every machine: goldens rely on it. */
#ifndef MODEL_TINY_MODEL_H
#define MODEL_TINY_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "model/gguf.h"

enum tiny_model_rope {
    TINY_MODEL_ROPE_PLAIN,
    TINY_MODEL_ROPE_LINEAR, /* factor 4 */
    TINY_MODEL_ROPE_FREQS,  /* a tensor of divisors, as Llama 3 has */
};

struct tiny_model_config {
    uint64_t seed;
    uint32_t L;
    uint32_t C; /* C, F and H * D: multiples of 32, the unit of the quantised types */
    uint32_t H;
    uint32_t Hkv;
    uint32_t D;
    uint32_t F;
    uint32_t V; /* at least TINY_MODEL_VOCAB_MIN */
    uint32_t context_max;
    enum gguf_tensor_type type; /* of matrices; norms are F32 */
    enum tiny_model_rope rope;
    bool has_tied_embeddings;
};

/* Three control tokens, <|endoftext|> 0, <|im_start|> 1, <|im_end|> 2, and one for each byte. */
#define TINY_MODEL_VOCAB_MIN (3u + 256u)

/* L 2, C 128, H 4, Hkv 2, D 64, F 256, V 512, 8192 positions, F32, tied. */
struct tiny_model_config tiny_model_defaults(void);

/* Parses "f32" ... "q4_1", "plain" "linear" "freqs".  ST_INVALID names the choices. */
enum status tiny_model_parse_type(const char *text, enum gguf_tensor_type *type_out);
enum status tiny_model_parse_rope(const char *text, enum tiny_model_rope *rope_out);

/* Makes the file in memory; the caller frees *bytes_out with mem_free.
 * ST_INVALID names a size that cannot be; ST_NO_MEMORY. */
enum status tiny_model_make(const struct tiny_model_config *config, void **bytes_out,
                            size_t *length_out);

/* Makes it and writes it to a file.  ST_SYSTEM if that fails. */
enum status tiny_model_write(const struct tiny_model_config *config, const char *path);

#endif
