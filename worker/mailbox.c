/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/mailbox.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/mem.h"
#include "common/spin.h"

struct in_slot {
    struct wire_arena *arena;
    const Kvasir__V1__DaemonMessage *message; /* in it */
    uint64_t steps;                           /* when it came */
};

struct mailbox {
    pthread_mutex_t mutex; /* all below but the contents of slots, which their holder owns */
    pthread_cond_t changed;
    int event_fd;
    bool is_closed;
    bool is_nudged;
    struct in_slot in[MAILBOX_IN_MAX];
    struct wire_buffer *out[MAILBOX_OUT_MAX];
    /* Stacks: what was used last is used next, so that in quiet times the same few grow and are
     * touched, however many there are for busy ones. */
    struct wire_arena *arenas[MAILBOX_IN_MAX];
    struct wire_buffer *buffers[MAILBOX_OUT_MAX];
    uint32_t arena_count, buffer_count;
    struct wire_arena *reading;  /* the link parses into it; NULL: it has not asked */
    struct wire_buffer *writing; /* the engine packs into it, likewise */
    struct wire_buffer storage[MAILBOX_OUT_MAX];
    uint64_t in_head, in_tail; /* taken, delivered; counts, not indices */
    uint64_t out_head, out_tail;
    struct mailbox_state state;
    atomic_ullong news; /* deliveries, and the end: for mailbox_spin, which takes no lock */
};

enum status
mailbox_new(struct mailbox **mailbox_out)
{
    enum status st = ST_OK;
    struct mailbox *mailbox = mem_zalloc(1, sizeof(*mailbox));

    if (mailbox == NULL) {
        return ERR(ST_NO_MEMORY, "a mailbox");
    }
    (void)pthread_mutex_init(&mailbox->mutex, NULL);
    (void)pthread_cond_init(&mailbox->changed, NULL);
    mailbox->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (mailbox->event_fd < 0) {
        st = ERR(ST_SYSTEM, "eventfd: %s", strerror(errno));
    }
    while (st == ST_OK && mailbox->arena_count < MAILBOX_IN_MAX) {
        st = wire_arena_new(&mailbox->arenas[mailbox->arena_count]);
        mailbox->arena_count += st == ST_OK;
    }
    while (mailbox->buffer_count < MAILBOX_OUT_MAX) {
        mailbox->buffers[mailbox->buffer_count] = &mailbox->storage[mailbox->buffer_count];
        mailbox->buffer_count++;
    }
    if (st != ST_OK) {
        mailbox_destroy(&mailbox);
        return st;
    }
    *mailbox_out = mailbox;
    return ST_OK;
}

void
mailbox_destroy(struct mailbox **mailbox)
{
    struct mailbox *m = *mailbox;

    if (m == NULL) {
        return;
    }
    while (m->in_head < m->in_tail) {
        wire_arena_destroy(&m->in[m->in_head++ % MAILBOX_IN_MAX].arena);
    }
    while (m->arena_count > 0) {
        wire_arena_destroy(&m->arenas[--m->arena_count]);
    }
    wire_arena_destroy(&m->reading);
    for (size_t i = 0; i < MAILBOX_OUT_MAX; i++) {
        wire_buffer_deinit(&m->storage[i]);
    }
    if (m->event_fd >= 0) {
        (void)close(m->event_fd);
    }
    (void)pthread_cond_destroy(&m->changed);
    (void)pthread_mutex_destroy(&m->mutex);
    MEM_FREE(*mailbox);
}

static void
lock(struct mailbox *mailbox)
{
    (void)pthread_mutex_lock(&mailbox->mutex);
}

static void
unlock(struct mailbox *mailbox)
{
    (void)pthread_mutex_unlock(&mailbox->mutex);
}

static void
wake_link(struct mailbox *mailbox)
{
    ssize_t n;

    /* EAGAIN: it is awake 2^64 - 1 times already. */
    do {
        n = write(mailbox->event_fd, &(uint64_t){1}, sizeof(uint64_t));
    } while (n < 0 && errno == EINTR);
}

int
mailbox_fd(const struct mailbox *mailbox)
{
    return mailbox->event_fd;
}

void
mailbox_clear_fd(struct mailbox *mailbox)
{
    uint64_t count;
    ssize_t n;

    do {
        n = read(mailbox->event_fd, &count, sizeof(count));
    } while (n < 0 && errno == EINTR);
}

struct wire_arena *
mailbox_next_arena(struct mailbox *mailbox)
{
    lock(mailbox);
    if (mailbox->reading == NULL && mailbox->arena_count > 0) {
        mailbox->reading = mailbox->arenas[--mailbox->arena_count];
    }
    struct wire_arena *arena = mailbox->reading;

    unlock(mailbox);
    return arena;
}

void
mailbox_deliver(struct mailbox *mailbox, const Kvasir__V1__DaemonMessage *message)
{
    lock(mailbox);
    assert(mailbox->reading != NULL);
    mailbox->in[mailbox->in_tail % MAILBOX_IN_MAX] = (struct in_slot){
        .arena = mailbox->reading, .message = message, .steps = mailbox->state.steps};
    mailbox->reading = NULL;
    mailbox->in_tail++;
    mailbox->state.is_idle = false;
    atomic_fetch_add(&mailbox->news, 1);
    (void)pthread_cond_signal(&mailbox->changed);
    unlock(mailbox);
}

