/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/endpoints.h"

#define DURATION_MS_MAX (24u * 3600u * 1000u)

/* ---- looking things up ----------------------------------------------------------------------- */

/* True if `word` is one of the space-separated `words`. */
static bool
has_word(const char *words, const char *word)
{
    size_t length = strlen(word);

    for (const char *at = words; (at = strstr(at, word)) != NULL; at += length) {
        if ((at == words || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0')) {
            return true;
        }
    }
    return false;
}

static bool
takes_option(const struct cli *cli, const struct cli_command *command, const char *name)
{
    if (command != NULL && command->options == NULL) {
        return false;
    }
    return has_word(cli->common, name) || (command != NULL && has_word(command->options, name));
}

/* How many of the first operands are the command's words; 0 if it is another. */
static size_t
match_command(const struct cli_command *command, char **operands, size_t count)
{
    const char *name = command->name;
    size_t words = 0;

    while (*name != '\0') {
        size_t length = strcspn(name, " ");

        if (words == count || strlen(operands[words]) != length
            || strncmp(operands[words], name, length) != 0) {
            return 0;
        }
        words++;
        name += length + (name[length] == ' ');
    }
    return words;
}

static const struct cli_command *
find_command(const struct cli *cli, char **operands, size_t count, size_t *words_out)
{
    const struct cli_command *best = NULL;
    size_t best_words = 0;

    for (size_t i = 0; i < cli->command_count; i++) {
        size_t words = match_command(&cli->commands[i], operands, count);

        if (words > best_words) {
            best = &cli->commands[i];
            best_words = words;
        }
    }
    *words_out = best_words;
    return best;
}

/* ---- help ------------------------------------------------------------------------------------ */

static void
print_options(const struct cli *cli, const struct cli_command *command)
{
    for (size_t i = 0; i < cli->option_count; i++) {
        const struct cli_option *option = &cli->options[i];
        char left[64];
        const char *value = option->value_name;

        if (command != NULL && !takes_option(cli, command, option->name)) {
            continue;
        }
        (void)snprintf(left, sizeof(left), "%c%c%s--%s%s%s", option->letter == 0 ? ' ' : '-',
                       option->letter == 0 ? ' ' : option->letter,
                       option->letter == 0 ? "  " : ", ", option->name, value == NULL ? "" : " ",
                       value == NULL ? "" : value);
        printf("  %-30s %s\n", left, option->help);
    }
}

static void
print_help(const struct cli *cli, const struct cli_command *command)
{
    if (command != NULL) {
        printf("Usage: %s %s [OPTION...] %s\n%s\n\nOptions:\n", cli->program, command->name,
               command->operands, command->help);
    } else {
        printf("Usage: %s COMMAND [OPTION...] [OPERAND...]\n%s\n\nCommands:\n", cli->program,
               cli->summary);
        for (size_t i = 0; i < cli->command_count; i++) {
            char left[64];

            (void)snprintf(left, sizeof(left), "%s %s", cli->commands[i].name,
                           cli->commands[i].operands);
            printf("  %-30s %s\n", left, cli->commands[i].help);
        }
        printf("  %-30s %s\n", "completion [bash|zsh]", "print a completion script for a shell");
        printf("\nOptions:\n");
    }
    print_options(cli, command);
}

/* ---- completion ------------------------------------------------------------------------------ */

static const struct cli_option *
option_of_word(const struct cli *cli, const char *word)
{
    for (size_t i = 0; i < cli->option_count; i++) {
        const struct cli_option *option = &cli->options[i];

        if ((strncmp(word, "--", 2) == 0 && strcmp(word + 2, option->name) == 0)
            || (option->letter != 0 && word[0] == '-' && word[1] == option->letter
                && word[2] == '\0')) {
            return option;
        }
    }
    return NULL;
}

/* Prints the next word of each command that begins with these words, once: its commands stand
 * together in the table. */
static void
print_next_words(const struct cli *cli, char **words, size_t count, const char *begun)
{
    char last[CLI_NAME_MAX] = "";

    for (size_t i = 0; i < cli->command_count; i++) {
        const char *name = cli->commands[i].name;
        size_t at = 0;

        while (at < count && strncmp(name, words[at], strcspn(name, " ")) == 0
               && words[at][strcspn(name, " ")] == '\0' && strchr(name, ' ') != NULL) {
            name = strchr(name, ' ') + 1;
            at++;
        }
        size_t length = strcspn(name, " ");
        if (at == count && strncmp(name, begun, strlen(begun)) == 0 && length < sizeof(last)
            && (strncmp(last, name, length) != 0 || last[length] != '\0')) {
            (void)snprintf(last, sizeof(last), "%.*s", (int)length, name);
            printf("%s\n", last);
        }
    }
}

/* What could stand in place of the last word, one a line; nothing where a file or a value belongs.
 */
static void
print_candidates(const struct cli *cli, char **words, size_t count)
{
    const char *begun = count == 0 ? "" : words[--count];
    size_t operands = 0, name_words;
    bool is_value = false;

    for (size_t i = 0; i < count; i++) {
        const struct cli_option *option = is_value ? NULL : option_of_word(cli, words[i]);

        if (!is_value && option == NULL && words[i][0] != '-') {
            words[operands++] = words[i];
        }
        is_value = option != NULL && option->value_name != NULL;
    }
    if (is_value) {
        return;
    }
    if (begun[0] != '-') {
        print_next_words(cli, words, operands, begun);
        return;
    }
    const struct cli_command *command = find_command(cli, words, operands, &name_words);
    for (size_t i = 0; i < cli->option_count; i++) {
        const char *name = cli->options[i].name;

        if (takes_option(cli, command, name)
            && strncmp(name, begun + 1 + (begun[1] == '-'), strlen(begun + 1 + (begun[1] == '-')))
                   == 0) {
            printf("--%s\n", name);
        }
    }
}

/* ---- the manual's synopsis ------------------------------------------------------------------- */

/* "[ARGUMENT...]" and "WORKER|all" as mdoc has them, a line each. */
static void
print_operands(const char *operands)
{
    while (*operands != '\0') {
        size_t length = strcspn(operands, " ");
        bool is_optional = operands[0] == '[';
        size_t shown = strcspn(operands + is_optional, "].| ");
        const char *other = memchr(operands, '|', length);

        printf(".%sAr %.*s%s", is_optional ? "Op " : "", (int)shown, operands + is_optional,
               strstr(operands, "...") == NULL ? "" : " ...");
        if (other != NULL) {
            printf(" | Cm %.*s", (int)(operands + length - other - 1), other + 1);
        }
        printf("\n");
        operands += length + (operands[length] == ' ');
    }
}

static void
print_synopsis(const struct cli *cli)
{
    for (size_t i = 0; i < cli->command_count; i++) {
        const struct cli_command *command = &cli->commands[i];

        printf(".Nm\n.Cm %s\n", command->name);
        for (size_t o = 0; o < cli->option_count && command->options != NULL; o++) {
            const struct cli_option *option = &cli->options[o];

            if (has_word(command->options, option->name)) {
                printf(".Op Fl -%s%s%s\n", option->name, option->value_name == NULL ? "" : " Ar ",
                       option->value_name == NULL ? "" : option->value_name);
            }
        }
        print_operands(command->operands);
    }
    printf(".Nm\n.Cm completion\n.Op Cm bash | zsh\n.Nm\n.Fl -help | -version\n");
}

/* The shell's part is small: it asks this program. */
static int
complete(const struct cli *cli, char **operands, size_t count)
{
    const char *what = count == 0 ? "bash" : operands[0];
    const char *name = cli->program;

    if (strcmp(what, "words") == 0) {
        print_candidates(cli, operands + 1, count - 1);
    } else if (strcmp(what, "bash") == 0) {
        printf("# bash completion of %s; made by `%s completion bash`\n_%s() {\n"
               "    mapfile -t COMPREPLY < <(%s completion words -- "
               "\"${COMP_WORDS[@]:1:COMP_CWORD}\" 2>/dev/null)\n}\n"
               "complete -o bashdefault -o default -F _%s %s\n",
               name, name, name, name, name, name);
    } else if (strcmp(what, "zsh") == 0) {
        printf("#compdef %s\n# zsh completion of %s; made by `%s completion zsh`\n"
               "local -a found\nfound=(${(f)\"$(%s completion words -- "
               "\"${(@)words[2,CURRENT]}\" 2>/dev/null)\"})\n"
               "if (( $#found )); then compadd -a found; else _files; fi\n",
               name, name, name, name);
    } else if (strcmp(what, "mdoc") == 0) {
        print_synopsis(cli);
    } else {
        (void)fprintf(stderr, "%s: completion %s: there is bash, zsh and mdoc\n", name, what);
        return CLI_USAGE;
    }
    return CLI_OK;
}

/* ---- parsing --------------------------------------------------------------------------------- */

static int
usage_error(const struct cli *cli, const char *text)
{
    (void)fprintf(stderr, "%s: %s\nTry '%s --help'.\n", cli->program, text, cli->program);
    return CLI_USAGE;
}

struct parser {
    struct option longs[CLI_OPTIONS_MAX + 1];
    char shorts[3 * CLI_OPTIONS_MAX + 2];
};

/* Fills a zeroed parser. */
static void
make_parser(const struct cli *cli, struct parser *parser)
{
    char *at = parser->shorts;

    assert(cli->option_count <= CLI_OPTIONS_MAX);
    *at++ = ':'; /* tell a missing value from an unknown option, and print nothing */
    for (size_t i = 0; i < cli->option_count; i++) {
        const struct cli_option *option = &cli->options[i];
        bool has_value = option->value_name != NULL;

        parser->longs[i] = (struct option){option->name, has_value, NULL, 256 + (int)i};
        if (option->letter != 0) {
            *at++ = option->letter;
            if (has_value) {
                *at++ = ':';
            }
        }
    }
}

static const struct cli_option *
option_of(const struct cli *cli, int code)
{
    if (code >= 256) {
        return &cli->options[code - 256];
    }
    for (size_t i = 0; i < cli->option_count; i++) {
        if (cli->options[i].letter == code) {
            return &cli->options[i];
        }
    }
    return NULL;
}

/* Fills args->given and the operands, the command's words still among them. */
static enum status
parse_options(const struct cli *cli, int argc, char **argv, struct cli_args *args)
{
    struct parser parser = {0};
    int code;

    make_parser(cli, &parser);
    optind = 1;
    while ((code = getopt_long(argc, argv, parser.shorts, parser.longs, NULL)) != -1) {
        if (code == '?' || code == ':') {
            return ERR(ST_INVALID, code == ':' ? "%s: value missing" : "%s: no such option",
                       argv[optind - 1]);
        }
        if (args->given_count == CLI_GIVEN_MAX) {
            return ERR(ST_INVALID, "more than %d options", CLI_GIVEN_MAX);
        }
        args->given[args->given_count].option = option_of(cli, code);
        args->given[args->given_count++].value = optarg == NULL ? "" : optarg;
    }
    args->operands = argv + optind;
    args->operand_count = (size_t)(argc - optind);
    return ST_OK;
}

static enum status
check_command(const struct cli *cli, const struct cli_args *args)
{
    const struct cli_command *command = args->command;

    for (size_t i = 0; i < args->given_count; i++) {
        if (!takes_option(cli, command, args->given[i].option->name)) {
            return ERR(ST_INVALID, "--%s: not an option of '%s'", args->given[i].option->name,
                       command->name);
        }
    }
    if (args->operand_count < command->operands_min) {
        return ERR(ST_INVALID, "'%s' needs %s", command->name, command->operands);
    }
    if (args->operand_count > command->operands_max) {
        return ERR(ST_INVALID, "'%s' takes at most %zu operands: '%s' is one too many",
                   command->name, command->operands_max, args->operands[command->operands_max]);
    }
    return ST_OK;
}

static int
run(const struct cli *cli, struct cli_args *args)
{
    char text[128];
    size_t words;

    args->command = find_command(cli, args->operands, args->operand_count, &words);
    if (cli_has(args, "help")) {
        print_help(cli, args->command);
        return CLI_OK;
    }
    if (cli_has(args, "version")) {
        printf("%s %s\n", cli->program, PACKAGE_VERSION);
        return CLI_OK;
    }
    if (args->operand_count > 0 && strcmp(args->operands[0], "completion") == 0) {
        return complete(cli, args->operands + 1, args->operand_count - 1);
    }
    if (args->command == NULL) {
        (void)snprintf(text, sizeof(text), "%s: no such command",
                       args->operand_count == 0 ? "nothing" : args->operands[0]);
        return usage_error(cli, args->operand_count == 0 ? "no command given" : text);
    }
    args->operands += words;
    args->operand_count -= words;
    if (check_command(cli, args) != ST_OK) {
        return usage_error(cli, status_detail());
    }
    return args->command->run(args);
}

/* The command whose arguments are not ours to read, if the line begins with one. */
static const struct cli_command *
find_foreign(const struct cli *cli, int argc, char **argv)
{
    size_t words;
    const struct cli_command *command = argc < 2 ? NULL : find_command(cli, argv + 1, 1, &words);

    return command != NULL && command->options == NULL ? command : NULL;
}

int
cli_main(const struct cli *cli, int argc, char **argv)
{
    struct cli_args args = {.cli = cli, .command = find_foreign(cli, argc, argv)};

    if (args.command != NULL) {
        args.operands = argv + 2;
        args.operand_count = (size_t)argc - 2;
        return args.command->run(&args);
    }
    if (parse_options(cli, argc, argv, &args) != ST_OK) {
        return usage_error(cli, status_detail());
    }
    int code = run(cli, &args);

    if (fflush(stdout) != 0 || ferror(stdout) != 0) {
        (void)fprintf(stderr, "%s: writing to stdout: %s\n", cli->program, strerror(errno));
        return code == CLI_OK ? CLI_FAILURE : code;
    }
    return code;
}

/* ---- values ---------------------------------------------------------------------------------- */

const char *
cli_value(const struct cli_args *args, const char *name)
{
    for (size_t i = args->given_count; i > 0; i--) {
        if (strcmp(args->given[i - 1].option->name, name) == 0) {
            return args->given[i - 1].value;
        }
    }
    return NULL;
}

bool
cli_has(const struct cli_args *args, const char *name)
{
    return cli_value(args, name) != NULL;
}

enum status
cli_parse_u64(const char *what, const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
    char *end;

    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);

    if (!isdigit((unsigned char)text[0]) || *end != '\0') {
        return ERR(ST_INVALID, "%s '%s': not a whole number", what, text);
    }
    if (errno != 0 || value < min || value > max) {
        return ERR(ST_INVALID, "%s %s: must be %llu to %llu", what, text, (unsigned long long)min,
                   (unsigned long long)max);
    }
    *out = value;
    return ST_OK;
}

