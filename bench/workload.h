/* SPDX-License-Identifier: Apache-2.0 */
/* workload - what a benchmark asks for: a pool of documents, and requests over it with times of
 * arrival.  Made once from a seed, or read from a trace; every target then gets the same. */
#ifndef BENCH_WORKLOAD_H
#define BENCH_WORKLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "bench/draw.h"

#define WORKLOAD_REQUESTS_MAX  1000000
#define WORKLOAD_DOCUMENTS_MAX 10000000
#define WORKLOAD_CITED_MAX     4096 /* documents of a request */

/* Of token ids (text NULL: `tokens` ids drawn from `stream`), or of text. */
struct workload_document {
    char *text;
    char *title; /* with text; may be NULL */
    uint64_t stream;
    uint32_t tokens; /* 0: not known, it is text */
};

struct workload_request {
    uint64_t arrival_us; /* after the start */
    uint32_t *documents; /* [n_documents] places in the pool */
    uint32_t n_documents;
    char *question; /* or NULL: query_tokens ids drawn from `stream` */
    uint32_t query_tokens;
    uint64_t stream;
    uint32_t output_tokens;
};

struct workload {
    uint64_t seed;
    uint32_t vocab; /* ids are in [WORKLOAD_FIRST_ID, vocab) */
    struct workload_document *documents;
    size_t n_documents;
    struct workload_request *requests; /* by arrival */
    size_t n_requests;
};

#define WORKLOAD_FIRST_ID                                                                          \
    300 /* below it are special tokens and single bytes in most vocabularies */

enum workload_sampler {
    SAMPLER_DISTINCT,    /* distinct documents a request, by pool-level Zipf, in random order */
    SAMPLER_REPLACEMENT, /* the same, but a request may cite a document twice */
    /* What the paper's generator does when it samples: five distinct documents, all alike likely,
     * are the request's own; of those it draws with replacement, by Zipf over an order that is new
     * for each request.  Not comparable with the others. */
    SAMPLER_PAPER,
};

struct workload_config {
    uint64_t seed;
    uint32_t vocab;
    uint32_t n_requests;
    double rate;       /* requests a second; 0: all at once */
    double burstiness; /* shape of the gamma distribution of gaps: 1 is Poisson */
    uint32_t pool;     /* documents; ignored where there are texts */
    uint32_t cited;    /* documents a request */
    double alpha;
    enum workload_sampler sampler;
    struct lengths document_tokens, query_tokens, output_tokens;
    double time_scale; /* of traces: their times are divided by it */
};

/* ST_INVALID names what does not fit. */
enum status workload_make(const struct workload_config *config, struct workload **workload_out);

/* The same over a pool of texts, which it copies: what is cited is drawn, the question is fixed. */
struct workload_text {
    const char *text;
    const char *title; /* may be NULL */
};
enum status workload_make_texts(const struct workload_config *config,
                                const struct workload_text *texts, size_t count,
                                const char *question, struct workload **workload_out);

/* One JSON object a line; at most config->n_requests (0: all) of them:
 *   {"timestamp": MS, "input_length": N, "output_length": N, "hash_ids": [...]}
 * is Mooncake's form: an id stands for 512 tokens, each is a document here; what the last id
 * stands for is the query.
 *   {"documents": [{"text": "...", "title": "..."} or {"tokens": N, "id": N}, ...],
 *    "question": "..." or "query_tokens": N, "output_tokens": N, "timestamp": MS}
 * is ours: workload_write writes it, and the records of 2wiki_demo.jsonl are read as they are.
 * Equal texts, and equal ids, are one document.  Times count from the first line; without any,
 * arrivals are drawn. */
enum status workload_read(const struct workload_config *config, const char *path,
                          struct workload **workload_out);

/* The requests as workload_read takes them. */
void workload_write(const struct workload *workload, FILE *out);

/* Times of arrival of requests that have none; with a rate of 0 all come at once. */
void workload_draw_arrivals(const struct workload_config *config, struct workload *workload);

void workload_destroy(struct workload **workload);

/* The streams of ids of documents and of queries. */
#define WORKLOAD_DOCUMENT_IDS(place) ((uint64_t)(place) << 16 | 1u << 8)
#define WORKLOAD_QUERY_IDS(request)  ((uint64_t)(request) << 16 | 2u << 8)

/* ids_out[0 .. n): those of a stream. */
void workload_ids(const struct workload *workload, uint64_t stream, uint32_t n, uint32_t *ids_out);

/* What the requests cite: for the report, and to see what a generator really does. */
struct workload_shape {
    size_t citations;
    size_t distinct;        /* documents cited at all */
    double top1, top5;      /* share of citations */
    size_t with_duplicates; /* requests that cite a document twice */
    double reuse;           /* citations of documents that were cited before, share */
};
enum status workload_shape(const struct workload *workload, struct workload_shape *shape_out);

#endif
