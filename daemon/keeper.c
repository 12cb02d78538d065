/* SPDX-License-Identifier: Apache-2.0 */
/* kvasir-keeper - runs kvasird where there is no systemd: starts it again when it dies, and keeps
 * its descriptors meanwhile.
 *
 * It speaks the supervisor's side of the protocol in common/notify.h and knows nothing of pools: it
 * holds descriptors by name.  So it is small, has no reason to change with kvasird, and an upgrade
 * is SIGUSR2: kvasird leaves everything, and the program is started anew from its path. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/conf.h"
#include "common/log.h"
#include "common/notify.h"

#define LINES_BYTES_MAX   4096
#define FDS_ASIDE         (3 + NOTIFY_FDS_MAX) /* out of the way of where they go */
#define STEADY_US         10000000u            /* a life so long was a good start */
#define BACKOFF_FIRST_US  100000u
#define BACKOFF_MAX_US    5000000u
#define ABORT_PATIENCE_US 5000000u /* from SIGABRT to SIGKILL */
#define NEVER_US          UINT64_MAX

struct options {
    uint64_t watchdog; /* ms; 0: off */
    uint64_t restarts;
    char *log_level;
};

static const struct conf_option option_table[] = {
    {"watchdog", CONF_DURATION, "30s", 0, 3600000, "TIME",
     "a program that is silent for so long is hung: it is killed and started again; 0: never",
     offsetof(struct options, watchdog)},
    {"restarts", CONF_U64, "10", 0, 1000000, "N",
     "starts in a row that may fail before the keeper gives up",
     offsetof(struct options, restarts)},
    {"log-level", CONF_STRING, "info", 0, 0, "LEVEL", "error, warn, info, debug or trace",
     offsetof(struct options, log_level)},
};

struct keeper {
    struct options options;
    char **argv; /* of the program */
    sigset_t signals_before;
    int signal_fd;
    int notify_fd;
    char notify_name[NOTIFY_NAME_BYTES];
    struct notify_fd kept[NOTIFY_FDS_MAX];
    size_t kept_count;

    pid_t child; /* 0: none runs */
    uint64_t started_us;
    uint64_t silent_at_us; /* when the watchdog bites; NEVER_US: not now */
    uint64_t start_at_us;  /* when to start it again; NEVER_US: not */
    uint64_t failures;     /* starts in a row that did not last */
    bool must_end;         /* told to stop: its end is ours */
    bool must_replace;     /* told to leave: a clean end is not ours */
    bool was_aborted;
    int exit_code;
    bool is_over;
};

/* --- starting --------------------------------------------------------------------------------- */

/* In the child: what is kept becomes 3, 4, ..., and the environment says so. */
static void
pass_kept(const struct keeper *k)
{
    static char names[NOTIFY_FDS_MAX * (NOTIFY_NAME_BYTES + 1)];
    int aside[NOTIFY_FDS_MAX];
    char number[24];
    size_t length = 0;

    for (size_t i = 0; i < k->kept_count; i++) {
        aside[i] = fcntl(k->kept[i].fd, F_DUPFD_CLOEXEC, FDS_ASIDE);
        length += (size_t)snprintf(names + length, sizeof(names) - length, "%s%s",
                                   i == 0 ? "" : ":", k->kept[i].name);
    }
    for (size_t i = 0; i < k->kept_count; i++) {
        if (aside[i] < 0 || dup2(aside[i], 3 + (int)i) < 0) {
            _exit(127);
        }
    }
    (void)snprintf(number, sizeof(number), "%zu", k->kept_count);
    (void)setenv("LISTEN_FDS", number, 1);
    (void)setenv("LISTEN_FDNAMES", names, 1);
    (void)snprintf(number, sizeof(number), "%d", (int)getpid());
    (void)setenv("LISTEN_PID", number, 1);
}

