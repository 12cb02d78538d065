/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon says what it has (Corpus); a document whose version and wishes are the same is not
 * even read from its file.  What the daemon then encodes, and when, is its own business: it looks
 * at tokens, so the same text under a new version costs nothing. */
#include "client/docs_warm.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/docs.h"
#include "client/manifest.h"
#include "client/pbjson.h"
#include "client/table.h"
#include "common/mem.h"
#include "proto/endpoints.h"

#include "kvasir/v1/documents.pb-c.h"

#define PAGE_DOCUMENTS 10000
#define LOOK_EVERY_MS  500

/* A document that the daemon knows. */
struct known {
    char *id, *version;
    double weight;
    bool is_pinned;
    bool is_wanted; /* the manifest has it */
};

struct warm {
    const struct cli_args *args;
    struct rpc *rpc;
    ProtobufCBinaryData salt;
    struct known *known; /* [known_count], by id */
    size_t known_count;
    size_t count, registered, changed, removed;
};

/* ---- what the daemon has --------------------------------------------------------------------- */

static int
by_id(const void *a, const void *b)
{
    return strcmp(((const struct known *)a)->id, ((const struct known *)b)->id);
}

static enum status
add_known(struct warm *warm, const Kvasir__V1__CorpusDocument *document)
{
    struct known *grown = mem_realloc(warm->known, warm->known_count + 1, sizeof(*grown));

    if (grown == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for the daemon's list");
    }
    warm->known = grown;
    grown[warm->known_count++] = (struct known){
        .id = mem_strdup(document->id == NULL ? "" : document->id),
        .version = mem_strdup(document->version == NULL ? "" : document->version),
        .weight = document->weight,
        .is_pinned = document->is_pinned,
    };
    return ST_OK;
}

static int
fetch_known(struct warm *warm)
{
    Kvasir__V1__CorpusRequest request = KVASIR__V1__CORPUS_REQUEST__INIT;
    const ProtobufCMessage *message;
    const Kvasir__V1__CorpusReply *reply;

    request.has_with_documents = request.has_limit = request.has_after = true;
    request.with_documents = true;
    request.limit = PAGE_DOCUMENTS;
    request.has_salt = true;
    request.salt = warm->salt;
    do {
        int code = cli_call(warm->args, warm->rpc,
                            (struct rpc_call){.method = METHOD_CORPUS, .request = &request.base},
                            &message);

        if (code != CLI_OK) {
            return code;
        }
        reply = (const void *)message;
        for (size_t i = 0; i < reply->n_documents; i++) {
            request.after = reply->documents[i]->number;
            if (reply->documents[i]->id != NULL && add_known(warm, reply->documents[i]) != ST_OK) {
                return cli_fail(warm->args, ST_NO_MEMORY);
            }
        }
    } while (reply->n_documents == PAGE_DOCUMENTS);
    if (warm->known_count > 0) {
        qsort(warm->known, warm->known_count, sizeof(*warm->known), by_id);
    }
    return CLI_OK;
}

static struct known *
find_known(const struct warm *warm, const char *id)
{
    struct known wanted = {.id = (char *)(uintptr_t)id};

    return warm->known_count == 0
               ? NULL
               : bsearch(&wanted, warm->known, warm->known_count, sizeof(*warm->known), by_id);
}

/* Nothing to say about it.  A pin with an end is said again: its time begins anew. */
static bool
is_as_wanted(const struct known *known, const struct manifest_document *document)
{
    return known != NULL && document->version != NULL
           && strcmp(known->version, document->version) == 0 && known->weight == document->weight
           && known->is_pinned == document->is_pinned && document->ttl_ms == 0;
}

/* ---- the manifest ---------------------------------------------------------------------------- */

/* Relative to the folder of the manifest. */
static char *
path_beside(const char *manifest, const char *path)
{
    const char *slash = strrchr(manifest, '/');
    size_t folder = path[0] == '/' || slash == NULL ? 0 : (size_t)(slash - manifest) + 1;
    char *whole = mem_zalloc(folder + strlen(path) + 1, 1);

    if (whole != NULL) {
        memcpy(whole, manifest, folder);
        memcpy(whole + folder, path, strlen(path));
    }
    return whole;
}

static enum status
read_text(const struct warm *warm, struct manifest_document *document)
{
    char *path;
    size_t length;
    enum status st;

    if (document->path == NULL) {
        return ST_OK;
    }
    path = path_beside(warm->args->operands[0], document->path);
    if (path == NULL) {
        return ERR(ST_NO_MEMORY, "%s: no memory", document->path);
    }
    st = docs_read_text(path, &document->text, &length);
    mem_free(path);
    return st;
}

