/* SPDX-License-Identifier: Apache-2.0 */
/* bodies - the memory of requests that are being read: what lies here of each, and what their
 * values take while they are looked at.  Of one at most --max-body, of all together --max-bodies.
 * With the exchange's lock held. */
#ifndef GATEWAY_BODIES_H
#define GATEWAY_BODIES_H

#include "gateway/exchange.h"

/* The body is too long; refuses it. */
void bodies_refuse(struct exchange *exchange);

/* A piece has come: kept, or the exchange is refused. */
void bodies_take(struct exchange *exchange, const char *bytes, size_t length);

/* Before the body is parsed: room for its values, or the exchange is refused. */
bool bodies_open(struct exchange *exchange);

/* The values are gone. */
void bodies_close(struct exchange *exchange);

#endif
