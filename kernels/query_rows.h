/* SPDX-License-Identifier: Apache-2.0 */
/* query_rows - which prefill rows of a step are attended with its decodes.
 *
 * To a document, a short query is a few rows more.  lazy_prefill gives each request tiles of its
 * own; lazy_decode packs the rows of all requests that cite a document into one tile and reads it
 * once.  So a query goes along, row by row, if it is short and most of its keys are in documents
 * that another sequence of the step cites too.  Pure functions of the step. */
#ifndef KERNELS_QUERY_ROWS_H
#define KERNELS_QUERY_ROWS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "kernels/attn_desc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Packed rows, (row, query head of a kv head), of a query that goes along: with more, tiles of its
 * own serve it as well. */
#define QUERY_PACKED_MAX 32

/* Scratch memory, and the sequences of the last split. */
struct query_rows;

/* rows_max: decodes and rows that go along, in all; pairs_max: (row, segment) pairs of theirs;
 * prefills_max: prefill sequences of a step. */
enum status query_rows_new(uint32_t rows_max, uint32_t pairs_max, uint32_t prefills_max,
                           struct query_rows **out);
void query_rows_destroy(struct query_rows **rows);

/* Moves such rows of step->prefill to step->decode, behind the decodes: there each is a sequence of
 * one row, whose row_first is not its index.  The arrays are the splitter's, until the next split.
 * False: none moved, the step is as it was. */
bool query_rows_split(struct query_rows *rows, struct attn_step *step);

#ifdef __cplusplus
}
#endif
#endif