static int
register_document(struct warm *warm, struct manifest_document *document)
{
    Kvasir__V1__RegisterRequest request = KVASIR__V1__REGISTER_REQUEST__INIT;
    Kvasir__V1__Segment segment = KVASIR__V1__SEGMENT__INIT;
    const ProtobufCMessage *reply;
    bool is_chat = document->tokens == NULL && !cli_has(warm->args, "raw");

    if (read_text(warm, document) != ST_OK) {
        return cli_fail(warm->args, ST_INVALID);
    }
    segment.id = document->id;
    segment.text = document->text;
    segment.title = is_chat ? document->title : NULL;
    segment.n_token_ids = document->token_count;
    segment.token_ids = document->tokens;
    request.document = &segment;
    request.has_salt = warm->salt.len > 0;
    request.salt = warm->salt;
    request.has_is_chat = request.has_weight = request.has_is_pinned = true;
    request.is_chat = is_chat;
    request.weight = document->weight;
    request.version = document->version;
    request.is_pinned = document->is_pinned;
    request.has_pin_ttl_ms = document->ttl_ms > 0;
    request.pin_ttl_ms = document->ttl_ms;
    int code =
        cli_call(warm->args, warm->rpc,
                 (struct rpc_call){.method = METHOD_REGISTER, .request = &request.base}, &reply);

    if (code == CLI_OK) {
        warm->registered++;
        warm->changed += !((const Kvasir__V1__RegisterReply *)(const void *)reply)->is_unchanged;
    } else {
        (void)fprintf(stderr, "%s: while registering %s\n", warm->args->cli->program, document->id);
    }
    return code;
}

static int
take_line(struct warm *warm, const char *line, size_t length, const char *where)
{
    struct manifest_document document;
    struct known *known;
    int code = CLI_OK;

    if (manifest_parse(line, length, where, &document) != ST_OK) {
        (void)cli_fail(warm->args, ST_INVALID);
        return CLI_USAGE;
    }
    known = find_known(warm, document.id);
    warm->count++;
    if (!is_as_wanted(known, &document)) {
        code = register_document(warm, &document);
    }
    if (known != NULL) {
        known->is_wanted = true;
    }
    manifest_deinit(&document);
    return code;
}

static int
take_lines(struct warm *warm, FILE *file)
{
    const char *path = warm->args->operands[0];
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length;
    int code = CLI_OK;

    for (size_t at = 1; code == CLI_OK && (length = getline(&line, &capacity, file)) >= 0; at++) {
        char where[4096];

        (void)snprintf(where, sizeof(where), "%s:%zu", path, at);
        if ((size_t)length > MANIFEST_LINE_MAX) {
            (void)ERR(ST_INVALID, "%s: longer than %u bytes", where, MANIFEST_LINE_MAX);
            code = cli_fail(warm->args, ST_INVALID);
        } else if (strspn(line, " \t\r\n") < (size_t)length) {
            code = take_line(warm, line, (size_t)length, where);
        }
    }
    free(line);
    return code;
}

/* What the daemon has beside the manifest. */
static int
prune(struct warm *warm)
{
    int code = CLI_OK;

    for (size_t i = 0; code == CLI_OK && i < warm->known_count; i++) {
        Kvasir__V1__ForgetRequest ref = KVASIR__V1__FORGET_REQUEST__INIT;

        if (warm->known[i].is_wanted) {
            continue;
        }
        ref.id = warm->known[i].id;
        ref.has_salt = warm->salt.len > 0;
        ref.salt = warm->salt;
        code = cli_call(warm->args, warm->rpc,
                        (struct rpc_call){.method = METHOD_FORGET, .request = &ref.base}, NULL);
        warm->removed += code == CLI_OK;
    }
    return code;
}

/* ---- coverage -------------------------------------------------------------------------------- */

static void
print_coverage(FILE *to, const Kvasir__V1__CorpusReply *reply)
{
    (void)fprintf(
        to,
        "coverage %.1f%% of %llu tokens (%llu of %llu documents whole), %llu pinned, %llu "
        "without room, %llu waiting",
        reply->tokens == 0 ? 100.0 : 100.0 * (double)reply->tokens_resident / (double)reply->tokens,
        (unsigned long long)reply->tokens, (unsigned long long)reply->count_resident,
        (unsigned long long)reply->count, (unsigned long long)reply->count_pinned,
        (unsigned long long)reply->count_no_room, (unsigned long long)reply->count_waiting);
    if (reply->count_waiting > 0 && reply->has_eta_ms) {
        (void)fprintf(to, ", %.0f s at %.0f tokens/s in idle time", (double)reply->eta_ms / 1000.0,
                      reply->tokens_per_s);
    }
    (void)fputc('\n', to);
}

