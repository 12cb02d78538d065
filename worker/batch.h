/* SPDX-License-Identifier: Apache-2.0 */
/* batch - which rows go into the next step; pure arithmetic over a table, no model, no memory.
 *
 * A step runs at most limits.rows rows.  Decoding sequences come first, one row each: they are
 * what people watch, and beside them a step has at most limits.rows_beside others, so that the next
 * token is not long in coming.  Then prompts whose documents are all there get up to half of what
 * is left: a question over hot documents does not wait for somebody's thousands of cold tokens.
 * Then builds and prompts share the rest in the order of the table, which is the order of arrival,
 * each as far as the budget goes; what does not fit goes on in a later step.
 *
 * Rows of a prompt may run iff every document it waits for is complete by the end of this step: in
 * each layer all keys of a step are written before any is read (llama.h), so a cold document and
 * the question about it go through together.
 *
 * A device also bounds the segments of a step and its (row, segment) pairs, and how many sequences
 * of one row it does well at once: decodes, and whoever has one row left.  Those for which nothing
 * is left wait, and the next step begins with the first of them: they take turns.  Requests with
 * thousands of documents get there, or more requests than lazy_decode can plan.
 *
 * Builds in the background (documents encoded before anyone asks) run only in a step in which
 * nothing else can: they cost a request at most the step that runs when it comes.
 *
 * Nothing else starves: decoding sequences are bounded in number, each gets its turn, and they end;
 * among the others the oldest has at least half of a step. */
#ifndef WORKER_BATCH_H
#define WORKER_BATCH_H

#include <stdbool.h>
#include <stdint.h>

struct batch_item {
    bool is_decoding;     /* past its prompt */
    bool is_prompt;       /* a request's own tokens; else a build */
    bool is_background;   /* runs only in a step in which nothing else does */
    uint32_t rows_left;   /* tokens whose KV is not written yet */
    uint32_t slots_left;  /* tokens that its blocks have room for; less than rows_left: it stalls */
    const uint32_t *deps; /* [n_deps] earlier items of the table that must be complete */
    uint32_t n_deps;
    uint32_t n_segs; /* that each of its rows attends to */
    uint32_t rows;   /* written by batch_pick: rows of this step */
};

/* Of a step; ops.h says more. */
struct batch_limits {
    uint32_t rows;
    uint32_t rows_beside; /* of builds and prompts in a step that decodes; 0: what is left */
    uint64_t segs;
    uint64_t pairs;
    uint32_t singles; /* sequences of one row; 0: any number */
    uint64_t single_segs;
};

/* Fills `rows` of every item; returns their sum, at most limits.rows.  Items are in order of
 * arrival; a dep on an item that does not stand before its reader is taken as not complete.
 * Decodes begin with items[*turn] and go round; *turn becomes who must begin the next time. */
uint32_t batch_pick(struct batch_item *items, uint32_t count, struct batch_limits limits,
                    uint32_t *turn);

#endif