enum status
cli_u64(const struct cli_args *args, const char *name, uint64_t min, uint64_t max, uint64_t *out)
{
    const char *text = cli_value(args, name);
    char what[CLI_NAME_MAX + 2];

    (void)snprintf(what, sizeof(what), "--%s", name);
    return text == NULL ? ST_OK : cli_parse_u64(what, text, min, max, out);
}

enum status
cli_float(const struct cli_args *args, const char *name, double min, double max, float *out)
{
    const char *text = cli_value(args, name);
    char *end;

    if (text == NULL) {
        return ST_OK;
    }
    double value = strtod(text, &end);

    if (end == text || *end != '\0' || !isfinite(value) || value < min || value > max) {
        return ERR(ST_INVALID, "--%s '%s': must be a number from %g to %g", name, text, min, max);
    }
    *out = (float)value;
    return ST_OK;
}

enum status
cli_duration_ms(const struct cli_args *args, const char *name, uint32_t *out)
{
    static const struct {
        const char *unit;
        double ms;
    } units[] = {{"ms", 1}, {"s", 1000}, {"", 1000}, {"min", 60000}, {"h", 3600000}};
    const char *text = cli_value(args, name);
    char *end;

    if (text == NULL) {
        return ST_OK;
    }
    double value = strtod(text, &end);

    for (size_t i = 0; end != text && i < sizeof(units) / sizeof(units[0]); i++) {
        if (strcmp(end, units[i].unit) == 0) {
            value *= units[i].ms;
            if (!(value >= 1 && value <= DURATION_MS_MAX)) {
                break;
            }
            *out = (uint32_t)value;
            return ST_OK;
        }
    }
    return ERR(ST_INVALID, "--%s '%s': must be a time like 250ms, 5s or 2min, at most 24h", name,
               text);
}

