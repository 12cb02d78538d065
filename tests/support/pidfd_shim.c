/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into programs under valgrind (test_valgrind.sh), whose 3.19 does not know pidfd_open:
 * an eventfd that a thread makes readable when the process is gone stands in for the pidfd. */
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOOK_EVERY_MS 5

long syscall(long number, ...);

/* `opaque` is the pid and a copy of the eventfd of our own: the caller closes its copy when it
 * likes. */
static void *
watch(void *opaque)
{
    uintptr_t packed = (uintptr_t)opaque;
    pid_t pid = (pid_t)(packed >> 16);
    int fd = (int)(packed & 0xffff);

    while (kill(pid, 0) == 0 || errno != ESRCH) {
        (void)poll(NULL, 0, LOOK_EVERY_MS);
    }
    (void)eventfd_write(fd, 1);
    (void)close(fd);
    return NULL;
}

static long
open_stand_in(pid_t pid)
{
    pthread_t thread;
    int fd = eventfd(0, EFD_CLOEXEC);
    int copy = dup(fd);

    if (fd < 0 || copy < 0 || copy > 0xffff
        || pthread_create(&thread, NULL, watch, (void *)((uintptr_t)pid << 16 | (uintptr_t)copy))
               != 0) {
        errno = EMFILE;
        return -1;
    }
    (void)pthread_detach(thread);
    return fd;
}

long
syscall(long number, ...)
{
    static long (*next)(long, ...);
    long arg[6];
    va_list args;

    va_start(args, number);
    for (int i = 0; i < 6; i++) {
        arg[i] = va_arg(args, long);
    }
    va_end(args);
    if (number == SYS_pidfd_open) {
        return open_stand_in((pid_t)arg[0]);
    }
    if (next == NULL) {
        *(void **)&next = dlsym(RTLD_NEXT, "syscall");
    }
    return next(number, arg[0], arg[1], arg[2], arg[3], arg[4], arg[5]);
}
