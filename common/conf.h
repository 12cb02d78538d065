/* SPDX-License-Identifier: Apache-2.0 */
/* conf - the options of a process as one table.
 *
 * The table yields the parser, --help, --print-config and the sample file in deploy/.  Order of
 * precedence: default < file (--config FILE, "key = value" lines, '#' comments) < command line
 * ("--key VALUE" or "--key=VALUE").  An unknown key is an error that names the nearest known one.
 * In a file, quotes keep spaces at the ends of a value, and '#' begins a comment only at the start
 * of a line.  LC_NUMERIC must be "C".
 *
 *   struct options { char *model; uint64_t kv_memory; uint64_t block_tokens; bool deterministic; };
 *   static const struct conf_option table[] = {
 *       {"model", CONF_STRING, NULL, 0, 0, "FILE", "checkpoint to serve", offsetof(...)}, ...
 */
#ifndef COMMON_CONF_H
#define COMMON_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/status.h"

/* What a process ends with when its options are wrong. */
#define CONF_EXIT_USAGE 2

enum conf_type {
    CONF_STRING,   /* char *, owned by the options struct */
    CONF_BOOL,     /* bool; true|false|yes|no|1|0; a bare "--key" means true */
    CONF_U64,      /* uint64_t in [min, max] */
    CONF_SIZE,     /* uint64_t bytes: plain, or with KiB MiB GiB TiB (K M G T mean the same) */
    CONF_DURATION, /* uint64_t milliseconds: "250ms", "5s", "2min", "1h" */
    CONF_F64,      /* double in [min, max] */
};

struct conf_option {
    const char *name; /* "kv-memory" */
    enum conf_type type;
    const char *
        default_text; /* parsed like a user's value; NULL = must not be defaulted (strings: NULL) */
    uint64_t min, max;      /* for numbers; max 0 = no limit */
    const char *value_name; /* "BYTES" in --help */
    const char *help;       /* one sentence */
    size_t offset;          /* into the options struct */
};

struct conf {
    const struct conf_option *table;
    size_t count;
    void *options; /* the caller's zeroed struct */
};

/* Sets every option to its default.  ST_INVALID if one does not parse (a bug in the table). */
enum status conf_defaults(struct conf conf);

/* Reads FILE over the current values.  ST_INVALID names file, line, key and limit; ST_SYSTEM. */
enum status conf_read_file(struct conf conf, const char *path);

/* The same from an open file; errors call it `path`. */
enum status conf_read_lines(struct conf conf, const char *path, FILE *file);

/* Parses argv[1..]; leaves non-options to the caller: *first_operand_out is the index of the first
 * (argc if none).  "--" ends the options; an operand ends them too.  --help, --version, --config
 * FILE and --print-config belong to every process: they are passed over here, and found by
 * conf_scan and conf_config_path before. */
enum status conf_parse_args(struct conf conf, int argc, char **argv, int *first_operand_out);

/* What a process without operands reads: the command line, or all three in their order.  An operand
 * is ST_INVALID. */
enum status conf_read_args(struct conf conf, int argc, char **argv);
enum status conf_read(struct conf conf, int argc, char **argv);

/* Prints what the command line asks for instead of work, if it does: --help (which begins with
 * `usage`), --version, --print-config. */
bool conf_print_only(struct conf conf, int argc, char **argv, const char *program,
                     const char *usage);

/* Sets one option from text, as the command line would. */
enum status conf_set(struct conf conf, const char *name, const char *text);

/* A size as CONF_SIZE reads it, for options that may be something else as well; 1 at least. */
enum status conf_read_size(const char *name, const char *text, uint64_t *bytes_out);
/* A duration as CONF_DURATION reads it. */
enum status conf_read_duration(const char *name, const char *text, uint64_t *ms_out);

/* Whether "--name" is among the arguments before "--". */
bool conf_scan(int argc, char **argv, const char *name);

/* Returns the value of "--config" in argv, or NULL. */
const char *conf_config_path(int argc, char **argv);

/* Prints the options for --help, or their values in force as a commented file for --print-config.
 * conf_read_file of that file gives the same values; an unset string stays a comment. */
void conf_print_help(struct conf conf, FILE *out);
void conf_print_sample(struct conf conf, FILE *out);

/* An option's value as such a file has it; a string must be set. */
void conf_print_value(struct conf conf, const struct conf_option *option, FILE *out);

/* Frees the strings. */
void conf_deinit(struct conf conf);

#endif
