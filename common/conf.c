/* SPDX-License-Identifier: Apache-2.0 */
#include "common/conf.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/mem.h"

#define CONF_LINE_BYTES_MAX 4096 /* of a configuration file, with its newline */
#define CONF_NAME_BYTES_MAX 64   /* longer names are unknown, and have no neighbours */
#define CONF_TEXT_SHOWN_MAX 64   /* bytes of a wrong value that a message repeats */
#define CONF_NUMBER_BYTES   48   /* room for any number, unit and NUL */

/* Options that every process has; the process looks for them with conf_scan before it parses. */
static const struct {
    const char *name;
    const char *value_name; /* NULL: takes none */
    const char *help;
} standing_options[] = {
    {"config", "FILE", "read options from FILE; the command line wins"},
    {"print-config", NULL, "print the options in force as a configuration file, and end"},
    {"help", NULL, "print this, and end"},
    {"version", NULL, "print the version, and end"},
};

#define STANDING_COUNT (sizeof(standing_options) / sizeof(standing_options[0]))

struct unit {
    const char *name;
    uint64_t factor;
};

/* Ascending; the first spelling of a factor is the one we print. */
static const struct unit size_units[] = {
    {"", 1},
    {"KiB", UINT64_C(1) << 10},
    {"K", UINT64_C(1) << 10},
    {"MiB", UINT64_C(1) << 20},
    {"M", UINT64_C(1) << 20},
    {"GiB", UINT64_C(1) << 30},
    {"G", UINT64_C(1) << 30},
    {"TiB", UINT64_C(1) << 40},
    {"T", UINT64_C(1) << 40},
    {NULL, 0},
};

static const struct unit duration_units[] = {
    {"ms", 1}, {"s", 1000}, {"min", 60 * 1000}, {"h", 60 * 60 * 1000}, {NULL, 0},
};

static const struct unit plain_units[] = {{"", 1}, {NULL, 0}};

static const struct unit *
units_of(enum conf_type type)
{
    switch (type) {
    case CONF_SIZE: return size_units;
    case CONF_DURATION: return duration_units;
    default: return plain_units;
    }
}

static const char *
expected(enum conf_type type)
{
    switch (type) {
    case CONF_STRING: return "text without control characters";
    case CONF_BOOL: return "true or false";
    case CONF_U64: return "a whole number";
    case CONF_SIZE: return "a size such as 4096, 512MiB or 4GiB";
    case CONF_DURATION: return "a duration such as 250ms, 5s, 2min or 1h";
    case CONF_F64: return "a number";
    }
    return "a value";
}

static enum status
refuse_text(const struct conf_option *option, const char *text)
{
    return ERR(ST_INVALID, "%s: '%.*s' is not %s", option->name, CONF_TEXT_SHOWN_MAX, text,
               expected(option->type));
}

/* --- numbers with units ----------------------------------------------------------------------- */

/* The largest unit that divides the value, so that what is printed reads back exactly. */
static void
format_units(uint64_t value, const struct unit *units, char text_out[CONF_NUMBER_BYTES])
{
    const struct unit *best = &units[0];

    for (const struct unit *unit = units; value > 0 && unit->name != NULL; unit++) {
        if (unit->factor > best->factor && value % unit->factor == 0) {
            best = unit;
        }
    }
    (void)snprintf(text_out, CONF_NUMBER_BYTES, "%" PRIu64 "%s", value / best->factor, best->name);
}

/* The shortest decimal form that reads back to the same double. */
static void
format_f64(double value, char text_out[CONF_NUMBER_BYTES])
{
    for (int digits = 6; digits <= 17; digits++) {
        (void)snprintf(text_out, CONF_NUMBER_BYTES, "%.*g", digits, value);
        if (strtod(text_out, NULL) == value) {
            return;
        }
    }
}