static _Noreturn void
become_program(const struct keeper *k, pid_t keeper)
{
    char number[24];

    /* Without us nobody would keep anything: it stops in good order. */
    if (prctl(PR_SET_PDEATHSIG, SIGTERM) != 0 || getppid() != keeper) {
        _exit(127);
    }
    (void)sigprocmask(SIG_SETMASK, &k->signals_before, NULL);
    (void)setenv("NOTIFY_SOCKET", k->notify_name, 1);
    (void)unsetenv("WATCHDOG_USEC");
    if (k->options.watchdog > 0) {
        (void)snprintf(number, sizeof(number), "%llu",
                       (unsigned long long)k->options.watchdog * 1000);
        (void)setenv("WATCHDOG_USEC", number, 1);
        (void)snprintf(number, sizeof(number), "%d", (int)getpid());
        (void)setenv("WATCHDOG_PID", number, 1);
    }
    if (k->kept_count > 0) {
        pass_kept(k);
    }
    (void)execvp(k->argv[0], k->argv);
    (void)fprintf(stderr, "kvasir-keeper: %s: %s\n", k->argv[0], strerror(errno));
    _exit(127);
}

static enum status
start_program(struct keeper *k)
{
    pid_t self = getpid();
    pid_t child = fork();

    if (child < 0) {
        return ERR(ST_SYSTEM, "fork: %s", strerror(errno));
    }
    if (child == 0) {
        become_program(k, self);
    }
    k->child = child;
    k->started_us = clock_now_us();
    k->start_at_us = k->silent_at_us = NEVER_US; /* the watchdog begins with READY=1 */
    k->was_aborted = false;
    log_info("started", "program=%s pid=%d kept=%zu", k->argv[0], (int)child, k->kept_count);
    return ST_OK;
}

/* --- its end ---------------------------------------------------------------------------------- */

static void
end_keeper(struct keeper *k, int code)
{
    k->is_over = true;
    k->exit_code = code;
}

static void
plan_restart(struct keeper *k, bool was_clean)
{
    uint64_t now_us = clock_now_us();
    uint64_t wait_us = 0;

    if (now_us - k->started_us >= STEADY_US || was_clean) {
        k->failures = 0;
    }
    if (!was_clean) {
        k->failures++;
        wait_us =
            k->failures == 1 ? 0 : BACKOFF_FIRST_US << (k->failures > 7 ? 6 : k->failures - 2);
    }
    k->start_at_us = now_us + (wait_us < BACKOFF_MAX_US ? wait_us : BACKOFF_MAX_US);
}

/* What the program was told decides first, then how it ended. */
static void
take_end(struct keeper *k, int status)
{
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    bool is_usage = code == CONF_EXIT_USAGE || code == 127;

    log_info("ended", "program=%s pid=%d code=%d", k->argv[0], (int)k->child, code);
    k->child = 0;
    k->silent_at_us = NEVER_US;
    if (k->must_end) {
        end_keeper(k, code);
    } else if (code == 0 && k->must_replace) {
        k->must_replace = false;
        plan_restart(k, true);
    } else if (code == 0 || is_usage) {
        end_keeper(k, code);
    } else {
        plan_restart(k, false);
        if (k->failures > k->options.restarts) {
            log_error("given_up", "program=%s starts=%llu", k->argv[0],
                      (unsigned long long)k->failures);
            end_keeper(k, code);
        }
    }
}

static void
reap(struct keeper *k)
{
    int status;

    if (k->child != 0 && waitpid(k->child, &status, WNOHANG) == k->child) {
        take_end(k, status);
    }
}

/* --- signals ---------------------------------------------------------------------------------- */

static void
pass_on(const struct keeper *k, int signo)
{
    if (k->child != 0) {
        (void)kill(k->child, signo);
    }
}

static void
take_signals(struct keeper *k)
{
    struct signalfd_siginfo info;

    while (read(k->signal_fd, &info, sizeof(info)) == sizeof(info)) {
        int signo = (int)info.ssi_signo;

        if (signo == SIGCHLD) {
            continue; /* reap() looks after every turn */
        }
        k->must_end |= signo == SIGTERM || signo == SIGINT;
        k->must_replace |= signo == SIGUSR2;
        pass_on(k, signo);
        if (k->must_end && k->child == 0) {
            end_keeper(k, 0);
        }
    }
}

static enum status
open_signals(struct keeper *k)
{
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGHUP);
    (void)sigaddset(&set, SIGUSR2);
    (void)sigaddset(&set, SIGCHLD);
    if (sigprocmask(SIG_BLOCK, &set, &k->signals_before) != 0) {
        return ERR(ST_SYSTEM, "sigprocmask: %s", strerror(errno));
    }
    k->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return k->signal_fd < 0 ? ERR(ST_SYSTEM, "signalfd: %s", strerror(errno)) : ST_OK;
}

