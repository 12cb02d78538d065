/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/watches.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define HANGUPS_A_TURN 64

void
watches_init(struct watches *watches)
{
    watches->epoll_fd = -1;
    (void)pthread_mutex_init(&watches->lock, NULL);
    list_init(&watches->list);
}

enum status
watches_open(struct watches *watches)
{
    watches->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    return watches->epoll_fd >= 0 ? ST_OK : ERR(ST_SYSTEM, "epoll_create1: %s", strerror(errno));
}

void
watches_deinit(struct watches *watches)
{
    if (watches->epoll_fd >= 0) {
        (void)close(watches->epoll_fd);
    }
    (void)pthread_mutex_destroy(&watches->lock);
}

enum status
watches_add(struct watches *watches, struct hub_watch *watch)
{
    /* Edge-triggered: one who has hung up is told once, not in every turn until he is closed. */
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLET, .data.ptr = watch};
    enum status st = ST_OK;

    (void)pthread_mutex_lock(&watches->lock);
    if (epoll_ctl(watches->epoll_fd, EPOLL_CTL_ADD, watch->fd, &event) != 0) {
        st = ERR(ST_SYSTEM, "epoll_ctl: %s", strerror(errno));
    } else {
        list_push_back(&watches->list, &watch->link);
    }
    (void)pthread_mutex_unlock(&watches->lock);
    return st;
}

void
watches_remove(struct watches *watches, struct hub_watch *watch)
{
    (void)pthread_mutex_lock(&watches->lock);
    (void)epoll_ctl(watches->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
    list_unlink(&watch->link);
    (void)pthread_mutex_unlock(&watches->lock);
}

void
watches_hang_up_all(struct watches *watches)
{
    (void)pthread_mutex_lock(&watches->lock);
    LIST_FOR_EACH(node, &watches->list)
    {
        struct hub_watch *watch = LIST_ENTRY(node, struct hub_watch, link);

        watch->on_hangup(watch);
    }
    (void)pthread_mutex_unlock(&watches->lock);
}

void
watches_take_hangups(struct watches *watches)
{
    struct epoll_event events[HANGUPS_A_TURN];

    (void)pthread_mutex_lock(&watches->lock);
    /* Read and served under one hold of the lock: what is removed meanwhile is in no event. */
    int count = epoll_wait(watches->epoll_fd, events, HANGUPS_A_TURN, 0);

    for (int i = 0; i < count; i++) {
        struct hub_watch *watch = events[i].data.ptr;

        watch->on_hangup(watch);
    }
    (void)pthread_mutex_unlock(&watches->lock);
}

void
watches_tick(struct watches *watches, uint64_t now_us)
{
    (void)pthread_mutex_lock(&watches->lock);
    LIST_FOR_EACH(node, &watches->list)
    {
        struct hub_watch *watch = LIST_ENTRY(node, struct hub_watch, link);

        watch->on_tick(watch, now_us);
    }
    (void)pthread_mutex_unlock(&watches->lock);
}