static enum status
parse_units(const struct conf_option *option, const char *text, uint64_t *value_out)
{
    const struct unit *unit = units_of(option->type);
    const char *at = text;
    uint64_t value = 0;

    if (!isdigit((unsigned char)*at)) {
        return refuse_text(option, text);
    }
    for (; isdigit((unsigned char)*at); at++) {
        if (__builtin_mul_overflow(value, 10u, &value)
            || __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value)) {
            return ERR(ST_INVALID, "%s: '%.*s' does not fit in 64 bits", option->name,
                       CONF_TEXT_SHOWN_MAX, text);
        }
    }
    while (*at == ' ') {
        at++;
    }
    while (unit->name != NULL && strcasecmp(at, unit->name) != 0) {
        unit++;
    }
    if (unit->name == NULL) {
        /* Zero needs no unit. */
        if (value != 0 || *at != '\0') {
            return refuse_text(option, text);
        }
        *value_out = 0;
        return ST_OK;
    }
    if (__builtin_mul_overflow(value, unit->factor, value_out)) {
        return ERR(ST_INVALID, "%s: '%.*s' does not fit in 64 bits", option->name,
                   CONF_TEXT_SHOWN_MAX, text);
    }
    return ST_OK;
}

static enum status
check_limits(const struct conf_option *option, bool is_low, bool is_high, const char *text)
{
    char limit[CONF_NUMBER_BYTES];

    if (!is_low && !is_high) {
        return ST_OK;
    }
    format_units(is_low ? option->min : option->max, units_of(option->type), limit);
    return ERR(ST_INVALID, "%s: %.*s is %s %s", option->name, CONF_TEXT_SHOWN_MAX, text,
               is_low ? "below the minimum," : "above the maximum,", limit);
}

/* --- setting ---------------------------------------------------------------------------------- */

static enum status
set_string(const struct conf_option *option, const char *text, void *slot)
{
    char **string = slot;
    char *copy;

    for (const char *c = text; *c != '\0'; c++) {
        if (iscntrl((unsigned char)*c)) {
            return ERR(ST_INVALID, "%s: byte %zu is a control character", option->name,
                       (size_t)(c - text));
        }
    }
    copy = mem_strdup(text);
    if (copy == NULL) {
        return ERR(ST_NO_MEMORY, "%s: %zu bytes", option->name, strlen(text));
    }
    mem_free(*string);
    *string = copy;
    return ST_OK;
}

static enum status
set_bool(const struct conf_option *option, const char *text, void *slot)
{
    static const char *const words[] = {"false", "true", "no", "yes", "0", "1"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcmp(text, words[i]) == 0) {
            *(bool *)slot = i % 2 == 1;
            return ST_OK;
        }
    }
    return refuse_text(option, text);
}

static enum status
set_number(const struct conf_option *option, const char *text, void *slot)
{
    uint64_t value = 0;

    TRY(parse_units(option, text, &value));
    TRY(check_limits(option, value < option->min, option->max != 0 && value > option->max, text));
    *(uint64_t *)slot = value;
    return ST_OK;
}

enum status
conf_read_size(const char *name, const char *text, uint64_t *bytes_out)
{
    const struct conf_option option = {.name = name, .type = CONF_SIZE, .min = 1};

    return set_number(&option, text, bytes_out);
}

enum status
conf_read_duration(const char *name, const char *text, uint64_t *ms_out)
{
    const struct conf_option option = {.name = name, .type = CONF_DURATION};

    return set_number(&option, text, ms_out);
}

static enum status
set_f64(const struct conf_option *option, const char *text, void *slot)
{
    char *end;
    double value = strtod(text, &end);

    if (end == text || *end != '\0' || isspace((unsigned char)*text) || !isfinite(value)) {
        return refuse_text(option, text);
    }
    TRY(check_limits(option, value < (double)option->min,
                     option->max != 0 && value > (double)option->max, text));
    *(double *)slot = value;
    return ST_OK;
}

static void *
slot_of(struct conf conf, const struct conf_option *option)
{
    return (char *)conf.options + option->offset;
}

static enum status
set_option(struct conf conf, const struct conf_option *option, const char *text)
{
    void *slot = slot_of(conf, option);

    switch (option->type) {
    case CONF_STRING: return set_string(option, text, slot);
    case CONF_BOOL: return set_bool(option, text, slot);
    case CONF_U64:
    case CONF_SIZE:
    case CONF_DURATION: return set_number(option, text, slot);
    case CONF_F64: return set_f64(option, text, slot);
    }
    return ERR(ST_INVALID, "%s: type %d in the option table", option->name, (int)option->type);
}

