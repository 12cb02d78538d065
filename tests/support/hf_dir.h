/* SPDX-License-Identifier: Apache-2.0 */
/* hf_dir - Hugging Face directories for tests: made in a temporary folder, weights by the rule of
 * tests/goldens/make_hf_goldens.py.  Every failure ends the test. */
#ifndef TESTS_SUPPORT_HF_DIR_H
#define TESTS_SUPPORT_HF_DIR_H

#include <stddef.h>
#include <stdint.h>

#include "model/config.h"
#include "model/gguf.h"

struct hf_dir {
    char path[64];
};

/* An empty folder in the working directory; remove it with all its files. */
struct hf_dir hf_dir_new(void);
void hf_dir_remove(const struct hf_dir *dir);

/* Writes a file; text, or bytes. */
void hf_dir_put(const struct hf_dir *dir, const char *name, const char *text);
void hf_dir_put_bytes(const struct hf_dir *dir, const char *name, const void *bytes, size_t length);

/* Copies tests/goldens/SOURCE. */
void hf_dir_copy(const struct hf_dir *dir, const char *name, const char *source);

/* The bytes of tests/goldens/SOURCE, with a zero behind them; the caller frees. */
char *hf_golden_bytes(const char *source, size_t *length_out);

/* Writes model.safetensors for the config: F32, F16 or BF16. */
void hf_dir_put_weights(const struct hf_dir *dir, const struct model_config *config,
                        enum gguf_tensor_type type);

/* Element `index` of a tensor: a matrix's or a norm's. */
float hf_matrix_value(const char *name, uint64_t index);
float hf_norm_value(const char *name, uint64_t index);

#endif
