/* SPDX-License-Identifier: Apache-2.0 */
/* hf_directory - a checkpoint as Hugging Face lays it out.
 *
 *   config.json  tokenizer.json                            required
 *   model.safetensors, or model.safetensors.index.json     one of them; the index names the files
 *   generation_config.json  tokenizer_config.json  chat_template.jinja */
#ifndef MODEL_HF_DIRECTORY_H
#define MODEL_HF_DIRECTORY_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "model/config.h"
#include "model/safetensors.h"
#include "model/tokenizer.h"

struct hf_directory;

#define HF_FILES_MAX 512 /* of weights */

/* Reads the small files and maps the weights.  ST_INVALID names file and reason.  The caller owns
 * the tokenizer and the directory; the config lacks the fingerprint. */
enum status hf_directory_open(const char *path, struct model_config *config_out,
                              struct tokenizer **tokenizer_out, struct hf_directory **dir_out);

/* NULL is fine. */
void hf_directory_close(struct hf_directory **dir);

/* The files of the weights; no tensor is in two of them.  Borrowed. */
const struct safetensors *const *hf_directory_files(const struct hf_directory *dir,
                                                    size_t *count_out);

/* SHA-256 over what the system says of every file that was read (file_identity).  ST_NO_MEMORY. */
enum status hf_directory_identity(const struct hf_directory *dir, uint8_t identity_out[32]);

/* SHA-256 over the names and the SHA-256 of every file that was read, in a fixed order.  The path
 * is not in it. */
enum status hf_directory_fingerprint(const struct hf_directory *dir, uint8_t fingerprint_out[32]);

#endif
