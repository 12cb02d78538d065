/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <check.h>

#include "common/clock.h"

#define PATIENCE_MS      300000
#define WRAPPER_FACTOR   10
#define TIMES_MAX        1000
#define OUTPUT_BYTES_MAX (4u << 20)
#define NOTIFY_NAME_MAX  64

struct process {
    char program[128]; /* for messages */
    pid_t pid;
    int pidfd;
    int notify;                  /* the datagram socket of its NOTIFY_SOCKET */
    struct process_store *store; /* NULL: none */
    char status_line[256];
    unsigned watchdogs;
    int out;      /* its stdout, or -1 */
    char *output; /* what came out so far; NUL-terminated */
    size_t length;
    bool has_ended;
    int status;      /* of waitpid, once it has ended */
    char ready[256]; /* the datagram with READY=1 */
};

int
process_patience_ms(void)
{
    const char *text = getenv("CK_TIMEOUT_MULTIPLIER");
    double least = getenv("KVASIR_TEST_WRAPPER") == NULL ? 1 : WRAPPER_FACTOR;
    double times = text == NULL ? least : strtod(text, NULL);

    return (int)(PATIENCE_MS * (times < least ? least : times > TIMES_MAX ? TIMES_MAX : times));
}

uint64_t
process_patience_until_us(void)
{
    return clock_now_us() + (uint64_t)process_patience_ms() * 1000;
}

/* An abstract socket: nothing to remove afterwards. */
static int
open_notify(char name_out[NOTIFY_NAME_MAX])
{
    static unsigned serial;
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    ck_assert_int_ge(fd, 0);
    int length = snprintf(name_out, NOTIFY_NAME_MAX, "@kvasir-test-%d-%u", getpid(), serial++);
    memcpy(addr.sun_path, name_out, (size_t)length);
    addr.sun_path[0] = '\0';
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)length);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&addr, size), 0);
    return fd;
}

#define LISTEN_FDS_START 3
#define FDS_ASIDE        100 /* out of the way of where they go */

/* In the child: the kept descriptors become 3, 4, ..., and the environment says so. */
static void
pass_store(const struct process_store *store)
{
    char number[16], names[PROCESS_STORE_MAX * 65] = "";
    int aside[PROCESS_STORE_MAX];

    for (size_t i = 0; i < store->count; i++) {
        aside[i] = fcntl(store->fds[i], F_DUPFD_CLOEXEC, FDS_ASIDE);
        (void)snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s",
                       i == 0 ? "" : ":", store->names[i]);
    }
    for (size_t i = 0; i < store->count; i++) {
        (void)dup2(aside[i], LISTEN_FDS_START + (int)i);
    }
    (void)snprintf(number, sizeof(number), "%zu", store->count);
    (void)setenv("LISTEN_FDS", number, 1);
    (void)setenv("LISTEN_FDNAMES", names, 1);
    (void)snprintf(number, sizeof(number), "%d", (int)getpid());
    (void)setenv("LISTEN_PID", number, 1);
}

/* In the child: becomes the program, under the wrapper if there is one. */
static _Noreturn void
become(const char *program, const char *const *args, const char *const *env)
{
    char *argv[PROCESS_ARGS_MAX + 1];
    size_t count = 0;
    const char *wrapper = getenv("KVASIR_TEST_WRAPPER");
    char *words = strdup(wrapper == NULL ? "" : wrapper);

    for (char *rest = words, *word = strsep(&rest, " "); word != NULL; word = strsep(&rest, " ")) {
        if (word[0] != '\0' && count < PROCESS_ARGS_MAX / 2) {
            argv[count++] = word;
        }
    }
    argv[count++] = (char *)program;
    for (; args != NULL && *args != NULL && count < PROCESS_ARGS_MAX; args++) {
        argv[count++] = (char *)*args;
    }
    argv[count] = NULL;
    for (; env != NULL && *env != NULL; env++) {
        (void)putenv((char *)*env);
    }
    (void)execvp(argv[0], argv);
    perror(argv[0]);
    _exit(127);
}

