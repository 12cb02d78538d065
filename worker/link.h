/* SPDX-License-Identifier: Apache-2.0 */
/* link - a worker's talk with kvasird while it serves; the only zmq here.
 *
 * The calling thread keeps the socket and the heartbeats, also during long steps; one more thread
 * runs the engine.  Between them: mailbox.h. */
#ifndef WORKER_LINK_H
#define WORKER_LINK_H

#include "common/status.h"
#include "worker/attach.h"
#include "worker/engine.h"

/* Says Ready and serves until the end.  ST_OK: SIGTERM or SIGINT (stop_fd) or a finished drain,
 * after a Bye.  When kvasird is gone it waits for the next one of the same pool, for
 * orphan_timeout.  ST_UNAVAILABLE: none came, kvasird is silent, or has fenced this worker.  Else:
 * the engine broke.  Both threads look out for work without sleeping for `busy_us` after the last.
 */
enum status link_serve(struct attachment *attachment, struct engine *engine, uint32_t seqs_max,
                       uint64_t busy_us, int stop_fd);

#endif
