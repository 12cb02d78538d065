/* SPDX-License-Identifier: Apache-2.0 */
/* cli - what kvasir and kvasirctl share: a table of commands and options, and exit codes.
 *
 * One table drives parsing, --help, `completion bash|zsh` and the manual's synopsis (`completion
 * mdoc`).  Options may stand anywhere;
 * each command names those it takes. */
#ifndef CLIENT_CLI_H
#define CLIENT_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/rpc.h"
#include "common/status.h"

/* Exit codes; in the man pages. */
enum cli_exit {
    CLI_OK = 0,
    CLI_FAILURE = 1,
    CLI_USAGE = 2,
    CLI_UNREACHABLE = 3, /* no kvasird, or UNAVAILABLE */
    CLI_NOT_FOUND = 4,
    CLI_TIMEOUT = 5,
    CLI_INTERRUPTED = 130, /* as a shell says of SIGINT */
};

#define CLI_SCHEMA      "\"schema\":1" /* first member of every --json object */
#define CLI_OPTIONS_MAX 48
#define CLI_GIVEN_MAX   1024
#define CLI_NAME_MAX    32

struct cli_option {
    const char *name;       /* without dashes */
    char letter;            /* 0: none */
    const char *value_name; /* NULL: a switch */
    const char *help;
};

struct cli_args;
typedef int (*cli_run_fn)(const struct cli_args *args);

struct cli_command {
    const char *name;     /* "docs pin"; the longest match of the operands counts */
    const char *operands; /* "KEY...", or "" */
    size_t operands_min;
    size_t operands_max;
    /* Names, space-separated, of the options it takes beside the common ones.  NULL: all that
     * follows its name, which is then the first word of the line, is another program's. */
    const char *options;
    const char *help;
    cli_run_fn run;
};

struct cli {
    const char *program;
    const char *summary;
    const char *common; /* names of the options that all commands take */
    const struct cli_option *options;
    size_t option_count;
    const struct cli_command *commands;
    size_t command_count;
};

struct cli_args {
    const struct cli *cli;
    const struct cli_command *command;
    struct {
        const struct cli_option *option;
        const char *value;  /* "" for a switch */
    } given[CLI_GIVEN_MAX]; /* in order */
    size_t given_count;
    char **operands; /* without the command's own words */
    size_t operand_count;
};

/* main(): parses, answers --help, --version and completion, runs the command; returns the exit
 * code. */
int cli_main(const struct cli *cli, int argc, char **argv);

/* Whether an option was given, and its last value (NULL: not given). */
bool cli_has(const struct cli_args *args, const char *name);
const char *cli_value(const struct cli_args *args, const char *name);

/* Numbers and durations ("250ms", "5s", "2min", plain: seconds); *out is left alone when not given.
 * ST_INVALID names option, text and range. */
enum status cli_u64(const struct cli_args *args, const char *name, uint64_t min, uint64_t max,
                    uint64_t *out);
enum status cli_float(const struct cli_args *args, const char *name, double min, double max,
                      float *out);
enum status cli_duration_ms(const struct cli_args *args, const char *name, uint32_t *out);

/* Parses a decimal number / 64 hex digits of a document key. */
enum status cli_parse_u64(const char *what, const char *text, uint64_t min, uint64_t max,
                          uint64_t *out);
enum status cli_parse_key(const char *text, uint8_t key_out[32]);

/* A connection to --endpoint, or to `socket` of the runtime directory. */
enum status cli_connect(const struct cli_args *args, const char *socket, struct rpc **rpc_out);

/* Makes a call with --timeout; on failure says why.  The exit code. */
int cli_call(const struct cli_args *args, struct rpc *rpc, struct rpc_call call,
             const ProtobufCMessage **reply_out);

/* Prints "program: detail" to stderr and returns the exit code of the kind, or of the rpc code. */
int cli_fail(const struct cli_args *args, enum status kind);
int cli_fail_call(const struct cli_args *args, const struct rpc *rpc, enum rpc_code code);

#endif