static struct process *
start(const char *program, const char *const *args, const char *const *env, bool is_piped,
      struct process_store *store)
{
    struct process *process = calloc(1, sizeof(*process));
    char notify_name[NOTIFY_NAME_MAX];
    int pipe_fds[2] = {-1, -1};
    pid_t parent = getpid();

    ck_assert_ptr_nonnull(process);
    (void)snprintf(process->program, sizeof(process->program), "%s", program);
    process->notify = open_notify(notify_name);
    process->store = store;
    if (is_piped) {
        ck_assert_int_eq(pipe2(pipe_fds, O_CLOEXEC), 0);
    }
    (void)fflush(NULL);
    process->pid = fork();
    ck_assert_int_ge(process->pid, 0);
    if (process->pid == 0) {
        /* Dies with the test; if that is gone already, at once. */
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) {
            _exit(127);
        }
        if (is_piped) {
            (void)dup2(pipe_fds[1], STDOUT_FILENO);
        }
        (void)setenv("NOTIFY_SOCKET", notify_name, 1);
        if (store != NULL && store->count > 0) {
            pass_store(store);
        }
        become(program, args, env);
    }
    if (is_piped) {
        (void)close(pipe_fds[1]);
    }
    process->out = pipe_fds[0];
    process->pidfd = pidfd_open(process->pid, 0);
    ck_assert_int_ge(process->pidfd, 0);
    return process;
}

struct process *
process_start(const char *program, const char *const *args, const char *const *env)
{
    return start(program, args, env, false, NULL);
}

struct process *
process_start_piped(const char *program, const char *const *args, const char *const *env)
{
    return start(program, args, env, true, NULL);
}

struct process *
process_start_kept(const char *program, const char *const *args, const char *const *env,
                   struct process_store *store)
{
    return start(program, args, env, false, store);
}

/* --- what it tells its supervisor ------------------------------------------------------------- */

/* The value of a line "NAME=value", cut at the line's end; false: there is no such line. */
static bool
find_line(const char *lines, const char *name, char *value, size_t size)
{
    size_t length = strlen(name);

    for (const char *at = lines; at != NULL; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (strncmp(at, name, length) == 0 && at[length] == '=') {
            (void)snprintf(value, size, "%.*s", (int)strcspn(at + length + 1, "\n"),
                           at + length + 1);
            return true;
        }
    }
    return false;
}

static void
remove_stored(struct process_store *store, const char *name)
{
    for (size_t i = store->count; i-- > 0;) {
        if (strcmp(store->names[i], name) == 0) {
            (void)close(store->fds[i]);
            store->count--;
            store->fds[i] = store->fds[store->count];
            memmove(store->names[i], store->names[store->count], sizeof(store->names[i]));
        }
    }
}

static void
take_stored(struct process *process, const char *lines, int fd)
{
    struct process_store *store = process->store;
    char name[64] = "stored", value[8];

    (void)find_line(lines, "FDNAME", name, sizeof(name));
    if (store != NULL && find_line(lines, "FDSTOREREMOVE", value, sizeof(value))) {
        remove_stored(store, name);
    }
    if (fd >= 0 && (store == NULL || !find_line(lines, "FDSTORE", value, sizeof(value)))) {
        (void)close(fd);
    } else if (fd >= 0) {
        ck_assert_uint_lt(store->count, PROCESS_STORE_MAX);
        store->fds[store->count] = fd;
        memcpy(store->names[store->count++], name, sizeof(name));
    }
}

