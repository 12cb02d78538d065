/* SPDX-License-Identifier: Apache-2.0 */
/* Traces: one JSON object a line, in and out. */
#include "bench/workload.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <json-c/json.h>

#include "common/htab.h"
#include "common/mem.h"

#define MOONCAKE_TOKENS 512 /* that a hash id stands for */
#define DEPTH_MAX       8
#define TOKENS_MAX      10000000

/* A document that was met: by id where it has no text. */
struct met {
    struct htab_node node;
    uint64_t id;
    const char *title, *text; /* of the document in the pool */
    uint32_t place;
};

struct reader {
    const struct workload_config *config;
    struct workload *workload;
    const char *path;
    size_t line;
    size_t documents_room, requests_room;
    struct htab met;
    bool has_times;
    double first_ms;
};

static bool
same_text(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static bool
same_document(const struct htab_node *node, const void *key)
{
    const struct met *have = HTAB_ENTRY(node, struct met, node);
    const struct met *want = key;

    return have->id == want->id && same_text(have->text, want->text)
           && same_text(have->title, want->title);
}

static uint64_t
hash_text(const char *text, uint64_t hash)
{
    for (; text != NULL && *text != '\0'; text++) {
        hash = (hash ^ (uint8_t)*text) * 0x100000001b3u; /* FNV-1a */
    }
    return hash;
}

/* Makes room for one more element. */
static enum status
grow(void **array, size_t count, size_t *room, size_t size, size_t max, const struct reader *r)
{
    if (count < *room) {
        return ST_OK;
    }
    if (count >= max) {
        return ERR(ST_INVALID, "%s:%zu: more than %zu of them", r->path, r->line, max);
    }
    void *grown = mem_realloc(*array, 2 * *room + 16, size);

    if (grown == NULL) {
        return ERR(ST_NO_MEMORY, "%s: no memory", r->path);
    }
    *array = grown;
    *room = 2 * *room + 16;
    return ST_OK;
}

/* The place of a document in the pool; a new one is added.  The strings are copied. */
static enum status
place_of(struct reader *r, const struct met *want, uint32_t tokens, uint32_t *place_out)
{
    struct workload *w = r->workload;
    uint64_t hash = htab_mix(hash_text(want->text, hash_text(want->title, htab_mix(want->id))));
    struct htab_node *node = htab_find(&r->met, hash, want);

    if (node != NULL) {
        *place_out = HTAB_ENTRY(node, struct met, node)->place;
        return ST_OK;
    }
    TRY(grow((void **)&w->documents, w->n_documents, &r->documents_room, sizeof(w->documents[0]),
             WORKLOAD_DOCUMENTS_MAX, r));
    struct met *met = mem_dup(want, sizeof(*want));
    struct workload_document document = {
        .text = want->text == NULL ? NULL : mem_strdup(want->text),
        .title = want->title == NULL ? NULL : mem_strdup(want->title),
        .stream = WORKLOAD_DOCUMENT_IDS(w->n_documents),
        .tokens = tokens,
    };

    if (met == NULL || (want->text != NULL && document.text == NULL)
        || (want->title != NULL && document.title == NULL)
        || htab_insert(&r->met, hash, &met->node) != ST_OK) {
        mem_free(met);
        mem_free(document.text);
        mem_free(document.title);
        return ERR(ST_NO_MEMORY, "%s: no memory", r->path);
    }
    met->text = document.text;
    met->title = document.title;
    met->place = *place_out = (uint32_t)w->n_documents;
    w->documents[w->n_documents++] = document;
    return ST_OK;
}

static enum status
bad(const struct reader *r, const char *what)
{
    return ERR(ST_INVALID, "%s:%zu: %s", r->path, r->line, what);
}

/* A member that is a number in [min, max], or `otherwise` where it is missing. */
static enum status
number(const struct reader *r, struct json_object *object, const char *key, uint64_t min,
       uint64_t max, uint64_t otherwise, uint64_t *value_out)
{
    struct json_object *value;

    *value_out = otherwise;
    if (!json_object_object_get_ex(object, key, &value)) {
        return ST_OK;
    }
    double x = json_object_get_double(value);

    if ((!json_object_is_type(value, json_type_int)
         && !json_object_is_type(value, json_type_double))
        || !(x >= (double)min && x <= (double)max)) {
        return ERR(ST_INVALID, "%s:%zu: %s must be a number from %" PRIu64 " to %" PRIu64, r->path,
                   r->line, key, min, max);
    }
    *value_out = (uint64_t)x;
    return ST_OK;
}

static const char *
string(struct json_object *object, const char *key)
{
    struct json_object *value;

    return json_object_object_get_ex(object, key, &value)
                   && json_object_is_type(value, json_type_string)
               ? json_object_get_string(value)
               : NULL;
}

static enum status
cite(struct reader *r, struct workload_request *request, size_t count)
{
    if (count > WORKLOAD_CITED_MAX) {
        return bad(r, "more than 4096 documents");
    }
    request->documents = mem_zalloc(count, sizeof(request->documents[0]));
    return request->documents == NULL ? ERR(ST_NO_MEMORY, "%s: no memory", r->path) : ST_OK;
}

static enum status
read_mooncake(struct reader *r, struct json_object *object, struct json_object *hashes,
              struct workload_request *request)
{
    size_t count =
        json_object_is_type(hashes, json_type_array) ? json_object_array_length(hashes) : 0;
    uint64_t input, output;

    if (count == 0) {
        return bad(r, "hash_ids must be an array with members");
    }
    TRY(number(r, object, "input_length", 1, TOKENS_MAX, 1, &input));
    TRY(number(r, object, "output_length", 1, TOKENS_MAX, 1, &output));
    TRY(cite(r, request, count - 1));
    for (size_t i = 0; i + 1 < count; i++) {
        struct met met = {
            .id = (uint64_t)json_object_get_int64(json_object_array_get_idx(hashes, i))};

        TRY(place_of(r, &met, MOONCAKE_TOKENS, &request->documents[i]));
        request->n_documents++;
    }
    uint64_t documents = (uint64_t)MOONCAKE_TOKENS * request->n_documents;

    request->query_tokens = input > documents ? (uint32_t)(input - documents) : 1;
    request->output_tokens = (uint32_t)output;
    return ST_OK;
}

static enum status
read_document(struct reader *r, struct json_object *object, uint32_t *place_out)
{
    uint64_t id, tokens;

    if (!json_object_is_type(object, json_type_object)) {
        return bad(r, "a document must be an object");
    }
    struct met met = {.title = string(object, "title"), .text = string(object, "text")};

    TRY(number(r, object, "id", 0, UINT64_C(1) << 52, 0, &id));
    TRY(number(r, object, "tokens", 0, TOKENS_MAX, 0, &tokens));
    if (met.text == NULL && tokens == 0) {
        return bad(r, "a document must have text, or tokens and an id");
    }
    met.id = met.text == NULL ? id : 0;
    return place_of(r, &met, met.text == NULL ? (uint32_t)tokens : 0, place_out);
}

static enum status
read_ours(struct reader *r, struct json_object *object, struct workload_request *request,
          struct draw *draw)
{
    struct json_object *documents;
    const char *question = string(object, "question");
    uint64_t query, output;
    size_t count = 0;

    if (json_object_object_get_ex(object, "documents", &documents)) {
        if (!json_object_is_type(documents, json_type_array)) {
            return bad(r, "documents must be an array");
        }
        count = json_object_array_length(documents);
    }
    TRY(cite(r, request, count));
    for (; request->n_documents < count; request->n_documents++) {
        TRY(read_document(r, json_object_array_get_idx(documents, request->n_documents),
                          &request->documents[request->n_documents]));
    }
    TRY(number(r, object, "query_tokens", 1, TOKENS_MAX,
               lengths_draw(&r->config->query_tokens, draw), &query));
    TRY(number(r, object, "output_tokens", 1, TOKENS_MAX,
               lengths_draw(&r->config->output_tokens, draw), &output));
    request->query_tokens = (uint32_t)query;
    request->output_tokens = (uint32_t)output;
    if (question != NULL) {
        request->question = mem_strdup(question);
        if (request->question == NULL) {
            return ERR(ST_NO_MEMORY, "%s: no memory", r->path);
        }
    }
    return ST_OK;
}

/* The line's time in milliseconds, 0 in a file without times. */
static enum status
read_time(struct reader *r, struct json_object *object, bool is_first, double *ms_out)
{
    struct json_object *value;
    bool is_there = json_object_object_get_ex(object, "timestamp", &value);
    double ms = is_there ? json_object_get_double(value) : 0.0;

    if (is_first) {
        r->has_times = is_there;
        r->first_ms = ms;
    }
    if (r->has_times != is_there || !(ms >= r->first_ms && ms < 1e15)) {
        return bad(r, "timestamps must be in all lines or in none, the first the smallest");
    }
    *ms_out = ms;
    return ST_OK;
}

static enum status
read_request(struct reader *r, struct json_object *object, struct draw *draw)
{
    struct workload *w = r->workload;
    struct json_object *hashes;
    double ms = 0.0;

    TRY(grow((void **)&w->requests, w->n_requests, &r->requests_room, sizeof(w->requests[0]),
             WORKLOAD_REQUESTS_MAX, r));
    struct workload_request *request = &w->requests[w->n_requests];

    *request = (struct workload_request){.stream = WORKLOAD_QUERY_IDS(w->n_requests)};
    w->n_requests++; /* from here on it is the workload's to free */
    TRY(read_time(r, object, w->n_requests == 1, &ms));
    request->arrival_us = (uint64_t)((ms - r->first_ms) * 1000.0 / r->config->time_scale + 0.5);
    return json_object_object_get_ex(object, "hash_ids", &hashes)
               ? read_mooncake(r, object, hashes, request)
               : read_ours(r, object, request, draw);
}

static enum status
read_line(struct reader *r, const char *text, size_t length, struct draw *draw)
{
    struct json_tokener *tokener = json_tokener_new_ex(DEPTH_MAX);

    if (tokener == NULL) {
        return ERR(ST_NO_MEMORY, "%s: no memory", r->path);
    }
    struct json_object *object = json_tokener_parse_ex(tokener, text, (int)length);
    enum status st = json_object_is_type(object, json_type_object)
                         ? read_request(r, object, draw)
                         : bad(r, "the line is not a JSON object");

    json_object_put(object);
    json_tokener_free(tokener);
    return st;
}

static enum status
read_lines(struct reader *r, FILE *file)
{
    struct draw draw = draw_new(r->config->seed, 1u << 10);
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length;
    enum status st = ST_OK;

    while (st == ST_OK
           && (r->config->n_requests == 0 || r->workload->n_requests < r->config->n_requests)
           && (length = getline(&line, &capacity, file)) >= 0) {
        r->line++;
        if (length > 1) {
            st =
                length > INT32_MAX ? bad(r, "too long") : read_line(r, line, (size_t)length, &draw);
        }
    }
    free(line);
    if (st == ST_OK && ferror(file) != 0) {
        st = ERR(ST_SYSTEM, "%s: %s", r->path, strerror(errno));
    }
    return st;
}

/* Lines may be a little out of order; requests are not. */
static int
by_arrival(const void *a, const void *b)
{
    const struct workload_request *x = a, *y = b;

    if (x->arrival_us != y->arrival_us) {
        return x->arrival_us < y->arrival_us ? -1 : 1;
    }
    return x->stream < y->stream ? -1 : x->stream > y->stream;
}

static void
forget_met(struct htab *met)
{
    struct htab_node *node = htab_next(met, NULL);

    while (node != NULL) {
        struct htab_node *next = htab_next(met, node);

        mem_free(HTAB_ENTRY(node, struct met, node));
        node = next;
    }
    htab_deinit(met);
}

enum status
workload_read(const struct workload_config *config, const char *path,
              struct workload **workload_out)
{
    struct reader r = {.config = config, .path = path};
    FILE *file = fopen(path, "re");
    enum status st;

    if (file == NULL) {
        return ERR(ST_SYSTEM, "%s: %s", path, strerror(errno));
    }
    r.workload = mem_zalloc(1, sizeof(*r.workload));
    st = r.workload == NULL ? ERR(ST_NO_MEMORY, "a workload") : htab_init(&r.met, same_document);
    if (st == ST_OK) {
        r.workload->seed = config->seed;
        r.workload->vocab = config->vocab;
        st = read_lines(&r, file);
    }
    if (st == ST_OK && r.workload->n_requests == 0) {
        st = ERR(ST_INVALID, "%s: no request", path);
    }
    if (st == ST_OK && !r.has_times) {
        workload_draw_arrivals(config, r.workload);
    } else if (st == ST_OK) {
        qsort(r.workload->requests, r.workload->n_requests, sizeof(r.workload->requests[0]),
              by_arrival);
    }
    forget_met(&r.met);
    (void)fclose(file);
    if (st != ST_OK) {
        workload_destroy(&r.workload);
        return st;
    }
    *workload_out = r.workload;
    return ST_OK;
}

/* --- out ------------------------------------------------------------------------------------ */

static void
add(struct json_object *object, const char *key, struct json_object *value)
{
    (void)json_object_object_add(object, key, value);
}

static struct json_object *
show_document(const struct workload *workload, uint32_t place)
{
    const struct workload_document *document = &workload->documents[place];
    struct json_object *object = json_object_new_object();

    if (document->text == NULL) {
        add(object, "id", json_object_new_int64(place));
        add(object, "tokens", json_object_new_int64(document->tokens));
        return object;
    }
    if (document->title != NULL) {
        add(object, "title", json_object_new_string(document->title));
    }
    add(object, "text", json_object_new_string(document->text));
    return object;
}

void
workload_write(const struct workload *workload, FILE *out)
{
    for (size_t i = 0; i < workload->n_requests; i++) {
        const struct workload_request *request = &workload->requests[i];
        struct json_object *object = json_object_new_object();
        struct json_object *documents = json_object_new_array();

        add(object, "timestamp", json_object_new_double((double)request->arrival_us / 1000.0));
        for (uint32_t d = 0; d < request->n_documents; d++) {
            (void)json_object_array_add(documents, show_document(workload, request->documents[d]));
        }
        add(object, "documents", documents);
        if (request->question != NULL) {
            add(object, "question", json_object_new_string(request->question));
        } else {
            add(object, "query_tokens", json_object_new_int64(request->query_tokens));
        }
        add(object, "output_tokens", json_object_new_int64(request->output_tokens));
        (void)fprintf(out, "%s\n", json_object_to_json_string_ext(object, JSON_C_TO_STRING_PLAIN));
        json_object_put(object);
    }
}
