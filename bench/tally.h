/* SPDX-License-Identifier: Apache-2.0 */
/* tally - what the outcomes of a run amount to, in the block and the JSON keys of `vllm bench
 * serve`, so that its readers and plots work on ours; with cold and warm requests apart. */
#ifndef BENCH_TALLY_H
#define BENCH_TALLY_H

#include <stdio.h>

#include <json-c/json.h>

#include "bench/outcome.h"
#include "bench/peaks.h"
#include "common/status.h"

#define TALLY_PERCENTILES_MAX 8

/* Of samples: as numpy has them (population deviation, percentiles by linear interpolation). */
struct metric {
    size_t count;
    double mean, median, std;
    double percentiles[TALLY_PERCENTILES_MAX];
};

struct tally_options {
    double percentiles[TALLY_PERCENTILES_MAX]; /* asked for, 0 to 100 */
    size_t n_percentiles;
    /* A request is good if each that is not 0 holds. */
    double good_ttft_ms, good_tpot_ms, good_e2el_ms;
    double rate;          /* as asked for, in the block: arrivals a second; 0: a closed loop */
    uint32_t concurrency; /* 0: not shown */
};

struct tally {
    size_t completed, failed, good;
    uint64_t input_tokens, output_tokens;
    struct metric ttft, tpot, itl, e2el;
    /* As the server counted: over requests that say so. */
    size_t with_reuse;
    uint64_t documents, documents_hit, document_tokens, tokens_reused, tokens_copied;
    double late_ms_max; /* how much later than due one was sent */
    struct peaks peaks; /* of all of them only */
};

enum tally_of {
    TALLY_ALL,
    TALLY_COLD, /* some document had to be built */
    TALLY_WARM,
};

/* Which of the outcomes (those that failed are counted in all). */
enum status tally_make(const struct outcome *outcomes, size_t count, enum tally_of of,
                       const struct tally_options *options, struct tally *tally_out);

/* "50,90,99"; ST_INVALID. */
enum status tally_parse_percentiles(const char *text, struct tally_options *options);

/* "ttft:500,tpot:50,e2el:2000" in milliseconds; ST_INVALID. */
enum status tally_parse_goodput(const char *text, struct tally_options *options);

/* Sorts the samples. */
struct metric metric_of(double *samples, size_t count, const struct tally_options *options);

/* The block for a terminal. */
void tally_print(FILE *out, const char *name, const struct tally *all, const struct tally *cold,
                 const struct tally *warm, const struct tally_options *options, double seconds);

/* Adds the keys of the block, with `seconds` of duration (0: without rates). */
void tally_to_json(struct json_object *object, const struct tally *tally,
                   const struct tally_options *options, double seconds);

#endif
