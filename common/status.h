/* SPDX-License-Identifier: Apache-2.0 */
/* status - what went wrong: a closed set of kinds to branch on, one line of detail to read.
 *
 * Whoever decides that something failed records the line with ERR(); callers pass the kind on.
 * The line is kept per thread until the next ERR() of that thread.  Whoever handles the error
 * (a process folder) logs it, once.  Never logs, never allocates. */
#ifndef COMMON_STATUS_H
#define COMMON_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

enum status {
    ST_OK = 0,
    ST_INVALID,     /* the input broke its contract: message, file, option; retrying is useless */
    ST_NO_MEMORY,   /* host memory, or no block can be freed now */
    ST_UNAVAILABLE, /* no device, no worker, not there yet: may help to retry */
    ST_NOT_FOUND,   /* the thing named does not exist */
    ST_TIMEOUT,     /* a deadline passed */
    ST_SYSTEM,      /* the operating system refused a call; errno is in the detail */
    ST_DEVICE,      /* CUDA failed; the worker must restart */
};

/* Records the detail of a failure and returns `kind`, so that `return ERR(...)` reads well. */
#define ERR(kind, ...) status_failed(status_set((kind), __FILE__, __LINE__, __VA_ARGS__))

/* Returns on failure; only where nothing is held.  The only macro with hidden control flow. */
#define TRY(expr)                                                                                  \
    do {                                                                                           \
        enum status try_status_ = (expr);                                                          \
        if (try_status_ != ST_OK) {                                                                \
            return try_status_;                                                                    \
        }                                                                                          \
    } while (0)

enum status status_set(enum status kind, const char *file, int line, const char *fmt, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 4, 5)))
#endif
    ;

/* The last detail recorded by this thread, without file and line; "" if none.  Borrowed until the
 * thread's next ERR(). */
const char *status_detail(void);

/* "file:line" of the last detail; for debug logs. */
const char *status_where(void);

/* Tells the compiler that an ERR() is never ST_OK, so that it sees that outputs are written
 * wherever TRY() goes on. */
static inline enum status
status_failed(enum status kind)
{
    return kind == ST_OK ? ST_INVALID : kind;
}

/* A fixed lower-case word for the kind, e.g. "invalid". */
const char *status_name(enum status kind);

#ifdef __cplusplus
}
#endif
#endif
