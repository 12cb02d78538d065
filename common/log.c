/* SPDX-License-Identifier: Apache-2.0 */
#include "common/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOG_LINE_BYTES 1024

static const char *const level_names[] = {"error", "warn", "info", "debug", "trace"};
static const int level_priorities[] = {3, 4, 6, 7, 7};

static const char *process_name = "kvasir";
static atomic_int lowest_level = LOG_LEVEL_INFO;
static int has_journal;
static log_tap_fn tap;
static void *tap_arg;
static atomic_int tap_level = -1;

void
log_init(const char *process, enum log_level level)
{
    process_name = process;
    has_journal = getenv("JOURNAL_STREAM") != NULL;
    log_set_level(level);
}

void
log_set_level(enum log_level level)
{
    atomic_store(&lowest_level, (int)level);
}

void
log_set_tap(log_tap_fn fn, void *arg)
{
    tap = fn;
    tap_arg = arg;
}

void
log_set_tap_level(int level)
{
    atomic_store(&tap_level, level);
}

const char *
log_level_name(enum log_level level)
{
    return level_names[level];
}

int
log_level_parse(const char *text)
{
    for (size_t i = 0; i < sizeof(level_names) / sizeof(level_names[0]); i++) {
        if (strcmp(text, level_names[i]) == 0) {
            return (int)i;
        }
    }
    return -1;
}

enum status
log_level_check(const char *text)
{
    if (log_level_parse(text) < 0) {
        return ERR(ST_INVALID, "log-level %s: it must be error, warn, info, debug or trace", text);
    }
    return ST_OK;
}

/* Names of files and documents, and what peers sent, are in details: none of it ends a line or
 * moves a terminal's cursor. */
static void
keep_on_one_line(char *text)
{
    for (; *text != 0; text++) {
        if ((unsigned char)*text < ' ' || *text == 0x7f) {
            *text = '?';
        }
    }
}

void
log_event(enum log_level level, const char *event, const char *fmt, ...)
{
    char line[LOG_LINE_BYTES];
    va_list args;
    bool is_printed = (int)level <= atomic_load(&lowest_level);
    bool is_tapped = (int)level <= atomic_load(&tap_level);
    int used;
    int more;

    if (!is_printed && !is_tapped) {
        return;
    }
    if (has_journal) {
        used = snprintf(line, sizeof(line), "<%d>%s ", level_priorities[level], event);
    } else {
        used = snprintf(line, sizeof(line), "%s %s: %s ", process_name, level_names[level], event);
    }
    if (used < 0 || (size_t)used >= sizeof(line) - 1) {
        return;
    }
    va_start(args, fmt);
    more = vsnprintf(line + used, sizeof(line) - (size_t)used - 1, fmt, args);
    va_end(args);
    if (more < 0) {
        return;
    }
    keep_on_one_line(line + used);
    if (is_tapped) {
        tap(tap_arg, level, event, line + used);
    }
    if (!is_printed) {
        return;
    }
    used += more;
    if ((size_t)used > sizeof(line) - 2) {
        used = sizeof(line) - 2;
    }
    line[used++] = '\n';
    /* One write, so that lines of several threads do not mix; a lost log line is not worth a retry.
     */
    if (write(STDERR_FILENO, line, (size_t)used) < 0) {
        return;
    }
}
