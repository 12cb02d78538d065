/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint - what is served, whatever it is kept in: a GGUF file, a Hugging Face directory, or a
 * dummy that has a shape but no weights.
 *
 * The daemon and its workers open the same path and arrive at the same fingerprint.  Immutable once
 * open: any number of threads may read. */
#ifndef MODEL_CHECKPOINT_H
#define MODEL_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "model/config.h"
#include "model/tokenizer.h"
#include "model/weights.h"

struct checkpoint;

#define CHECKPOINT_DUMMY      "dummy:"
#define CHECKPOINT_DUMMY_SEED 1 /* where none is given */

/* Opens FILE.gguf, DIRECTORY, or "dummy:SHAPE[:SEED]" (shapes are in shape.h).  Weights are only
 * mapped.  ST_INVALID names the file, the place and the reason: broken, or something that is not
 * served; ST_SYSTEM, ST_NO_MEMORY.  The caller closes it. */
enum status checkpoint_open(const char *path, struct checkpoint **checkpoint_out);

/* A GGUF in memory that the caller keeps alive, for tests. */
enum status checkpoint_open_bytes(const char *name, const void *bytes, size_t length,
                                  struct checkpoint **checkpoint_out);

/* NULL is fine.  Everything borrowed from it ends here. */
void checkpoint_close(struct checkpoint **checkpoint);

/* As given to checkpoint_open. */
const char *checkpoint_path(const struct checkpoint *checkpoint);

/* All but the fingerprint. */
const struct model_config *checkpoint_config(const struct checkpoint *checkpoint);

/* It has a token for every row of the embedding, and the chat template (tokenizer_chat_template).
 */
const struct tokenizer *checkpoint_tokenizer(const struct checkpoint *checkpoint);

/* Which files these are, at no cost: SHA-256 over what the system says of each (device, inode,
 * size, times).  Whoever opens the same on this host has the same fingerprint.  ST_UNAVAILABLE: it
 * is in memory, not in files. */
enum status checkpoint_identity(const struct checkpoint *checkpoint, uint8_t identity_out[32]);

/* SHA-256 over all that a result depends on: the file, or the files of the directory, or the
 * dummy's name and seed.  Reads every byte: the slow part of a start. */
enum status checkpoint_fingerprint(const struct checkpoint *checkpoint,
                                   uint8_t fingerprint_out[32]);

/* Whether it has a seed instead of weights: checkpoint_load_weights has nothing to load then. */
bool checkpoint_is_dummy(const struct checkpoint *checkpoint, uint64_t *seed_out);

/* weights_plan, or where quantised weights are kept and there are such, weights_plan_kept. */
enum status checkpoint_plan_weights(const struct checkpoint *checkpoint, enum weight_type type,
                                    bool keeps_quantised, struct weights_plan *plan_out);

/* weights_load for either kind of file.  Not for a dummy. */
enum status checkpoint_load_weights(const struct checkpoint *checkpoint,
                                    const struct weights_plan *plan, void *memory,
                                    weights_progress_fn progress, void *progress_arg);

#endif