/* --- names ------------------------------------------------------------------------------------ */

/* Edits (insert, delete, replace) that turn `a` into `b`; both shorter than CONF_NAME_BYTES_MAX. */
static size_t
edit_distance(const char *a, const char *b)
{
    size_t row[CONF_NAME_BYTES_MAX];
    size_t columns = strlen(b);

    for (size_t j = 0; j <= columns; j++) {
        row[j] = j;
    }
    for (size_t i = 1; a[i - 1] != '\0'; i++) {
        size_t diagonal = row[0];

        row[0] = i;
        for (size_t j = 1; j <= columns; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);

            best = row[j] + 1 < best ? row[j] + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[columns];
}

static void
keep_nearer(const char *name, const char *candidate, const char **nearest, size_t *distance)
{
    size_t edits;

    if (strlen(candidate) >= CONF_NAME_BYTES_MAX) {
        return;
    }
    edits = edit_distance(name, candidate);
    if (edits < *distance) {
        *distance = edits;
        *nearest = candidate;
    }
}

/* The known name that was probably meant, or NULL: one edit, and one more for three letters. */
static const char *
nearest_name(struct conf conf, const char *name, bool with_standing)
{
    const char *nearest = NULL;
    size_t distance = strlen(name) / 3 + 2;

    if (strlen(name) >= CONF_NAME_BYTES_MAX) {
        return NULL;
    }
    for (size_t i = 0; i < conf.count; i++) {
        keep_nearer(name, conf.table[i].name, &nearest, &distance);
    }
    for (size_t i = 0; with_standing && i < STANDING_COUNT; i++) {
        keep_nearer(name, standing_options[i].name, &nearest, &distance);
    }
    return nearest;
}

static const struct conf_option *
find_option(struct conf conf, const char *name)
{
    for (size_t i = 0; i < conf.count; i++) {
        if (strcmp(conf.table[i].name, name) == 0) {
            return &conf.table[i];
        }
    }
    return NULL;
}

static enum status
refuse_name(struct conf conf, const char *name, bool is_argument)
{
    const char *dashes = is_argument ? "--" : "";
    const char *nearest = nearest_name(conf, name, is_argument);

    if (nearest == NULL) {
        return ERR(ST_INVALID, "unknown option '%s%.*s'; --help lists all", dashes,
                   CONF_TEXT_SHOWN_MAX, name);
    }
    return ERR(ST_INVALID, "unknown option '%s%s'; did you mean '%s%s'?", dashes, name, dashes,
               nearest);
}

enum status
conf_set(struct conf conf, const char *name, const char *text)
{
    const struct conf_option *option = find_option(conf, name);

    return option == NULL ? refuse_name(conf, name, false) : set_option(conf, option, text);
}

enum status
conf_defaults(struct conf conf)
{
    for (size_t i = 0; i < conf.count; i++) {
        if (conf.table[i].default_text != NULL) {
            TRY(set_option(conf, &conf.table[i], conf.table[i].default_text));
        }
    }
    return ST_OK;
}

void
conf_deinit(struct conf conf)
{
    for (size_t i = 0; i < conf.count; i++) {
        if (conf.table[i].type == CONF_STRING) {
            MEM_FREE(*(char **)slot_of(conf, &conf.table[i]));
        }
    }
}

/* --- files ------------------------------------------------------------------------------------ */

/* Cuts the white space off both ends, in place. */
static char *
trim(char *text)
{
    size_t length;

    while (isspace((unsigned char)*text)) {
        text++;
    }
    length = strlen(text);
    while (length > 0 && isspace((unsigned char)text[length - 1])) {
        text[--length] = '\0';
    }
    return text;
}

/* Quotes keep white space at the ends: "  a ".  Nothing is escaped inside. */
static char *
unquote(char *text)
{
    size_t length = strlen(text);

    if (length >= 2 && text[0] == '"' && text[length - 1] == '"') {
        text[length - 1] = '\0';
        return text + 1;
    }
    return text;
}

static enum status
read_line(struct conf conf, char *line)
{
    char *name = trim(line);
    char *equals = strchr(name, '=');

    if (*name == '\0' || *name == '#') {
        return ST_OK;
    }
    if (equals == NULL) {
        return ERR(ST_INVALID, "'%.*s': expected 'option = value'", CONF_TEXT_SHOWN_MAX, name);
    }
    *equals = '\0';
    return conf_set(conf, trim(name), unquote(trim(equals + 1)));
}

enum status
conf_read_lines(struct conf conf, const char *path, FILE *file)
{
    char line[CONF_LINE_BYTES_MAX];
    unsigned number = 0;

    for (;;) {
        size_t length;
        int c = EOF;

        for (length = 0; length < sizeof(line) && (c = getc(file)) != EOF && c != '\n'; length++) {
            line[length] = (char)c;
        }
        if (c == EOF && ferror(file) != 0) {
            return ERR(ST_SYSTEM, "%s: %s", path, strerror(errno));
        }
        if (c == EOF && length == 0) {
            return ST_OK;
        }
        number++;
        if (length == sizeof(line)) {
            return ERR(ST_INVALID, "%s:%u: line longer than %d bytes", path, number,
                       CONF_LINE_BYTES_MAX - 1);
        }
        line[length] = '\0';
        if (strlen(line) != length) {
            return ERR(ST_INVALID, "%s:%u: byte %zu is NUL", path, number, strlen(line));
        }

        enum status st = read_line(conf, line);

        if (st != ST_OK) {
            return ERR(st, "%s:%u: %s", path, number, status_detail());
        }
    }
}

enum status
conf_read_file(struct conf conf, const char *path)
{
    FILE *file = fopen(path, "re");
    enum status st;

    if (file == NULL) {
        return ERR(ST_SYSTEM, "%s: %s", path, strerror(errno));
    }
    st = conf_read_lines(conf, path, file);
    (void)fclose(file);
    return st;
}

/* --- command line ----------------------------------------------------------------------------- */

/* If `argument` is "--name" or "--name=value": the value, "" or NULL by *has_value_out. */
static bool
is_argument_of(const char *argument, const char *name, const char **value_out)
{
    size_t length = strlen(name);

    if (strncmp(argument, "--", 2) != 0 || strncmp(argument + 2, name, length) != 0) {
        return false;
    }
    argument += 2 + length;
    *value_out = *argument == '=' ? argument + 1 : NULL;
    return *argument == '\0' || *argument == '=';
}

bool
conf_scan(int argc, char **argv, const char *name)
{
    const char *value;

    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (is_argument_of(argv[i], name, &value)) {
            return true;
        }
    }
    return false;
}

