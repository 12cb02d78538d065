/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/workload.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/mem.h"

/* Streams of a seed; those of ids have a number above 16 bits. */
enum stream {
    STREAM_ARRIVALS = 1,
    STREAM_RANKS,
    STREAM_CITED,
    STREAM_DOCUMENT_TOKENS,
    STREAM_QUERY_TOKENS,
    STREAM_OUTPUT_TOKENS,
};

void
workload_ids(const struct workload *workload, uint64_t stream, uint32_t n, uint32_t *ids_out)
{
    struct draw draw = draw_new(workload->seed, stream);

    for (uint32_t i = 0; i < n; i++) {
        ids_out[i] = WORKLOAD_FIRST_ID + draw_below(&draw, workload->vocab - WORKLOAD_FIRST_ID);
    }
}

void
workload_destroy(struct workload **workload_p)
{
    struct workload *workload = *workload_p;

    if (workload == NULL) {
        return;
    }
    for (size_t i = 0; i < workload->n_documents; i++) {
        mem_free(workload->documents[i].text);
        mem_free(workload->documents[i].title);
    }
    for (size_t i = 0; i < workload->n_requests; i++) {
        mem_free(workload->requests[i].documents);
        mem_free(workload->requests[i].question);
    }
    mem_free(workload->documents);
    mem_free(workload->requests);
    mem_free(workload);
    *workload_p = NULL;
}

static enum status
check(const struct workload_config *config, size_t pool)
{
    if (config->vocab <= WORKLOAD_FIRST_ID) {
        return ERR(ST_INVALID, "a vocabulary of %u: must be more than %d", config->vocab,
                   WORKLOAD_FIRST_ID);
    }
    if (config->n_requests == 0 || config->n_requests > WORKLOAD_REQUESTS_MAX) {
        return ERR(ST_INVALID, "%u requests: must be 1 to %d", config->n_requests,
                   WORKLOAD_REQUESTS_MAX);
    }
    if (pool > WORKLOAD_DOCUMENTS_MAX || config->cited > WORKLOAD_CITED_MAX
        || config->cited > pool) {
        return ERR(ST_INVALID, "%u documents a request out of %zu: at most %d out of %d",
                   config->cited, pool, WORKLOAD_CITED_MAX, WORKLOAD_DOCUMENTS_MAX);
    }
    return ST_OK;
}

void
workload_draw_arrivals(const struct workload_config *config, struct workload *workload)
{
    struct draw draw = draw_new(config->seed, STREAM_ARRIVALS);
    double now = 0.0;

    for (size_t i = 0; i < workload->n_requests && config->rate > 0.0; i++) {
        now += draw_gamma(&draw, config->burstiness) / config->rate;
        workload->requests[i].arrival_us = (uint64_t)(now * 1e6);
    }
}

static void
draw_cited(const struct workload_config *config, const struct zipf *zipf, struct draw *draw,
           const struct zipf *own, uint32_t *documents)
{
    uint32_t n = config->cited;

    switch (config->sampler) {
    case SAMPLER_DISTINCT:
        zipf_draw_distinct(zipf, draw, n, documents);
        draw_shuffle(draw, documents, n); /* drawn first would mean likelier */
        break;
    case SAMPLER_REPLACEMENT: zipf_draw(zipf, draw, n, documents); break;
    case SAMPLER_PAPER: {
        uint32_t places[WORKLOAD_CITED_MAX], owned[WORKLOAD_CITED_MAX];
        struct zipf flat = *zipf;

        zipf_draw_distinct(&flat, draw, n, owned);
        draw_shuffle(draw, owned, n);
        zipf_draw(own, draw, n, places);
        for (uint32_t i = 0; i < n; i++) {
            documents[i] = owned[places[i]];
        }
        break;
    }
    }
}

static enum status
draw_requests(const struct workload_config *config, struct workload *workload)
{
    bool is_paper = config->sampler == SAMPLER_PAPER;
    struct draw ranks = draw_new(config->seed, STREAM_RANKS);
    struct draw cited = draw_new(config->seed, STREAM_CITED);
    struct draw query = draw_new(config->seed, STREAM_QUERY_TOKENS);
    struct draw output = draw_new(config->seed, STREAM_OUTPUT_TOKENS);
    struct zipf zipf, own = {0};
    enum status st = ST_OK;

    /* The paper's requests own documents that are all alike likely; alpha is within a request. */
    TRY(zipf_init(&zipf, (uint32_t)workload->n_documents, is_paper ? 0.0 : config->alpha, &ranks));
    st = zipf_init(&own, config->cited, config->alpha, &ranks);
    for (size_t i = 0; st == ST_OK && i < workload->n_requests; i++) {
        struct workload_request *request = &workload->requests[i];

        request->documents = mem_zalloc(config->cited, sizeof(request->documents[0]));
        if (request->documents == NULL) {
            st = ERR(ST_NO_MEMORY, "%zu requests", workload->n_requests);
            break;
        }
        request->n_documents = config->cited;
        draw_cited(config, &zipf, &cited, &own, request->documents);
        request->query_tokens = lengths_draw(&config->query_tokens, &query);
        request->stream = WORKLOAD_QUERY_IDS(i);
        request->output_tokens = lengths_draw(&config->output_tokens, &output);
    }
    zipf_deinit(&zipf);
    zipf_deinit(&own);
    return st;
}

