/* SPDX-License-Identifier: Apache-2.0 */
/* Builds one GenerateRequest from the command line, prints replies as they come, sums up at the
 * end. SIGINT cancels the call once and kills the second time, as SA_RESETHAND has it. */
#include "client/ask.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/pbjson.h"
#include "common/clock.h"
#include "common/mem.h"
#include "kvasir/v1/health.pb-c.h"
#include "kvasir/v1/wire.pb-c.h"
#include "proto/endpoints.h"

#define HEALTH_TIMEOUT_MS 5000
#define STOPS_MAX         16

struct ask {
    const struct cli_args *args;
    struct docs docs;
    char *question; /* NULL: the operand itself */
    Kvasir__V1__GenerateRequest request;
    Kvasir__V1__Sampling sampling;
    Kvasir__V1__Message messages[2];
    Kvasir__V1__Message *message_pointers[2];
    Kvasir__V1__Segment preamble;
    Kvasir__V1__Segment **segments; /* with the preamble in front */
    char *stops[STOPS_MAX];
    bool is_json;
    bool is_stream_json;
    bool is_tty;
    struct wire_buffer last_reply; /* packed: usage and finish outlive the arena */
    char *text;                    /* the whole answer, for --json */
    size_t text_length;
    size_t text_capacity;
    uint32_t *token_ids; /* as long, too */
    size_t token_count;
    size_t token_capacity;
    uint64_t begin_us, first_us; /* when the call began and its first token came */
    enum status st;              /* of what happens inside the callback */
};

/* ---- from the command line ------------------------------------------------------------------- */

enum status
ask_load_docs(const struct cli_args *args, struct docs *docs)
{
    const char *suffixes = cli_value(args, "suffixes");

    for (size_t i = 0; i < args->given_count; i++) {
        if (strcmp(args->given[i].option->name, "docs") == 0) {
            TRY(docs_add_path(docs, args->given[i].value,
                              suffixes == NULL ? ".txt,.md" : suffixes));
        } else if (strcmp(args->given[i].option->name, "jsonl") == 0) {
            TRY(docs_add_jsonl(docs, args->given[i].value));
        }
    }
    return ST_OK;
}

/* Reads a number option into a field and its has_ flag. */
static enum status
number_field(const struct cli_args *args, const char *name, uint64_t min, uint64_t max,
             uint32_t *field, protobuf_c_boolean *has)
{
    uint64_t value = 0;

    TRY(cli_u64(args, name, min, max, &value));
    *has = cli_has(args, name);
    *field = (uint32_t)value;
    return ST_OK;
}

static enum status
float_field(const struct cli_args *args, const char *name, double max, float *field,
            protobuf_c_boolean *has)
{
    TRY(cli_float(args, name, 0, max, field));
    *has = cli_has(args, name);
    return ST_OK;
}

static enum status
fill_stops(struct ask *ask)
{
    for (size_t i = 0; i < ask->args->given_count; i++) {
        const char *value = ask->args->given[i].value;

        if (strcmp(ask->args->given[i].option->name, "stop") != 0) {
            continue;
        }
        if (ask->sampling.n_stop == STOPS_MAX) {
            return ERR(ST_INVALID, "--stop: more than %d", STOPS_MAX);
        }
        if (strlen(value) < 1 || strlen(value) > 256) {
            return ERR(ST_INVALID, "--stop of %zu bytes: must have 1 to 256", strlen(value));
        }
        ask->stops[ask->sampling.n_stop++] = (char *)(uintptr_t)value;
    }
    ask->sampling.stop = ask->stops;
    return ST_OK;
}

static enum status
fill_sampling(struct ask *ask)
{
    const struct cli_args *args = ask->args;
    Kvasir__V1__Sampling *s = &ask->sampling;

    kvasir__v1__sampling__init(s);
    TRY(number_field(args, "max-tokens", 1, 1u << 20, &s->max_tokens, &s->has_max_tokens));
    TRY(float_field(args, "temperature", 100, &s->temperature, &s->has_temperature));
    TRY(number_field(args, "top-k", 0, 1u << 20, &s->top_k, &s->has_top_k));
    TRY(float_field(args, "top-p", 1, &s->top_p, &s->has_top_p));
    TRY(float_field(args, "min-p", 1, &s->min_p, &s->has_min_p));
    TRY(float_field(args, "repetition-penalty", 100, &s->repetition_penalty,
                    &s->has_repetition_penalty));
    TRY(cli_u64(args, "seed", 0, UINT64_MAX, &s->seed));
    s->has_seed = cli_has(args, "seed");
    if (cli_has(args, "logprobs") && !cli_has(args, "stream-json")) {
        return ERR(ST_INVALID, "--logprobs needs --stream-json to be seen");
    }
    TRY(number_field(args, "logprobs", 0, 20, &s->logprobs, &s->has_logprobs));
    return fill_stops(ask);
}