/* Reads one datagram; false if there is none.  *is_ready_out: it says READY=1. */
static bool
read_datagram(struct process *process, bool *is_ready_out)
{
    char lines[4096], value[8];
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec iov = {.iov_base = lines, .iov_len = sizeof(lines) - 1};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    ssize_t length = recvmsg(process->notify, &message, MSG_CMSG_CLOEXEC);
    const struct cmsghdr *c = length < 0 ? NULL : CMSG_FIRSTHDR(&message);
    int fd = -1;

    if (length < 0) {
        ck_assert_int_eq(errno, EAGAIN);
        return false;
    }
    lines[length] = '\0';
    if (c != NULL && c->cmsg_type == SCM_RIGHTS) {
        memcpy(&fd, CMSG_DATA(c), sizeof(fd));
    }
    take_stored(process, lines, fd);
    (void)find_line(lines, "STATUS", process->status_line, sizeof(process->status_line));
    process->watchdogs += find_line(lines, "WATCHDOG", value, sizeof(value));
    if (find_line(lines, "READY", value, sizeof(value))) {
        *is_ready_out = true;
        (void)snprintf(process->ready, sizeof(process->ready), "%.255s", lines);
    }
    return true;
}

unsigned
process_ready_number(const struct process *process, const char *name)
{
    char value[16];

    return find_line(process->ready, name, value, sizeof(value))
               ? (unsigned)strtoul(value, NULL, 10)
               : 0;
}

void
process_read_notify(struct process *process)
{
    bool is_ready = false;

    while (read_datagram(process, &is_ready)) {
    }
}

const char *
process_status(const struct process *process)
{
    return process->status_line;
}

unsigned
process_watchdogs(const struct process *process)
{
    return process->watchdogs;
}

void
process_store_close(struct process_store *store)
{
    while (store->count > 0) {
        (void)close(store->fds[--store->count]);
    }
}

void
process_wait_ready(struct process *process)
{
    struct pollfd fds[2] = {{.fd = process->notify, .events = POLLIN},
                            {.fd = process->pidfd, .events = POLLIN}};

    for (;;) {
        int count = poll(fds, 2, process_patience_ms());
        ck_assert_msg(count > 0 || (count < 0 && errno == EINTR), "%s: no READY=1 in %d ms",
                      process->program, process_patience_ms());
        if (count < 0) {
            continue;
        }
        bool is_ready = false;

        if ((fds[0].revents & POLLIN) != 0 && read_datagram(process, &is_ready) && is_ready) {
            return;
        }
        ck_assert_msg(fds[1].revents == 0, "%s ended with status %d before it was ready",
                      process->program, process_wait(process));
    }
}

/* Waits for output and takes it in; false at the end of it. */
static bool
read_output(struct process *process)
{
    struct pollfd fd = {.fd = process->out, .events = POLLIN};

    ck_assert_int_ge(process->out, 0);
    if (process->output == NULL) {
        process->output = calloc(1, OUTPUT_BYTES_MAX + 1);
        ck_assert_ptr_nonnull(process->output);
    }
    ck_assert_msg(poll(&fd, 1, process_patience_ms()) == 1, "%s: silent and not ended",
                  process->program);
    ssize_t got =
        read(process->out, process->output + process->length, OUTPUT_BYTES_MAX - process->length);
    ck_assert_int_ge(got, 0);
    process->length += (size_t)got;
    return got > 0;
}

void
process_wait_output(struct process *process)
{
    ck_assert_msg(read_output(process), "%s ended without output", process->program);
}

const char *
process_output(struct process *process)
{
    while (read_output(process)) {
    }
    return process->output;
}

pid_t
process_pid(const struct process *process)
{
    return process->pid;
}

void
process_signal(const struct process *process, int signo)
{
    ck_assert(!process->has_ended);
    ck_assert_int_eq(kill(process->pid, signo), 0);
}

/* Reads on, as a supervisor does: what ends takes back what it had stored, and waits to be heard.
 */
static void
await_end(struct process *process)
{
    struct pollfd fds[2] = {{.fd = process->pidfd, .events = POLLIN},
                            {.fd = process->notify, .events = POLLIN}};

    do {
        ck_assert_msg(poll(fds, 2, process_patience_ms()) > 0, "%s does not end", process->program);
        process_read_notify(process);
    } while (fds[0].revents == 0);
}

