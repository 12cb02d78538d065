/* SPDX-License-Identifier: Apache-2.0 */
/* kvasir - ask questions over documents, and prepare documents; see kvasir.1. */
#include <stdio.h>
#include <string.h>

#include "client/ask.h"
#include "client/docs_forget.h"
#include "client/pbjson.h"
#include "common/mem.h"
#include "kvasir/v1/documents.pb-c.h"
#include "kvasir/v1/health.pb-c.h"
#include "proto/endpoints.h"

/* Connects to client.sock; on failure says why and returns NULL, the exit code in *code_out. */
static struct rpc *
connect_or_say(const struct cli_args *args, int *code_out)
{
    struct rpc *rpc = NULL;
    enum status st = cli_connect(args, ENDPOINT_CLIENT, &rpc);

    *code_out = st == ST_OK ? CLI_OK : cli_fail(args, st);
    return rpc;
}

static int
bad_input(const struct cli_args *args)
{
    (void)cli_fail(args, ST_INVALID);
    return CLI_USAGE;
}

static int
tokenize(const struct cli_args *args, struct rpc *rpc, char *text)
{
    Kvasir__V1__TokenizeRequest request = KVASIR__V1__TOKENIZE_REQUEST__INIT;
    const ProtobufCMessage *reply;

    request.text = text;
    request.has_parse_special = true;
    request.parse_special = cli_has(args, "parse-special");
    int code = cli_call(
        args, rpc, (struct rpc_call){.method = METHOD_TOKENIZE, .request = &request.base}, &reply);

    if (code == CLI_OK && cli_has(args, "json")) {
        pbjson_print(stdout, CLI_SCHEMA, reply);
    } else if (code == CLI_OK) {
        const Kvasir__V1__TokenizeReply *tokens = (const void *)reply;

        for (size_t i = 0; i < tokens->n_token_ids; i++) {
            printf("%s%u", i == 0 ? "" : " ", tokens->token_ids[i]);
        }
        printf("\n");
    }
    return code;
}

static int
run_tokenize(const struct cli_args *args)
{
    char *text = NULL;
    size_t length;
    int code;

    if (strcmp(args->operands[0], "-") == 0 && docs_read_text("-", &text, &length) != ST_OK) {
        return bad_input(args);
    }
    struct rpc *rpc = connect_or_say(args, &code);

    if (rpc != NULL) {
        code = tokenize(args, rpc, text == NULL ? args->operands[0] : text);
    }
    rpc_close(&rpc);
    mem_free(text);
    return code;
}

static int
register_one(const struct cli_args *args, struct rpc *rpc, Kvasir__V1__Segment *document)
{
    Kvasir__V1__RegisterRequest request = KVASIR__V1__REGISTER_REQUEST__INIT;
    const char *salt = cli_value(args, "salt");
    const ProtobufCMessage *message;

    request.document = document;
    request.has_is_chat = true;
    request.is_chat = !cli_has(args, "raw");
    request.has_salt = salt != NULL;
    request.salt.data = (uint8_t *)(uintptr_t)salt;
    request.salt.len = salt == NULL ? 0 : strlen(salt);
    if (cli_has(args, "raw")) {
        MEM_FREE(document->title); /* rendered in chats only */
    }
    int code =
        cli_call(args, rpc, (struct rpc_call){.method = METHOD_REGISTER, .request = &request.base},
                 &message);

    if (code != CLI_OK) {
        (void)fprintf(stderr, "%s: while registering %s\n", args->cli->program, document->id);
        return code;
    }
    const Kvasir__V1__RegisterReply *reply = (const void *)message;
    char key[PBJSON_CELL_BYTES];

    if (cli_has(args, "json")) {
        pbjson_print(stdout, CLI_SCHEMA, message);
    } else {
        pbjson_cell(message,
                    protobuf_c_message_descriptor_get_field_by_name(message->descriptor, "key"),
                    key);
        printf("%s %u %s\n", key, reply->tokens, document->id);
    }
    return CLI_OK;
}

static int
run_register(const struct cli_args *args)
{
    struct docs docs = {.count = 0};
    const char *suffixes = cli_value(args, "suffixes");
    enum status st = ask_load_docs(args, &docs);
    int code = CLI_USAGE;

    for (size_t i = 0; st == ST_OK && i < args->operand_count; i++) {
        st = docs_add_path(&docs, args->operands[i], suffixes == NULL ? ".txt,.md" : suffixes);
    }
    if (st == ST_OK && docs.count == 0) {
        st = ERR(ST_INVALID, "register: no document given");
    }
    if (st == ST_OK) {
        struct rpc *rpc = connect_or_say(args, &code);

        for (size_t i = 0; code == CLI_OK && i < docs.count; i++) {
            code = register_one(args, rpc, docs.segments[i]);
        }
        rpc_close(&rpc);
    } else {
        (void)cli_fail(args, st);
    }
    docs_deinit(&docs);
    return code;
}

typedef int (*key_fn)(const struct cli_args *args, struct rpc *rpc, const uint8_t key[32]);

/* One call a key; stops at the first failure. */
static int
for_each_key(const struct cli_args *args, key_fn act)
{
    uint8_t key[32];
    int code;

    for (size_t i = 0; i < args->operand_count; i++) {
        if (cli_parse_key(args->operands[i], key) != ST_OK) {
            return bad_input(args);
        }
    }
    struct rpc *rpc = connect_or_say(args, &code);

    for (size_t i = 0; code == CLI_OK && i < args->operand_count; i++) {
        (void)cli_parse_key(args->operands[i], key);
        code = act(args, rpc, key);
    }
    rpc_close(&rpc);
    return code;
}