static enum status
allocate(const struct workload_config *config, size_t n_documents, struct workload **workload_out)
{
    TRY(check(config, n_documents));
    struct workload *workload = mem_zalloc(1, sizeof(*workload));

    if (workload == NULL) {
        return ERR(ST_NO_MEMORY, "a workload");
    }
    workload->seed = config->seed;
    workload->vocab = config->vocab;
    workload->documents = mem_zalloc(n_documents, sizeof(workload->documents[0]));
    workload->requests = mem_zalloc(config->n_requests, sizeof(workload->requests[0]));
    if (workload->documents == NULL || workload->requests == NULL) {
        workload_destroy(&workload);
        return ERR(ST_NO_MEMORY, "%zu documents, %u requests", n_documents, config->n_requests);
    }
    workload->n_documents = n_documents;
    workload->n_requests = config->n_requests;
    *workload_out = workload;
    return ST_OK;
}

enum status
workload_make(const struct workload_config *config, struct workload **workload_out)
{
    struct draw lengths = draw_new(config->seed, STREAM_DOCUMENT_TOKENS);
    struct workload *workload;

    TRY(allocate(config, config->pool, &workload));
    for (size_t i = 0; i < workload->n_documents; i++) {
        workload->documents[i].stream = WORKLOAD_DOCUMENT_IDS(i);
        workload->documents[i].tokens = lengths_draw(&config->document_tokens, &lengths);
    }
    workload_draw_arrivals(config, workload);
    enum status st = draw_requests(config, workload);

    if (st != ST_OK) {
        workload_destroy(&workload);
        return st;
    }
    *workload_out = workload;
    return ST_OK;
}

enum status
workload_make_texts(const struct workload_config *config, const struct workload_text *texts,
                    size_t count, const char *question, struct workload **workload_out)
{
    struct workload *workload;
    enum status st;

    TRY(allocate(config, count, &workload));
    workload_draw_arrivals(config, workload);
    st = draw_requests(config, workload);
    for (size_t i = 0; st == ST_OK && i < count; i++) {
        struct workload_document *document = &workload->documents[i];

        document->text = mem_strdup(texts[i].text);
        document->title = texts[i].title == NULL ? NULL : mem_strdup(texts[i].title);
        st = document->text == NULL || (texts[i].title != NULL && document->title == NULL)
                 ? ERR(ST_NO_MEMORY, "%zu texts", count)
                 : ST_OK;
    }
    for (size_t i = 0; st == ST_OK && i < workload->n_requests; i++) {
        workload->requests[i].question = mem_strdup(question);
        st = workload->requests[i].question == NULL ? ERR(ST_NO_MEMORY, "questions") : ST_OK;
    }
    if (st != ST_OK) {
        workload_destroy(&workload);
        return st;
    }
    *workload_out = workload;
    return ST_OK;
}

/* --- what it cites ------------------------------------------------------------------------ */

static int
descending(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;

    return x < y ? 1 : x > y ? -1 : 0;
}

static bool
has_duplicate(const struct workload_request *request)
{
    for (uint32_t i = 0; i < request->n_documents; i++) {
        for (uint32_t j = 0; j < i; j++) {
            if (request->documents[i] == request->documents[j]) {
                return true;
            }
        }
    }
    return false;
}

enum status
workload_shape(const struct workload *workload, struct workload_shape *shape_out)
{
    struct workload_shape shape = {0};
    size_t *times = mem_zalloc(workload->n_documents, sizeof(*times));
    size_t top[5] = {0};

    if (times == NULL) {
        return ERR(ST_NO_MEMORY, "%zu documents", workload->n_documents);
    }
    for (size_t i = 0; i < workload->n_requests; i++) {
        const struct workload_request *request = &workload->requests[i];

        shape.citations += request->n_documents;
        shape.with_duplicates += has_duplicate(request);
        for (uint32_t d = 0; d < request->n_documents; d++) {
            shape.distinct += times[request->documents[d]]++ == 0;
        }
    }
    qsort(times, workload->n_documents, sizeof(*times), descending);
    for (size_t i = 0; i < 5 && i < workload->n_documents; i++) {
        top[i] = times[i];
    }
    mem_free(times);
    if (shape.citations > 0) {
        double all = (double)shape.citations;

        shape.top1 = (double)top[0] / all;
        shape.top5 = (double)(top[0] + top[1] + top[2] + top[3] + top[4]) / all;
        shape.reuse = 1.0 - (double)shape.distinct / all;
    }
    *shape_out = shape;
    return ST_OK;
}
