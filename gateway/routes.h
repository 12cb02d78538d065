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
    const char *done; /* of an action: what its answer says is true */
};

/* The route of a request.  NULL: none; then `allow` names the methods that the path does serve, or
 * is "".  *argument_out is the path's argument, percent-decoded already, owned by the caller; NULL
 * if the route has none. */
const struct route *routes_find(const char *method, const char *url, char **argument_out,
                                char allow[ROUTES_ALLOW_BYTES]);

/* chat.c */
void chat_handle(struct exchange *exchange);
void completion_handle(struct exchange *exchange);

/* tokens.c */
void tokenize_handle(struct exchange *exchange);
void detokenize_handle(struct exchange *exchange);

/* documents.c */
void document_register(struct exchange *exchange);
void document_list(struct exchange *exchange);
void document_get(struct exchange *exchange);
void document_delete(struct exchange *exchange);
void document_pin(struct exchange *exchange);
void document_unpin(struct exchange *exchange);
void document_warm(struct exchange *exchange);

#endif