static int
ask_coverage(const struct cli_args *args, struct rpc *rpc, bool with_documents,
             const ProtobufCMessage **message_out)
{
    Kvasir__V1__CorpusRequest request = KVASIR__V1__CORPUS_REQUEST__INIT;

    request.has_with_documents = true;
    request.with_documents = with_documents;
    return cli_call(args, rpc, (struct rpc_call){.method = METHOD_CORPUS, .request = &request.base},
                    message_out);
}

/* Until nothing waits any more. */
static int
wait_for_coverage(const struct cli_args *args, struct rpc *rpc, const ProtobufCMessage **message)
{
    int code = ask_coverage(args, rpc, false, message);

    while (code == CLI_OK
           && ((const Kvasir__V1__CorpusReply *)(const void *)*message)->count_waiting > 0) {
        if (isatty(STDERR_FILENO) == 1) {
            print_coverage(stderr, (const void *)*message);
        }
        (void)poll(NULL, 0, LOOK_EVERY_MS);
        code = ask_coverage(args, rpc, false, message);
    }
    return code;
}

static int
report(const struct warm *warm)
{
    const ProtobufCMessage *message;
    int code = cli_has(warm->args, "wait") ? wait_for_coverage(warm->args, warm->rpc, &message)
                                           : ask_coverage(warm->args, warm->rpc, false, &message);

    if (code != CLI_OK) {
        return code;
    }
    if (cli_has(warm->args, "json")) {
        pbjson_print(stdout, CLI_SCHEMA, message);
        return CLI_OK;
    }
    printf("%zu documents: %zu new or changed, %zu unchanged (%zu not even read), %zu removed\n",
           warm->count, warm->changed, warm->count - warm->changed, warm->count - warm->registered,
           warm->removed);
    print_coverage(stdout, (const void *)message);
    return CLI_OK;
}

int
docs_warm_run(const struct cli_args *args)
{
    const char *salt = cli_value(args, "salt");
    struct warm warm = {
        .args = args,
        .salt = {.data = (uint8_t *)(uintptr_t)salt, .len = salt == NULL ? 0 : strlen(salt)},
    };
    FILE *file = fopen(args->operands[0], "rb");

    if (file == NULL) {
        (void)cli_fail(args, ERR(ST_SYSTEM, "%s: %s", args->operands[0], strerror(errno)));
        return CLI_USAGE;
    }
    enum status st = cli_connect(args, ENDPOINT_ADMIN, &warm.rpc);
    int code = st != ST_OK ? cli_fail(args, st) : fetch_known(&warm);

    if (code == CLI_OK) {
        code = take_lines(&warm, file);
    }
    if (code == CLI_OK && cli_has(args, "prune")) {
        code = prune(&warm);
    }
    if (code == CLI_OK) {
        code = report(&warm);
    }
    for (size_t i = 0; i < warm.known_count; i++) {
        mem_free(warm.known[i].id);
        mem_free(warm.known[i].version);
    }
    mem_free(warm.known);
    rpc_close(&warm.rpc);
    (void)fclose(file);
    return code;
}

int
docs_coverage_run(const struct cli_args *args)
{
    bool with_documents = cli_has(args, "documents");
    const ProtobufCMessage *message;
    struct rpc *rpc = NULL;
    enum status st = cli_connect(args, ENDPOINT_ADMIN, &rpc);
    int code = st != ST_OK ? cli_fail(args, st) : ask_coverage(args, rpc, with_documents, &message);

    if (code == CLI_OK && cli_has(args, "json")) {
        pbjson_print(stdout, CLI_SCHEMA, message);
    } else if (code == CLI_OK) {
        const ProtobufCFieldDescriptor *field =
            protobuf_c_message_descriptor_get_field_by_name(message->descriptor, "documents");
        ProtobufCMessage *const *rows;
        size_t count = pbjson_repeated(message, field, &rows);

        if (with_documents
            && table_print(field->descriptor, rows, count,
                           "id,version,state,tokens,tokens_resident,weight,is_pinned,pin_left_ms",
                           (struct table_style){.has_headers = true})
                   != ST_OK) {
            code = cli_fail(args, ST_INVALID);
        }
        print_coverage(stdout, (const void *)message);
    }
    rpc_close(&rpc);
    return code;
}
