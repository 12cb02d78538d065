/* SPDX-License-Identifier: Apache-2.0 */
#include "common/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define STATUS_DETAIL_BYTES 512
#define STATUS_WHERE_BYTES  96

static _Thread_local char detail[STATUS_DETAIL_BYTES];
static _Thread_local char where[STATUS_WHERE_BYTES];

enum status
status_set(enum status kind, const char *file, int line, const char *fmt, ...)
{
    /* The arguments may include status_detail() itself (adding context), so format aside first. */
    char text[STATUS_DETAIL_BYTES];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    memcpy(detail, text, sizeof(detail));
    (void)snprintf(where, sizeof(where), "%s:%d", file, line);
    return kind;
}

const char *
status_detail(void)
{
    return detail;
}

const char *
status_where(void)
{
    return where;
}

const char *
status_name(enum status kind)
{
    switch (kind) {
    case ST_OK: return "ok";
    case ST_INVALID: return "invalid";
    case ST_NO_MEMORY: return "no_memory";
    case ST_UNAVAILABLE: return "unavailable";
    case ST_NOT_FOUND: return "not_found";
    case ST_TIMEOUT: return "timeout";
    case ST_SYSTEM: return "system";
    case ST_DEVICE: return "device";
    }
    return "unknown";
}