const char *
conf_config_path(int argc, char **argv)
{
    const char *path = NULL;
    const char *value;

    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (is_argument_of(argv[i], "config", &value)) {
            path = value != NULL ? value : argv[i + 1]; /* argv[argc] is NULL */
        }
    }
    return path;
}

/* Handles argv[*index] and leaves *index at the last argument that it used. */
static enum status
parse_argument(struct conf conf, char **argv, int *index)
{
    char *argument = argv[*index];
    const char *value;
    char *equals;
    const struct conf_option *option = NULL;

    for (size_t i = 0; i < STANDING_COUNT; i++) {
        if (is_argument_of(argument, standing_options[i].name, &value)) {
            bool takes_next = standing_options[i].value_name != NULL && value == NULL;

            if (takes_next && argv[*index + 1] == NULL) {
                return ERR(ST_INVALID, "%s needs %s", argument, standing_options[i].value_name);
            }
            *index += takes_next;
            return ST_OK;
        }
    }
    for (size_t i = 0; i < conf.count && option == NULL; i++) {
        option = is_argument_of(argument, conf.table[i].name, &value) ? &conf.table[i] : NULL;
    }
    if (option == NULL) {
        char name[CONF_NAME_BYTES_MAX];

        equals = strchr(argument, '=');
        (void)snprintf(name, sizeof(name), "%.*s",
                       equals == NULL ? (int)sizeof(name) : (int)(equals - argument) - 2,
                       argument + 2);
        return refuse_name(conf, name, true);
    }
    if (value == NULL && option->type == CONF_BOOL) {
        value = "true";
    }
    if (value == NULL) {
        value = argv[++*index];
        if (value == NULL) {
            return ERR(ST_INVALID, "%s needs %s", argument, option->value_name);
        }
    }
    if (set_option(conf, option, value) != ST_OK) {
        return ERR(ST_INVALID, "--%s", status_detail());
    }
    return ST_OK;
}