enum status
cli_parse_key(const char *text, uint8_t key_out[32])
{
    uint8_t key[32];
    size_t length = strlen(text);

    if (length != 64 || strspn(text, "0123456789abcdefABCDEF") != 64) {
        return ERR(ST_INVALID, "document key '%.80s': must be 64 hex digits", text);
    }
    for (size_t i = 0; i < 32; i++) {
        char pair[3] = {text[2 * i], text[2 * i + 1], '\0'};

        key[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    memcpy(key_out, key, sizeof(key));
    return ST_OK;
}

/* ---- calls ----------------------------------------------------------------------------------- */

int
cli_fail(const struct cli_args *args, enum status kind)
{
    (void)fprintf(stderr, "%s: %s\n", args->cli->program, status_detail());
    switch (kind) {
    case ST_UNAVAILABLE: return CLI_UNREACHABLE;
    case ST_NOT_FOUND: return CLI_NOT_FOUND;
    case ST_TIMEOUT: return CLI_TIMEOUT;
    default: return CLI_FAILURE;
    }
}

int
cli_fail_call(const struct cli_args *args, const struct rpc *rpc, enum rpc_code code)
{
    uint32_t retry_ms = rpc_retry_after_ms(rpc);

    (void)fprintf(stderr, "%s: %s: %s\n", args->cli->program, rpc_code_name(code),
                  rpc_message(rpc));
    if (retry_ms != 0) {
        (void)fprintf(stderr, "%s: may be tried again after %u ms\n", args->cli->program, retry_ms);
    }
    switch (code) {
    case RPC_UNAVAILABLE: return CLI_UNREACHABLE;
    case RPC_NOT_FOUND: return CLI_NOT_FOUND;
    case RPC_DEADLINE_EXCEEDED: return CLI_TIMEOUT;
    default: return CLI_FAILURE;
    }
}

enum status
cli_connect(const struct cli_args *args, const char *socket, struct rpc **rpc_out)
{
    const char *endpoint = cli_value(args, "endpoint");
    char dir[ENDPOINT_PATH_MAX], url[ENDPOINT_URL_MAX];

    const char *server_key = cli_value(args, "server-key");
    const char *secret_key = cli_value(args, "secret-key");

    if (endpoint != NULL) {
        TRY(rpc_open(endpoint, rpc_out));
        enum status st = server_key == NULL && secret_key == NULL
                             ? ST_OK
                             : rpc_use_keys(*rpc_out, server_key, secret_key);

        /* A key file that is not there is no document that is not there. */
        return st == ST_NOT_FOUND ? ERR(ST_INVALID, "%s", status_detail()) : st;
    }
    if (server_key != NULL || secret_key != NULL) {
        return ERR(ST_INVALID, "--server-key and --secret-key go with --endpoint");
    }
    TRY(endpoint_dir(cli_value(args, "runtime-dir"), dir));
    TRY(endpoint_url(dir, socket, url));
    return rpc_open(url, rpc_out);
}

int
cli_call(const struct cli_args *args, struct rpc *rpc, struct rpc_call call,
         const ProtobufCMessage **reply_out)
{
    call.timeout_ms = method_get(call.method)->is_stream ? 0 : RPC_UNARY_TIMEOUT_MS;
    if (cli_duration_ms(args, "timeout", &call.timeout_ms) != ST_OK) {
        (void)fprintf(stderr, "%s: %s\n", args->cli->program, status_detail());
        return CLI_USAGE;
    }
    enum rpc_code code = rpc_call(rpc, &call, reply_out);

    return code == RPC_OK ? CLI_OK : cli_fail_call(args, rpc, code);
}