/* Raw: [preamble] documents, then the question as it is. */
static enum status
fill_raw(struct ask *ask, char *question)
{
    const char *system = cli_value(ask->args, "system");
    size_t first = system != NULL;

    ask->segments = mem_zalloc(ask->docs.count + 1, sizeof(ask->segments[0]));
    if (ask->segments == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for %zu documents", ask->docs.count);
    }
    kvasir__v1__segment__init(&ask->preamble);
    ask->preamble.text = (char *)(uintptr_t)system;
    ask->segments[0] = &ask->preamble;
    for (size_t i = 0; i < ask->docs.count; i++) {
        MEM_FREE(ask->docs.segments[i]->title); /* rendered in chats only */
        ask->segments[first + i] = ask->docs.segments[i];
    }
    ask->request.segments = ask->segments;
    ask->request.n_segments = first + ask->docs.count;
    ask->request.query = question;
    ask->request.has_add_bos = true;
    ask->request.add_bos = true;
    return ST_OK;
}

static void
fill_chat(struct ask *ask, char *question)
{
    const char *system = cli_value(ask->args, "system");
    size_t count = 0;

    for (int i = 0; i < 2; i++) {
        kvasir__v1__message__init(&ask->messages[i]);
        ask->message_pointers[i] = &ask->messages[i];
    }
    if (system != NULL) {
        ask->messages[count].role = (char *)(uintptr_t) "system";
        ask->messages[count++].content = (char *)(uintptr_t)system;
    }
    ask->messages[count].role = (char *)(uintptr_t) "user";
    ask->messages[count++].content = question;
    ask->request.messages = ask->message_pointers;
    ask->request.n_messages = count;
    ask->request.documents = ask->docs.segments;
    ask->request.n_documents = ask->docs.count;
}

/* --reuse: the names of the wire's enum, in lower case and without its prefix. */
static enum status
fill_reuse(const struct cli_args *args, Kvasir__V1__GenerateRequest *request)
{
    static const char *const names[] = {"default", "lazy", "reencode", "prefix", "none"};
    const char *name = cli_value(args, "reuse");

    for (size_t i = 0; name != NULL && i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(name, names[i]) == 0) {
            request->has_reuse = true;
            request->reuse = (Kvasir__V1__ReuseMode)i;
        }
    }
    return name == NULL || request->has_reuse
               ? ST_OK
               : ERR(ST_INVALID, "--reuse %s: it must be lazy, reencode, prefix or none", name);
}

static enum status
fill_request(struct ask *ask)
{
    const struct cli_args *args = ask->args;
    Kvasir__V1__GenerateRequest *request = &ask->request;
    char *question = args->operands[0];
    const char *salt = cli_value(args, "salt");
    size_t length;

    kvasir__v1__generate_request__init(request);
    TRY(fill_sampling(ask));
    request->sampling = &ask->sampling;
    TRY(number_field(args, "priority", 0, 100, &request->priority, &request->has_priority));
    TRY(fill_reuse(args, request));
    request->has_ignore_end = cli_has(args, "ignore-end");
    request->ignore_end = request->has_ignore_end;
    request->has_salt = salt != NULL;
    request->salt.data = (uint8_t *)(uintptr_t)salt;
    request->salt.len = salt == NULL ? 0 : strlen(salt);
    TRY(ask_load_docs(args, &ask->docs));
    if (strcmp(question, "-") == 0) {
        const char *jsonl = cli_value(args, "jsonl");

        if (jsonl != NULL && strcmp(jsonl, "-") == 0) {
            return ERR(ST_INVALID, "the question and --jsonl cannot both come from stdin");
        }
        TRY(docs_read_text("-", &ask->question, &length));
        question = ask->question;
    }
    if (!wire_is_text(question, strlen(question))) {
        return ERR(ST_INVALID, "the question is not UTF-8 text");
    }
    if (cli_has(args, "raw")) {
        return fill_raw(ask, question);
    }
    fill_chat(ask, question);
    return ST_OK;
}

/* ---- replies --------------------------------------------------------------------------------- */

/* To a terminal go no control characters but newline and tab: a model must not drive it. */
static void
print_text(const struct ask *ask, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)text[i];
        bool is_safe = (byte >= 0x20 && byte != 0x7f) || byte == '\n' || byte == '\t';

        (void)putchar(ask->is_tty && !is_safe ? '?' : byte);
    }
    (void)fflush(stdout);
}

