/* SPDX-License-Identifier: Apache-2.0 */
/* watches - the sockets of HTTP clients that the hub's thread keeps an eye on (hub.h).
 *
 * One lock, held while functions of a watch run: so watches_remove can promise that none runs
 * afterwards. */
#ifndef GATEWAY_WATCHES_H
#define GATEWAY_WATCHES_H

#include <pthread.h>
#include <stdint.h>

#include "gateway/hub.h"

struct watches {
    pthread_mutex_t lock;
    struct list_node list; /* of hub_watch.link */
    int epoll_fd;          /* readable when somebody may have hung up */
};

void watches_init(struct watches *watches);
enum status watches_open(struct watches *watches);
void watches_deinit(struct watches *watches);

enum status watches_add(struct watches *watches, struct hub_watch *watch);
void watches_remove(struct watches *watches, struct hub_watch *watch);
void watches_hang_up_all(struct watches *watches);

/* Of the hub's thread. */
void watches_take_hangups(struct watches *watches);
void watches_tick(struct watches *watches, uint64_t now_us);

#endif
