/* SPDX-License-Identifier: Apache-2.0 */
/* routes - which path is served by what. */
#ifndef GATEWAY_ROUTES_H
#define GATEWAY_ROUTES_H

#include <stdbool.h>

#include "gateway/exchange.h"

struct route {
    const char *method;
    const char *path; /* whole; one that ends in "/" takes an argument behind it */
    const char *tail; /* behind the argument: "/pin"; NULL: nothing */
    const char *name; /* in metrics */
    bool is_open;     /* no key is needed */
    void (*handle)(struct exchange *exchange);
};

/* The route of a request.  NULL: none; then *allow_out names the methods that the path does serve,
 * or is NULL.  *argument_out is the path's argument, percent-decoded already, owned by the caller;
 * NULL if the route has none. */
const struct route *routes_find(const char *method, const char *url, char **argument_out,
                                const char **allow_out);

/* chat.c */
void chat_handle(struct exchange *exchange);
void completion_handle(struct exchange *exchange);

#endif