enum status
conf_parse_args(struct conf conf, int argc, char **argv, int *first_operand_out)
{
    int i;

    for (i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0) {
            i++;
            break;
        }
        if (argv[i][0] != '-' || argv[i][1] == '\0') {
            break;
        }
        if (argv[i][1] != '-') {
            return ERR(ST_INVALID, "'%.*s': options begin with two dashes; --help lists all",
                       CONF_TEXT_SHOWN_MAX, argv[i]);
        }
        TRY(parse_argument(conf, argv, &i));
    }
    *first_operand_out = i;
    return ST_OK;
}

/* --- printing --------------------------------------------------------------------------------- */

static void
print_limits(const struct conf_option *option, FILE *out)
{
    char text[CONF_NUMBER_BYTES];

    if (option->type == CONF_STRING || option->type == CONF_BOOL) {
        return;
    }
    if (option->min != 0) {
        format_units(option->min, units_of(option->type), text);
        (void)fprintf(out, "; at least %s", text);
    }
    if (option->max != 0) {
        format_units(option->max, units_of(option->type), text);
        (void)fprintf(out, "; at most %s", text);
    }
}

static void
print_help_line(const char *name, const char *value_name, const char *help, FILE *out)
{
    char left[CONF_NAME_BYTES_MAX];

    (void)snprintf(left, sizeof(left), "--%s%s%s", name, value_name == NULL ? "" : " ",
                   value_name == NULL ? "" : value_name);
    (void)fprintf(out, "  %-28s %s", left, help);
}

void
conf_print_help(struct conf conf, FILE *out)
{
    for (size_t i = 0; i < conf.count; i++) {
        const struct conf_option *option = &conf.table[i];

        print_help_line(option->name, option->type == CONF_BOOL ? NULL : option->value_name,
                        option->help, out);
        print_limits(option, out);
        if (option->default_text != NULL
            && (option->type != CONF_BOOL || strcmp(option->default_text, "false") != 0)) {
            (void)fprintf(out, " [%s]", option->default_text);
        }
        (void)fputc('\n', out);
    }
    for (size_t i = 0; i < STANDING_COUNT; i++) {
        print_help_line(standing_options[i].name, standing_options[i].value_name,
                        standing_options[i].help, out);
        (void)fputc('\n', out);
    }
}

static void
print_string(const char *text, FILE *out)
{
    size_t length = strlen(text);
    bool needs_quotes = length == 0 || text[0] == '"' || isspace((unsigned char)text[0])
                        || isspace((unsigned char)text[length - 1]);

    (void)fprintf(out, needs_quotes ? "\"%s\"" : "%s", text);
}

void
conf_print_value(struct conf conf, const struct conf_option *option, FILE *out)
{
    const void *slot = slot_of(conf, option);
    char text[CONF_NUMBER_BYTES];

    switch (option->type) {
    case CONF_STRING: print_string(*(char *const *)slot, out); return;
    case CONF_BOOL: (void)fputs(*(const bool *)slot ? "true" : "false", out); return;
    case CONF_F64: format_f64(*(const double *)slot, text); break;
    case CONF_U64:
    case CONF_SIZE:
    case CONF_DURATION: format_units(*(const uint64_t *)slot, units_of(option->type), text); break;
    }
    (void)fputs(text, out);
}

void
conf_print_sample(struct conf conf, FILE *out)
{
    for (size_t i = 0; i < conf.count; i++) {
        const struct conf_option *option = &conf.table[i];
        bool is_unset = option->type == CONF_STRING && *(char **)slot_of(conf, option) == NULL;

        (void)fprintf(out, "%s# %s", i == 0 ? "" : "\n", option->help);
        print_limits(option, out);
        if (is_unset) {
            (void)fprintf(out, "\n# %s = %s\n", option->name, option->value_name);
            continue;
        }
        (void)fprintf(out, "\n%s = ", option->name);
        conf_print_value(conf, option, out);
        (void)fputc('\n', out);
    }
}
