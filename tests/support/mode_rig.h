/* SPDX-License-Identifier: Apache-2.0 */
/* mode_rig - a prompt cut into documents and asked of an engine in each mode of reuse. */
#ifndef TESTS_SUPPORT_MODE_RIG_H
#define TESTS_SUPPORT_MODE_RIG_H

#include <stdint.h>

#include "tests/support/engine_rig.h"

#define DOCS_MAX 8

/* How a prompt's documents are encoded. */
enum mode {
    MODE_LAZY,     /* alone */
    MODE_REENCODE, /* alone, then copied to their place */
    MODE_PREFIX,   /* each behind those before it */
    MODE_NONE,     /* as the first part of the own tokens */
};

/* A prompt cut into documents and a query. */
struct cut {
    const uint32_t *ids;
    uint32_t count;
    uint32_t lengths[DOCS_MAX];
    uint32_t n_docs;
};

/* Blocks of 32, steps of 48 rows, the tiny model, the CPU. */
struct rig_config modes_config(void);

/* Documents and the builds that `mode` makes of them: 1.. for those that are read, 11.. for the
 * sources of copies, which are asked for here. */
void make_docs(struct rig *rig, const struct cut *cut, enum mode mode,
               struct rig_doc docs[DOCS_MAX]);
void free_docs(struct rig_doc *docs, uint32_t count);

/* Restarts the rig as it was configured, asks as request 1 and runs it; `request` has what is
 * beside documents and query. */
void run_mode(struct rig *rig, const struct cut *cut, enum mode mode, struct rig_request request);

#endif