/* The array with room for `needed` elements, or NULL, and then it is as it was. */
static void *
grow(void *array, size_t *capacity, size_t needed, size_t size)
{
    if (array != NULL && needed <= *capacity) {
        return array;
    }
    void *grown = mem_realloc(array, 2 * needed, size);

    *capacity = grown == NULL ? *capacity : 2 * needed;
    return grown;
}

/* Keeps a piece of the answer for --json. */
static enum status
keep(struct ask *ask, const Kvasir__V1__GenerateReply *reply)
{
    size_t text_length = ask->text_length + reply->text.len;
    size_t token_count = ask->token_count + reply->n_token_ids;
    char *text = grow(ask->text, &ask->text_capacity, text_length, 1);

    ask->text = text == NULL ? ask->text : text;
    uint32_t *token_ids = grow(ask->token_ids, &ask->token_capacity, token_count, sizeof(uint32_t));

    ask->token_ids = token_ids == NULL ? ask->token_ids : token_ids;
    if (text == NULL || token_ids == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for an answer of %zu bytes", text_length);
    }
    if (reply->text.len > 0) {
        memcpy(ask->text + ask->text_length, reply->text.data, reply->text.len);
    }
    if (reply->n_token_ids > 0) {
        memcpy(ask->token_ids + ask->token_count, reply->token_ids,
               reply->n_token_ids * sizeof(uint32_t));
    }
    ask->text_length = text_length;
    ask->token_count = token_count;
    return ST_OK;
}

static bool
take_reply(void *opaque, const ProtobufCMessage *message)
{
    struct ask *ask = opaque;
    const Kvasir__V1__GenerateReply *reply = (const void *)message;

    if (ask->first_us == 0 && reply->n_token_ids > 0) {
        ask->first_us = clock_now_us();
    }
    if (ask->is_stream_json) {
        pbjson_print(stdout, CLI_SCHEMA, message);
        (void)fflush(stdout);
    } else if (ask->is_json) {
        ask->st = keep(ask, reply);
    } else {
        print_text(ask, (const char *)reply->text.data, reply->text.len);
    }
    if (ask->st == ST_OK && reply->usage != NULL) {
        ask->st = wire_pack(&ask->last_reply, message);
    }
    return ask->st == ST_OK && ferror(stdout) == 0;
}

static void
print_json(const struct ask *ask, const Kvasir__V1__GenerateReply *last)
{
    Kvasir__V1__GenerateReply whole = *last;

    whole.has_text = true;
    whole.text = (ProtobufCBinaryData){.data = (uint8_t *)ask->text, .len = ask->text_length};
    whole.token_ids = ask->token_ids;
    whole.n_token_ids = ask->token_count;
    pbjson_print(stdout, CLI_SCHEMA, &whole.base);
}

static void
print_usage(const Kvasir__V1__GenerateReply *last)
{
    const Kvasir__V1__Usage *u = last->usage;
    size_t hits = 0;

    for (size_t i = 0; i < u->n_documents; i++) {
        hits += u->documents[i]->miss_reason != NULL
                && strcmp(u->documents[i]->miss_reason, "hit") == 0;
    }
    (void)fprintf(
        stderr,
        "[first token %.0f ms, all %.0f ms; prompt %u tokens, answer %u; document tokens %u "
        "reused, %u built; %zu of %zu documents resident]\n",
        (double)u->ttft_us / 1000, (double)u->total_us / 1000, u->prompt_tokens,
        u->completion_tokens, u->tokens_reused, u->tokens_built, hits, u->n_documents);
}

/* One line a hop: what it took, and the time since the call began. */
static void
print_trace(const struct ask *ask, const Kvasir__V1__Trace *t)
{
    const struct {
        const char *what;
        uint64_t us;
    } points[] = {
        {"to the daemon", t->arrived},
        {"read: parsed, tokenised, keyed", t->read},
        {"scheduled, sent to the worker", t->assigned},
        {"heard by the worker", t->heard},
        {"step begun", t->begun},
        {"step ended", t->ended},
        {"back at the daemon", t->returned},
        {"sent to the client", t->sent},
        {"received", ask->first_us},
    };
    uint64_t before_us = ask->begin_us;

    for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
        (void)fprintf(stderr, "[%8.3f ms  +%8.3f ms  %s]\n",
                      (double)(points[i].us - ask->begin_us) / 1e3,
                      (double)(int64_t)(points[i].us - before_us) / 1e3, points[i].what);
        before_us = points[i].us;
    }
}

