/* SPDX-License-Identifier: Apache-2.0 */
#include "common/failpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEXT_BYTES_MAX 1024
#define EXIT_SIGNO     0 /* no signals */
#define HANG_SIGNO     1000
#define WAIT_SIGNO     1001

static const char *const names[FAILPOINT_COUNT] = {
#define FAILPOINT_NAME(name, where) #name,
    FAILPOINTS(FAILPOINT_NAME)
#undef FAILPOINT_NAME
};

static const struct {
    const char *name;
    int signo;
} actions[] = {{"kill", SIGKILL},    {"stop", SIGSTOP},  {"hang", HANG_SIGNO},
               {"wait", WAIT_SIGNO}, {"abort", SIGABRT}, {"exit", EXIT_SIGNO}};

/* What is to happen at a place. */
struct trap {
    bool is_set;
    bool has_value; /* only with this value */
    int signo;
    uint64_t value;
    uint64_t at;                /* the how-manieth time; 0: each */
    atomic_uint_fast64_t times; /* reached so far */
};

bool failpoint_is_armed;
static struct trap traps[FAILPOINT_COUNT];
static const char *fifo; /* NULL: nobody may wait */

/* Whoever opens the FIFO for writing knows that we are here; closing it lets us go. */
static void
wait_for_writer(void)
{
    int fd = open(fifo, O_RDONLY | O_CLOEXEC);
    char byte;

    while (fd >= 0 && read(fd, &byte, 1) < 0 && errno == EINTR) {
    }
    if (fd >= 0) {
        (void)close(fd);
    }
}

void
failpoint_reach(enum failpoint point, uint64_t value)
{
    struct trap *trap = &traps[point];

    if (!trap->is_set || (trap->has_value && trap->value != value)) {
        return;
    }
    uint64_t time = atomic_fetch_add(&trap->times, 1) + 1;

    if (trap->at != 0 && trap->at != time) {
        return;
    }
    if (trap->signo == EXIT_SIGNO) {
        _exit(EXIT_FAILURE);
    }
    if (trap->signo == WAIT_SIGNO) {
        wait_for_writer();
        return;
    }
    while (trap->signo == HANG_SIGNO) {
        (void)pause();
    }
    (void)kill(getpid(), trap->signo); /* before it returns: a signal to oneself is taken at once */
}

static enum status
find_name(const char *text, size_t length, enum failpoint *point_out)
{
    for (size_t i = 0; i < FAILPOINT_COUNT; i++) {
        if (strlen(names[i]) == length && memcmp(names[i], text, length) == 0) {
            *point_out = (enum failpoint)i;
            return ST_OK;
        }
    }
    return ERR(ST_INVALID, "KVASIR_FAILPOINTS: there is no place '%.*s'", (int)length, text);
}

static enum status
read_number(const char *text, char **end, uint64_t *number_out)
{
    errno = 0;
    *number_out = strtoull(text, end, 10);
    return errno == 0 && *end != text
               ? ST_OK
               : ERR(ST_INVALID, "KVASIR_FAILPOINTS: '%.20s' is no number", text);
}

/* "name=action[@times][:value]" */
static enum status
read_trap(char *text)
{
    size_t length = strcspn(text, "=");
    struct trap trap = {.is_set = true, .signo = -1};
    enum failpoint point = FAILPOINT_COUNT;
    char *at;

    TRY(find_name(text, length, &point));
    at = text[length] == '=' ? text + length + 1 : text + length;
    length = strcspn(at, "@:");
    for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++) {
        if (strlen(actions[i].name) == length && memcmp(actions[i].name, at, length) == 0) {
            trap.signo = actions[i].signo;
        }
    }
    if (trap.signo < 0) {
        return ERR(ST_INVALID, "KVASIR_FAILPOINTS: %s=%.20s: kill, stop, hang, wait, abort or exit",
                   names[point], at);
    }
    if (trap.signo == WAIT_SIGNO && fifo == NULL) {
        return ERR(ST_INVALID, "KVASIR_FAILPOINTS: %s=wait needs KVASIR_FAILPOINT_FIFO",
                   names[point]);
    }
    at += length;
    if (*at == '@') {
        TRY(read_number(at + 1, &at, &trap.at));
    }
    if (*at == ':') {
        trap.has_value = true;
        TRY(read_number(at + 1, &at, &trap.value));
    }
    if (*at != '\0') {
        return ERR(ST_INVALID, "KVASIR_FAILPOINTS: '%.20s' after %s", at, names[point]);
    }
    traps[point].is_set = trap.is_set;
    traps[point].has_value = trap.has_value;
    traps[point].signo = trap.signo;
    traps[point].value = trap.value;
    traps[point].at = trap.at;
    failpoint_is_armed = true;
    return ST_OK;
}

enum status
failpoint_init(void)
{
    const char *text = getenv("KVASIR_FAILPOINTS");
    char copy[TEXT_BYTES_MAX];
    char *rest = copy, *one;

    fifo = getenv("KVASIR_FAILPOINT_FIFO");
    if (text == NULL) {
        return ST_OK;
    }
    if (strlen(text) >= sizeof(copy)) {
        return ERR(ST_INVALID, "KVASIR_FAILPOINTS has %zu bytes: at most %zu", strlen(text),
                   sizeof(copy) - 1);
    }
    memcpy(copy, text, strlen(text) + 1);
    while ((one = strsep(&rest, ",")) != NULL) {
        if (*one != '\0') {
            TRY(read_trap(one));
        }
    }
    return ST_OK;
}