/* --- what the program says -------------------------------------------------------------------- */

/* An abstract socket: nothing is left behind.  Anybody may send to it, so each datagram brings the
 * sender's pid, as the kernel knows it, and only the program itself counts. */
static enum status
open_notify(struct keeper *k)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int on = 1;
    int length =
        snprintf(k->notify_name, sizeof(k->notify_name), "@kvasir-keeper-%d", (int)getpid());

    memcpy(addr.sun_path, k->notify_name, (size_t)length);
    addr.sun_path[0] = '\0';
    k->notify_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (k->notify_fd < 0 || setsockopt(k->notify_fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0
        || bind(k->notify_fd, (const struct sockaddr *)&addr,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)length))
               != 0) {
        return ERR(ST_SYSTEM, "notify socket: %s", strerror(errno));
    }
    return ST_OK;
}

/* The value of a line "NAME=value", or false. */
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
drop_kept(struct keeper *k, const char *name)
{
    for (size_t i = k->kept_count; i-- > 0;) {
        if (strcmp(k->kept[i].name, name) == 0) {
            (void)close(k->kept[i].fd);
            k->kept[i] = k->kept[--k->kept_count];
        }
    }
}

/* One descriptor a name: the last one given counts.  Takes over `fd`. */
static void
keep(struct keeper *k, const char *name, int fd)
{
    drop_kept(k, name);
    if (k->kept_count == NOTIFY_FDS_MAX || name[0] == '\0' || strchr(name, ':') != NULL) {
        log_warn("not_kept", "kept=%zu of=%d", k->kept_count, NOTIFY_FDS_MAX);
        (void)close(fd);
        return;
    }
    k->kept[k->kept_count].fd = fd;
    (void)snprintf(k->kept[k->kept_count].name, NOTIFY_NAME_BYTES, "%s", name);
    k->kept_count++;
}

/* Takes over `fd`, -1: none came. */
static void
take_lines(struct keeper *k, const char *lines, int fd)
{
    char name[NOTIFY_NAME_BYTES] = "", value[16];
    bool is_store = find_line(lines, "FDSTORE", value, sizeof(value));
    bool is_remove = find_line(lines, "FDSTOREREMOVE", value, sizeof(value));

    (void)find_line(lines, "FDNAME", name, sizeof(name));
    if (is_remove) {
        drop_kept(k, name);
    }
    if (fd >= 0 && is_store) {
        keep(k, name, fd);
    } else if (fd >= 0) {
        (void)close(fd);
    }
    if ((find_line(lines, "READY", value, sizeof(value))
         || find_line(lines, "WATCHDOG", value, sizeof(value)))
        && k->options.watchdog > 0 && !k->was_aborted) {
        k->silent_at_us = clock_now_us() + k->options.watchdog * 1000;
    }
    if (!is_store && !is_remove) {
        (void)notify_send(lines); /* our own supervisor, if there is one, sees it as ours */
    }
}

/* One datagram; false if there is none. */
static bool
read_notify(struct keeper *k)
{
    char lines[LINES_BYTES_MAX];
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec iov = {.iov_base = lines, .iov_len = sizeof(lines) - 1};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    ssize_t length = recvmsg(k->notify_fd, &message, MSG_CMSG_CLOEXEC);
    struct ucred sender = {0};
    int fd = -1;

    if (length < 0) {
        return false;
    }
    lines[length] = '\0';
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c != NULL; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS) {
            memcpy(&sender, CMSG_DATA(c), sizeof(sender));
        } else if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
            memcpy(&fd, CMSG_DATA(c), sizeof(fd)); /* room for one; the kernel closes the rest */
        }
    }
    if (k->child != 0 && sender.pid == k->child) {
        take_lines(k, lines, fd);
    } else if (fd >= 0) {
        (void)close(fd);
    }
    return true;
}

/* --- the loop --------------------------------------------------------------------------------- */