const struct wire_buffer *
mailbox_outgoing(struct mailbox *mailbox)
{
    lock(mailbox);
    bool is_empty = mailbox->out_head == mailbox->out_tail;
    const struct wire_buffer *buffer = mailbox->out[mailbox->out_head % MAILBOX_OUT_MAX];

    unlock(mailbox);
    return is_empty ? NULL : buffer;
}

void
mailbox_sent(struct mailbox *mailbox)
{
    lock(mailbox);
    assert(mailbox->out_head < mailbox->out_tail);
    mailbox->buffers[mailbox->buffer_count++] = mailbox->out[mailbox->out_head % MAILBOX_OUT_MAX];
    mailbox->out_head++;
    (void)pthread_cond_signal(&mailbox->changed);
    unlock(mailbox);
}

struct mailbox_state
mailbox_state(struct mailbox *mailbox)
{
    lock(mailbox);
    struct mailbox_state state = mailbox->state;

    unlock(mailbox);
    return state;
}

void
mailbox_close(struct mailbox *mailbox)
{
    lock(mailbox);
    mailbox->is_closed = true;
    atomic_fetch_add(&mailbox->news, 1);
    (void)pthread_cond_signal(&mailbox->changed);
    unlock(mailbox);
}

bool
mailbox_is_closed(struct mailbox *mailbox)
{
    lock(mailbox);
    bool is_closed = mailbox->is_closed;

    unlock(mailbox);
    return is_closed;
}

void
mailbox_nudge(struct mailbox *mailbox)
{
    lock(mailbox);
    mailbox->is_nudged = true;
    atomic_fetch_add(&mailbox->news, 1);
    (void)pthread_cond_broadcast(&mailbox->changed);
    unlock(mailbox);
}

void
mailbox_spin(struct mailbox *mailbox, uint64_t busy_us)
{
    unsigned long long seen;
    bool has_none;

    lock(mailbox);
    seen = atomic_load(&mailbox->news);
    has_none = !mailbox->is_closed && !mailbox->is_nudged && mailbox->in_head == mailbox->in_tail;
    unlock(mailbox);
    if (has_none) {
        spin_while_equal(&mailbox->news, seen, busy_us);
    }
}

const Kvasir__V1__DaemonMessage *
mailbox_take(struct mailbox *mailbox, bool may_wait)
{
    const Kvasir__V1__DaemonMessage *message = NULL;

    lock(mailbox);
    if (may_wait && mailbox->in_head == mailbox->in_tail && mailbox->state.open == 0) {
        mailbox->state.is_idle = true;
        wake_link(mailbox);
    }
    while (may_wait && !mailbox->is_closed && !mailbox->is_nudged
           && mailbox->in_head == mailbox->in_tail) {
        (void)pthread_cond_wait(&mailbox->changed, &mailbox->mutex);
    }
    mailbox->is_nudged = mailbox->is_nudged && !may_wait;
    if (!mailbox->is_closed && mailbox->in_head < mailbox->in_tail) {
        message = mailbox->in[mailbox->in_head % MAILBOX_IN_MAX].message;
    }
    unlock(mailbox);
    return message;
}

uint64_t
mailbox_taken(struct mailbox *mailbox)
{
    lock(mailbox);
    bool was_full = mailbox->arena_count == 0;
    struct in_slot *slot = &mailbox->in[mailbox->in_head % MAILBOX_IN_MAX];
    uint64_t steps = slot->steps;

    wire_arena_reset(slot->arena);
    mailbox->arenas[mailbox->arena_count++] = slot->arena;
    mailbox->in_head++;
    if (was_full) {
        wake_link(mailbox);
    }
    unlock(mailbox);
    return steps;
}

struct wire_buffer *
mailbox_buffer(struct mailbox *mailbox)
{
    lock(mailbox);
    while (!mailbox->is_closed && mailbox->writing == NULL && mailbox->buffer_count == 0) {
        (void)pthread_cond_wait(&mailbox->changed, &mailbox->mutex);
    }
    if (mailbox->writing == NULL && mailbox->buffer_count > 0) {
        mailbox->writing = mailbox->buffers[--mailbox->buffer_count];
    }
    struct wire_buffer *buffer = mailbox->is_closed ? NULL : mailbox->writing;

    unlock(mailbox);
    return buffer;
}

void
mailbox_post(struct mailbox *mailbox)
{
    lock(mailbox);
    assert(mailbox->writing != NULL);
    mailbox->out[mailbox->out_tail++ % MAILBOX_OUT_MAX] = mailbox->writing;
    mailbox->writing = NULL;
    wake_link(mailbox);
    unlock(mailbox);
}

void
mailbox_set_state(struct mailbox *mailbox, uint64_t steps, uint32_t open, bool is_stepping)
{
    lock(mailbox);
    mailbox->state.steps = steps;
    mailbox->state.open = open;
    mailbox->state.is_stepping = is_stepping;
    unlock(mailbox);
}

void
mailbox_end(struct mailbox *mailbox, enum status status, const char *detail)
{
    lock(mailbox);
    mailbox->state.is_ended = true;
    mailbox->state.is_stepping = false;
    mailbox->state.status = status;
    (void)snprintf(mailbox->state.detail, sizeof(mailbox->state.detail), "%s", detail);
    wake_link(mailbox);
    unlock(mailbox);
}
