/* SPDX-License-Identifier: Apache-2.0 */
/* log - one line per event on stderr: level, event word, key=value pairs.
 *
 * The event is a literal, so grep finds the line in the source.  Only process folders log;
 * libraries return a status.  Under systemd (JOURNAL_STREAM set) lines carry a <N> priority.
 * Never log text of users or documents: ids and sizes only.  Safe from any thread. */
#ifndef COMMON_LOG_H
#define COMMON_LOG_H

#include "common/status.h"

enum log_level {
    LOG_LEVEL_ERROR, /* we could not do what we must */
    LOG_LEVEL_WARN,  /* odd, going on */
    LOG_LEVEL_INFO,  /* life cycle, small and bounded */
    LOG_LEVEL_DEBUG, /* per request */
    LOG_LEVEL_TRACE, /* per step */
};

/* Names this process in its lines (borrowed for ever) and sets the lowest level that is printed. */
void log_init(const char *process, enum log_level level);

void log_set_level(enum log_level level);

/* Somebody else who hears of every event up to a level, printed or not; -1: of none, as at first.
 * `detail` is what stands behind the event word; borrowed for the call, which may come from any
 * thread.  Set before other threads start. */
typedef void (*log_tap_fn)(void *arg, enum log_level level, const char *event, const char *detail);
void log_set_tap(log_tap_fn tap, void *arg);
void log_set_tap_level(int level);

/* The name of a level. */
const char *log_level_name(enum log_level level);

/* Parses "error".."trace"; returns -1 for anything else. */
int log_level_parse(const char *text);

/* The option "log-level" of every process: ST_INVALID names the levels that there are. */
enum status log_level_check(const char *text);

#define log_error(...) log_event(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...)  log_event(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...)  log_event(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_event(LOG_LEVEL_DEBUG, __VA_ARGS__)
#define log_trace(...) log_event(LOG_LEVEL_TRACE, __VA_ARGS__)

void log_event(enum log_level level, const char *event, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