/* SIGABRT leaves a core to look into; what does not even die of that gets SIGKILL. */
static void
bite(struct keeper *k)
{
    log_error("hung", "program=%s pid=%d silent_ms=%llu signal=%s", k->argv[0], (int)k->child,
              (unsigned long long)k->options.watchdog, k->was_aborted ? "KILL" : "ABRT");
    pass_on(k, k->was_aborted ? SIGKILL : SIGABRT);
    pass_on(k, SIGCONT); /* one that is stopped would not hear it */
    k->silent_at_us = k->was_aborted ? NEVER_US : clock_now_us() + ABORT_PATIENCE_US;
    k->was_aborted = true;
}

static int
timeout_ms(const struct keeper *k)
{
    uint64_t until_us = k->silent_at_us < k->start_at_us ? k->silent_at_us : k->start_at_us;
    uint64_t now_us = clock_now_us();

    if (until_us == NEVER_US) {
        return -1;
    }
    return until_us <= now_us ? 0 : (int)((until_us - now_us + 999) / 1000);
}

static enum status
turn(struct keeper *k)
{
    struct pollfd fds[] = {{.fd = k->signal_fd, .events = POLLIN},
                           {.fd = k->notify_fd, .events = POLLIN}};

    if (poll(fds, 2, timeout_ms(k)) < 0 && errno != EINTR) {
        return ERR(ST_SYSTEM, "poll: %s", strerror(errno));
    }
    take_signals(k);
    while (read_notify(k)) { /* before the end is seen: its last words count */
    }
    reap(k);
    if (!k->is_over && k->child != 0 && clock_now_us() >= k->silent_at_us) {
        bite(k);
    }
    if (!k->is_over && k->child == 0 && clock_now_us() >= k->start_at_us) {
        TRY(start_program(k));
    }
    return ST_OK;
}

static int
run(struct keeper *k)
{
    enum status st;

    log_init("kvasir-keeper", (enum log_level)log_level_parse(k->options.log_level));
    st = open_signals(k);
    if (st == ST_OK) {
        st = open_notify(k);
    }
    while (st == ST_OK && !k->is_over) {
        st = turn(k);
    }
    if (st != ST_OK) {
        log_error("failed", "status=%s detail=\"%s\"", status_name(st), status_detail());
        pass_on(k, SIGTERM);
    }
    return st == ST_OK ? k->exit_code : EXIT_FAILURE;
}

static void
print_help(struct conf conf)
{
    (void)printf("Usage: kvasir-keeper [OPTION]... PROGRAM [ARGUMENT]...\n"
                 "Runs kvasird, starts it again when it dies, and keeps its pool meanwhile.\n\n");
    conf_print_help(conf, stdout);
}

/* Only what stands before the program is ours.  *own_argc_out is how much that is. */
static enum status
read_options(struct keeper *k, struct conf conf, int argc, char **argv, int *own_argc_out)
{
    const char *path;

    TRY(conf_defaults(conf));
    TRY(conf_parse_args(conf, argc, argv, own_argc_out));
    path = conf_config_path(*own_argc_out, argv);
    if (path != NULL) {
        TRY(conf_read_file(conf, path));
        TRY(conf_parse_args(conf, argc, argv, own_argc_out)); /* the command line wins */
    }
    TRY(log_level_check(k->options.log_level));
    k->argv = argv + *own_argc_out;
    return ST_OK;
}

int
main(int argc, char **argv)
{
    static struct keeper k = {.signal_fd = -1, .notify_fd = -1, .silent_at_us = NEVER_US};
    struct conf conf = {option_table, sizeof(option_table) / sizeof(option_table[0]), &k.options};
    int own_argc = argc;
    int code = EXIT_SUCCESS;

    if (read_options(&k, conf, argc, argv, &own_argc) != ST_OK) {
        (void)fprintf(stderr, "kvasir-keeper: %s\n", status_detail());
        code = CONF_EXIT_USAGE;
    } else if (conf_scan(own_argc, argv, "help")) {
        print_help(conf);
    } else if (conf_scan(own_argc, argv, "version")) {
        (void)printf("kvasir-keeper %s\n", PACKAGE_VERSION);
    } else if (conf_scan(own_argc, argv, "print-config")) {
        conf_print_sample(conf, stdout);
    } else if (own_argc == argc) {
        (void)fprintf(stderr, "kvasir-keeper: no program to run; --help says more\n");
        code = CONF_EXIT_USAGE;
    } else {
        code = run(&k);
    }
    conf_deinit(conf);
    return code;
}