int
process_wait(struct process *process)
{
    if (!process->has_ended) {
        await_end(process);
        ck_assert_int_eq(waitpid(process->pid, &process->status, 0), process->pid);
        process->has_ended = true;
    }
    if (WIFSIGNALED(process->status)) {
        return 128 + WTERMSIG(process->status);
    }
    return WEXITSTATUS(process->status);
}

bool
process_has_ended(struct process *process)
{
    struct pollfd fd = {.fd = process->pidfd, .events = POLLIN};

    return process->has_ended || poll(&fd, 1, 0) == 1;
}

void
process_stop(struct process **process)
{
    if (!(*process)->has_ended) {
        process_signal(*process, SIGTERM);
    }
    int status = process_wait(*process);
    ck_assert_msg(status == 0, "%s ended with status %d", (*process)->program, status);
    process_destroy(process);
}

void
process_destroy(struct process **process)
{
    struct process *p = *process;

    if (p == NULL) {
        return;
    }
    if (!p->has_ended) {
        (void)kill(p->pid, SIGKILL);
        (void)waitpid(p->pid, NULL, 0);
    }
    process_read_notify(p);
    (void)close(p->pidfd);
    (void)close(p->notify);
    if (p->out >= 0) {
        (void)close(p->out);
    }
    free(p->output);
    free(p);
    *process = NULL;
}

int
process_count_fds(const struct process *process)
{
    char path[64];
    int count = 0;

    (void)snprintf(path, sizeof(path), "/proc/%d/fd", process->pid);
    DIR *folder = opendir(path);
    ck_assert_ptr_nonnull(folder);
    while (readdir(folder) != NULL) {
        count++;
    }
    (void)closedir(folder);
    return count - 2; /* without . and .. */
}

/* 0 for what is no thread, or has ended meanwhile. */
static uint64_t
read_wait_us(pid_t pid, pid_t thread)
{
    char path[64];
    unsigned long long ran_ns, waited_ns = 0;

    (void)snprintf(path, sizeof(path), "/proc/%d/task/%d/schedstat", (int)pid, (int)thread);
    FILE *file = fopen(path, "re");

    if (file == NULL) {
        return 0;
    }
    if (fscanf(file, "%llu %llu", &ran_ns, &waited_ns) != 2) {
        waited_ns = 0;
    }
    (void)fclose(file);
    return waited_ns / 1000;
}

void
process_waits_add(struct process_waits *waits, pid_t pid)
{
    char path[64];

    (void)snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *folder = opendir(path);

    ck_assert_msg(folder != NULL, "%s: %s", path, strerror(errno));
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        pid_t thread = (pid_t)strtol(entry->d_name, NULL, 10);

        if (thread > 0) {
            ck_assert_uint_lt(waits->count, PROCESS_THREADS_MAX);
            waits->threads[waits->count].thread = thread;
            waits->threads[waits->count++].waited_us = read_wait_us(pid, thread);
        }
    }
    (void)closedir(folder);
}

/* 0 for one that was not there: all its waiting was later. */
static uint64_t
find_wait_us(const struct process_waits *waits, pid_t thread)
{
    for (size_t i = 0; i < waits->count; i++) {
        if (waits->threads[i].thread == thread) {
            return waits->threads[i].waited_us;
        }
    }
    return 0;
}

uint64_t
process_waits_longest_us(const struct process_waits *before, const struct process_waits *after)
{
    uint64_t longest_us = 0;

    for (size_t i = 0; i < after->count; i++) {
        uint64_t before_us = find_wait_us(before, after->threads[i].thread);
        uint64_t after_us = after->threads[i].waited_us;

        if (after_us > before_us + longest_us) {
            longest_us = after_us - before_us;
        }
    }
    return longest_us;
}