static int
finish(struct ask *ask)
{
    const struct cli_args *args = ask->args;
    struct wire_arena *arena = NULL;
    const ProtobufCMessage *message;
    bool wants_usage =
        cli_has(args, "usage") || (!ask->is_json && !ask->is_stream_json && isatty(STDERR_FILENO));

    if (ask->st != ST_OK) {
        return cli_fail(args, ask->st);
    }
    if (!ask->is_json && !ask->is_stream_json) {
        (void)putchar('\n');
        (void)fflush(stdout);
    }
    enum status st = wire_arena_new(&arena);

    st = st != ST_OK
             ? st
             : wire_unpack(arena, &kvasir__v1__generate_reply__descriptor, ask->last_reply.bytes,
                           ask->last_reply.length, WIRE_CLIENT_BYTES_MAX, &message);
    if (st == ST_OK) {
        const Kvasir__V1__GenerateReply *last = (const void *)message;

        if (ask->is_json) {
            print_json(ask, last);
        }
        if (wants_usage && !cli_has(args, "quiet") && last->usage != NULL) {
            print_usage(last);
        }
        if (cli_has(args, "trace") && last->usage != NULL && last->usage->trace != NULL) {
            print_trace(ask, last->usage->trace);
        }
    }
    wire_arena_destroy(&arena);
    return st == ST_OK ? CLI_OK : cli_fail(args, st);
}

/* ---- the call -------------------------------------------------------------------------------- */

static struct rpc *interrupted_rpc;

static void
on_interrupt(int signo)
{
    (void)signo;
    rpc_cancel(interrupted_rpc);
}

static void
catch_interrupt(struct rpc *rpc)
{
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = SA_RESETHAND};

    interrupted_rpc = rpc;
    (void)sigaction(SIGINT, &action, NULL);
}

/* Without a worker a request waits and says nothing; who sits before a terminal wonders. */
static void
tell_what_it_waits_for(const struct ask *ask, struct rpc *rpc)
{
    struct rpc_call call = {.method = METHOD_HEALTH, .timeout_ms = HEALTH_TIMEOUT_MS};
    const ProtobufCMessage *reply;

    if (isatty(STDERR_FILENO) != 1 || cli_has(ask->args, "quiet")
        || rpc_call(rpc, &call, &reply) != RPC_OK) {
        return;
    }
    const Kvasir__V1__HealthReply *health = (const void *)reply;

    if (health->status != KVASIR__V1__SERVING_STATUS__SERVING) {
        (void)fprintf(stderr, "[waiting: %s]\n", health->detail == NULL ? "?" : health->detail);
    }
}

static int
call(struct ask *ask, struct rpc *rpc)
{
    struct rpc_call call = {.method = METHOD_GENERATE,
                            .request = &ask->request.base,
                            .on_reply = take_reply,
                            .opaque = ask};

    if (cli_duration_ms(ask->args, "timeout", &call.timeout_ms) != ST_OK) {
        (void)cli_fail(ask->args, ST_INVALID);
        return CLI_USAGE;
    }
    catch_interrupt(rpc);
    tell_what_it_waits_for(ask, rpc);
    ask->begin_us = clock_now_us();
    enum rpc_code code = rpc_call(rpc, &call, NULL);

    (void)signal(SIGINT, SIG_DFL);
    if (code == RPC_OK) {
        return finish(ask);
    }
    if (ask->text_length > 0 || !ask->is_json) {
        (void)fflush(stdout);
    }
    if (code == RPC_CANCELLED) {
        (void)fprintf(stderr, "\n%s: cancelled\n", ask->args->cli->program);
        return ask->st != ST_OK ? cli_fail(ask->args, ask->st) : CLI_INTERRUPTED;
    }
    return cli_fail_call(ask->args, rpc, code);
}

int
ask_run(const struct cli_args *args)
{
    struct ask ask = {.args = args};
    struct rpc *rpc = NULL;
    int code = CLI_USAGE;
    enum status st;

    ask.is_json = cli_has(args, "json");
    ask.is_stream_json = cli_has(args, "stream-json");
    ask.is_tty = isatty(STDOUT_FILENO) == 1;
    st = fill_request(&ask);
    if (st == ST_OK) {
        st = cli_connect(args, ENDPOINT_CLIENT, &rpc);
        code = st == ST_OK ? call(&ask, rpc) : cli_fail(args, st);
    } else {
        (void)cli_fail(args, st);
    }
    rpc_close(&rpc);
    docs_deinit(&ask.docs);
    wire_buffer_deinit(&ask.last_reply);
    mem_free(ask.segments);
    mem_free(ask.question);
    mem_free(ask.text);
    mem_free(ask.token_ids);
    return code;
}
