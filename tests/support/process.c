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

#define OUTPUT_BYTES_MAX (4u << 20)
#define NOTIFY_NAME_MAX  64

struct process {
    char program[128]; /* for messages */
    pid_t pid;
    int pidfd;
    int notify;   /* the datagram socket of its NOTIFY_SOCKET */
    int out;      /* its stdout, or -1 */
    char *output; /* what came out so far; NUL-terminated */
    size_t length;
    bool has_ended;
    int status; /* of waitpid, once it has ended */
};

static int
timeout_ms(void)
{
    return getenv("KVASIR_TEST_WRAPPER") == NULL ? PROCESS_TIMEOUT_MS : 10 * PROCESS_TIMEOUT_MS;
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
start(const char *program, const char *const *args, const char *const *env, bool is_piped)
{
    struct process *process = calloc(1, sizeof(*process));
    char notify_name[NOTIFY_NAME_MAX];
    int pipe_fds[2] = {-1, -1};
    pid_t parent = getpid();

    ck_assert_ptr_nonnull(process);
    (void)snprintf(process->program, sizeof(process->program), "%s", program);
    process->notify = open_notify(notify_name);
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
    return start(program, args, env, false);
}

struct process *
process_start_piped(const char *program, const char *const *args, const char *const *env)
{
    return start(program, args, env, true);
}

/* True once the datagram with READY=1 has come. */
static bool
read_notify(struct process *process)
{
    char lines[4096];
    ssize_t length = recv(process->notify, lines, sizeof(lines) - 1, 0);

    if (length < 0) {
        ck_assert_int_eq(errno, EAGAIN);
        return false;
    }
    lines[length] = '\0';
    return strstr(lines, "READY=1") != NULL;
}

void
process_wait_ready(struct process *process)
{
    struct pollfd fds[2] = {{.fd = process->notify, .events = POLLIN},
                            {.fd = process->pidfd, .events = POLLIN}};

    for (;;) {
        int count = poll(fds, 2, timeout_ms());
        ck_assert_msg(count > 0 || (count < 0 && errno == EINTR), "%s: no READY=1 in %d ms",
                      process->program, timeout_ms());
        if (count < 0) {
            continue;
        }
        if ((fds[0].revents & POLLIN) != 0 && read_notify(process)) {
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
    ck_assert_msg(poll(&fd, 1, timeout_ms()) == 1, "%s: silent and not ended", process->program);
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

int
process_wait(struct process *process)
{
    struct pollfd fd = {.fd = process->pidfd, .events = POLLIN};

    if (!process->has_ended) {
        ck_assert_msg(poll(&fd, 1, timeout_ms()) == 1, "%s does not end", process->program);
        ck_assert_int_eq(waitpid(process->pid, &process->status, 0), process->pid);
        process->has_ended = true;
    }
    if (WIFSIGNALED(process->status)) {
        return 128 + WTERMSIG(process->status);
    }
    return WEXITSTATUS(process->status);
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
