/* SPDX-License-Identifier: Apache-2.0 */
/* golden - reads the files that tests/goldens/make_goldens.py writes and describes.
 *
 * A broken file ends the program: it is our own.  Everything lives until golden_destroy. */
#ifndef TESTS_SUPPORT_GOLDEN_H
#define TESTS_SUPPORT_GOLDEN_H

#include <stdbool.h>
#include <stdint.h>

#include "model/tiny_model.h"

#define GOLDEN_ROWS_MAX 4

struct golden_ids {
    uint32_t *ids; /* [count] */
    uint32_t count;
};

struct golden_row { /* what the model says at one position */
    uint32_t position;
    float *logits; /* [n_logits], of the ids in golden.index, or of all ids */
    uint32_t n_logits;
    struct golden_ids top; /* largest first */
};

struct golden_case {
    char *name;
    struct golden_ids docs; /* lengths; the rest of `prompt` is the query */
    struct golden_ids prompt;
    double noise; /* a right float32 forward pass differs by a small multiple of it */
    struct golden_row rows[GOLDEN_ROWS_MAX];
    uint32_t n_rows;
    struct golden_ids greedy; /* not cut at end tokens; empty if the case has none */
    double gap;               /* smallest lead of a chosen token over the next */
};

struct golden {
    char *model;             /* the words after "model" */
    struct golden_ids index; /* the ids whose logits are stored; empty = all */
    struct golden_case *cases;
    uint32_t n_cases;
};

/* Reads "$KVASIR_SRCDIR/tests/goldens/NAME.txt". */
struct golden *golden_load(const char *name);
void golden_destroy(struct golden **golden);

/* The case of that name; it must be there. */
const struct golden_case *golden_find(const struct golden *golden, const char *name);

/* For "kind=tiny": the config whose file the goldens were made from. */
struct tiny_model_config golden_tiny_config(const struct golden *golden);

#endif