static int
warm(const struct cli_args *args, struct rpc *rpc, const uint8_t key[32])
{
    Kvasir__V1__DocumentRef ref = KVASIR__V1__DOCUMENT_REF__INIT;

    ref.has_key = true;
    ref.key = (ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t)key, .len = 32};
    return cli_call(args, rpc, (struct rpc_call){.method = METHOD_WARM, .request = &ref.base},
                    NULL);
}

static int
run_warm(const struct cli_args *args)
{
    return for_each_key(args, warm);
}

static int
run_forget(const struct cli_args *args)
{
    return for_each_key(args, docs_forget);
}

/* Ours always; the daemon's too if it can be reached. */
static int
run_version(const struct cli_args *args)
{
    struct rpc *rpc = NULL;
    const ProtobufCMessage *reply;
    bool is_reached =
        cli_connect(args, ENDPOINT_CLIENT, &rpc) == ST_OK
        && rpc_call(rpc, &(struct rpc_call){.method = METHOD_HEALTH, .timeout_ms = 5000}, &reply)
               == RPC_OK;
    const Kvasir__V1__HealthReply *health = is_reached ? (const void *)reply : NULL;
    const char *daemon = health == NULL ? NULL : health->version;

    if (cli_has(args, "json")) {
        printf("{" CLI_SCHEMA ",\"version\":\"%s\"", PACKAGE_VERSION);
        if (daemon != NULL) {
            printf(",\"daemon_version\":");
            pbjson_print_string(stdout, daemon, strlen(daemon));
        }
        printf("}\n");
    } else {
        printf("kvasir %s, protocol %d\nkvasird %s\n", PACKAGE_VERSION, WIRE_VERSION,
               daemon == NULL ? "not reachable" : daemon);
    }
    rpc_close(&rpc);
    return CLI_OK;
}

static const struct cli_option options[] = {
    {"docs", 'd', "PATH", "a document, or a folder of them; may be repeated"},
    {"jsonl", 'l', "FILE", "documents as JSON lines with text, id, title; - is stdin"},
    {"suffixes", 0, "LIST", "which files of a folder to take (.txt,.md)"},
    {"system", 's', "TEXT", "what comes before everything: how to answer"},
    {"raw", 0, NULL, "no chat template: documents and question as they are"},
    {"max-tokens", 'n', "N", "end the answer after N tokens (256)"},
    {"temperature", 't', "T", "0 is greedy (0)"},
    {"top-k", 0, "N", "sample among the N likeliest tokens only"},
    {"top-p", 0, "P", "sample among the likeliest tokens of this mass only"},
    {"min-p", 0, "P", "drop tokens less likely than P times the likeliest"},
    {"repetition-penalty", 0, "X", "divide the logits of tokens already there"},
    {"seed", 0, "N", "make sampling repeatable"},
    {"stop", 0, "TEXT", "end before this text; may be repeated, up to 16"},
    {"logprobs", 0, "N", "tell log-probabilities and N alternatives; needs --stream-json"},
    {"priority", 0, "N", "0 lowest to 100 (50)"},
    {"reuse", 0, "MODE", "lazy, reencode, prefix or none (the daemon's --reuse)"},
    {"ignore-end", 0, NULL, "generate --max-tokens tokens whatever comes"},
    {"salt", 0, "TEXT", "keep cached documents apart from those of other salts"},
    {"parse-special", 0, NULL, "take special tokens in the text as such"},
    {"json", 'j', NULL, "print one JSON object at the end"},
    {"stream-json", 0, NULL, "print a JSON object a line as the answer comes"},
    {"usage", 'u', NULL, "print one line about time and reuse to stderr; on a terminal anyway"},
    {"trace", 0, NULL, "print when the first token passed each point on its way, to stderr"},
    {"abort", 0, NULL, "end requests that read the document, do not wait for them"},
    {"quiet", 'q', NULL, "not that line, also not on a terminal"},
    {"runtime-dir", 'r', "DIR", "where kvasird's sockets are"},
    {"endpoint", 'e', "URL", "ZeroMQ endpoint of kvasird"},
    {"server-key", 0, "KEY", "over a network: kvasird's public key, or its file"},
    {"secret-key", 0, "FILE", "over a network: your secret key"},
    {"timeout", 0, "TIME", "give up after, e.g. 500ms, 30s, 2min"},
    {"help", 'h', NULL, "print this"},
    {"version", 'V', NULL, "print the version"},
};

static const struct cli_command commands[] = {
    {"ask", "QUESTION", 1, 1, "docs jsonl suffixes salt json " ASK_OPTIONS,
     "answer a question over documents; - reads it from stdin", ask_run},
    {"tokenize", "TEXT", 1, 1, "json parse-special", "print the token ids of a text; - is stdin",
     run_tokenize},
    {"register", "[PATH...]", 0, SIZE_MAX, "docs jsonl suffixes salt raw json",
     "make documents known; prints key, tokens and name of each", run_register},
    {"warm", "KEY...", 1, SIZE_MAX, "", "build registered documents before anyone asks", run_warm},
    {"forget", "KEY...", 1, SIZE_MAX, DOCS_FORGET_OPTIONS,
     "drop documents and their registration, and overwrite all copies", run_forget},
    {"version", "", 0, 0, "json", "versions of this program and of kvasird", run_version},
};

static const struct cli cli = {
    .program = "kvasir",
    .summary = "Asks questions over documents; kvasird keeps what was read.",
    .common = "runtime-dir endpoint server-key secret-key timeout help version",
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
    .commands = commands,
    .command_count = sizeof(commands) / sizeof(commands[0]),
};

int
main(int argc, char **argv)
{
    return cli_main(&cli, argc, argv);
}
