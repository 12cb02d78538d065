/* SPDX-License-Identifier: Apache-2.0 */
/* hub - the gateway's side towards kvasird: any number of calls over one connection, and an eye on
 * the sockets of HTTP clients.
 *
 * One thread does all of it.  Calls may be made and cancelled from any thread; their replies come
 * back in the hub's thread.  It is the same thread that notices when a client hangs up, because
 * the HTTP library does not look at a connection that waits (traps: a client that is gone must
 * free its blocks at once).
 *
 * Loss of the daemon ends every open call with UNAVAILABLE, but for Generate: that goes on at the
 * next one (retry.h), and its reader notices a pause, as long as requests fit into what is kept for
 * that.  The hub connects again by itself. */
#ifndef GATEWAY_HUB_H
#define GATEWAY_HUB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include "common/list.h"
#include "common/status.h"
#include "proto/methods.h"
#include "proto/wire.h"

#define HUB_TENANT_BYTES    64 /* of a name, with its NUL */
#define HUB_RETRY_BYTES_MAX (256u << 20)
#define HUB_TICK_MS         250 /* how exact deadlines, pings and attempts to connect are */

struct hub;

/* One reply of a call, borrowed for the time of the callback. */
struct hub_reply {
    const ProtobufCMessage *message; /* of the method's type; NULL with a code other than RPC_OK */
    uint32_t code;                   /* canonical gRPC code; RPC_OK while there is more */
    const char *detail;              /* for people, "" if all is well */
    uint32_t retry_after_ms;
    bool is_last;
};

typedef void (*hub_reply_fn)(void *opaque, const struct hub_reply *reply);

struct hub_call {
    enum method_id method;
    const ProtobufCMessage *request; /* NULL: an empty message; only read during hub_call */
    const char *tenant;              /* whose documents it is about; NULL, "": nobody's; copied */
    uint32_t timeout_ms;             /* 0: the daemon's default, and no limit of ours */
    hub_reply_fn on_reply;           /* in the hub's thread; holds no lock of the hub */
    void *opaque;
};

struct hub_config {
    const char *url;   /* of kvasird; copied */
    uint32_t retry_ms; /* how long a lost answer looks for the next kvasird; 0: not at all */
    /* Of requests that are kept for that, in all; the others end with the loss.  What has come of
     * their answers is not in it. */
    size_t retry_bytes_max;
    /* Told whenever a connection has been made or lost; in the hub's thread, perhaps before hub_new
     * has returned. */
    void (*on_connection)(void *opaque, struct hub *hub, bool is_connected);
    void *opaque;
};

enum status hub_new(const struct hub_config *config, struct hub **hub_out);

/* Ends all open calls with UNAVAILABLE, then the thread. */
void hub_destroy(struct hub **hub);

/* Makes a call.  With ST_OK on_reply runs, and exactly once with is_last; *id_out is written before
 * that.  ST_NO_MEMORY, ST_INVALID (too large): it never runs. */
enum status hub_call(struct hub *hub, const struct hub_call *call, uint64_t *id_out);

/* The call ends soon, with CANCELLED if it was not faster.  An unknown or ended id is fine. */
void hub_cancel(struct hub *hub, uint64_t id);

bool hub_is_connected(struct hub *hub);

/* ---- clients --------------------------------------------------------------------------------- */

/* A client's socket under watch; embedded in what it belongs to.  The functions run in the hub's
 * thread (or in hub_hang_up_all), never again once hub_unwatch has returned.  They must not call
 * hub_watch/hub_unwatch. */
struct hub_watch {
    int fd;
    void (*on_hangup)(struct hub_watch *watch);                /* once */
    void (*on_tick)(struct hub_watch *watch, uint64_t now_us); /* every HUB_TICK_MS */
    struct list_node link;
};

enum status hub_watch(struct hub *hub, struct hub_watch *watch);
void hub_unwatch(struct hub *hub, struct hub_watch *watch);

/* As if every client had hung up. */
void hub_hang_up_all(struct hub *hub);

#endif
