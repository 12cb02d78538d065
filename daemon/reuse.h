/* SPDX-License-Identifier: Apache-2.0 */
/* reuse - the four ways in which a prompt may use what was computed before, on one engine and pool.
 *
 *   lazy      a document is encoded alone and read where it stands: one copy serves every place
 *   reencode  encoded alone too, but its keys are stored at positions of the prompt: one copy for
 *             each (document, offset), rotated from the document itself
 *   prefix    full attention: a document is encoded behind those before it, so it serves prompts
 *             that begin with the same ones only
 *   none      full attention, nothing is kept: documents are part of the request's own tokens
 *
 * What differs for the pool is the name under which a prompt looks for its documents. */
#ifndef DAEMON_REUSE_H
#define DAEMON_REUSE_H

#include <stdbool.h>

#include "common/status.h"
#include "kvpool/dockey.h"

enum reuse_mode {
    REUSE_LAZY, /* in the order of the wire's ReuseMode, which has a default before them */
    REUSE_REENCODE,
    REUSE_PREFIX,
    REUSE_NONE,
    REUSE_MODES,
};

#define REUSE_NAMES "lazy, reencode, prefix or none"

/* ST_INVALID names what there is. */
enum status reuse_parse(const char *name, enum reuse_mode *mode_out);

struct prompt;

/* Sets the mode of a prompt that is otherwise whole: the names of its documents' KV; with `none`
 * their ids go in front of the query's.  ST_NO_MEMORY, ST_INVALID: too many ids. */
enum status reuse_apply(struct prompt *prompt, enum reuse_mode mode);

/* Names the query's whole blocks, so that this turn is kept and earlier ones are found; with `none`
 * nothing is kept.  `tenant` is a name of the pool and the tenant, for prompts without documents.
 * ST_NO_MEMORY. */
enum status reuse_name_turn(struct prompt *prompt, const struct dockey *tenant,
                            uint32_t block_tokens);

#endif
