/* SPDX-License-Identifier: Apache-2.0 */
/* request_parts - the fields of a request that are more than one value. */
#ifndef GATEWAY_REQUEST_PARTS_H
#define GATEWAY_REQUEST_PARTS_H

#include "gateway/request.h"

/* Memory that lives as long as the request; NULL: refused. */
void *request_alloc(struct request *request, size_t count, size_t size, struct refusal *refusal);

#define REQUEST_FIELD(function)                                                                    \
    bool function(struct request *request, struct json_object *value, const char *name,            \
                  struct refusal *refusal)

REQUEST_FIELD(request_read_messages);
REQUEST_FIELD(request_read_prompt);
REQUEST_FIELD(request_read_text);
REQUEST_FIELD(request_read_tokens);
REQUEST_FIELD(request_read_documents);
REQUEST_FIELD(request_read_logit_bias);
REQUEST_FIELD(request_read_stop);
REQUEST_FIELD(request_read_response_format);
REQUEST_FIELD(request_read_add_special);
REQUEST_FIELD(request_read_document_field);
REQUEST_FIELD(request_read_ttl);
REQUEST_FIELD(request_read_purpose);
REQUEST_FIELD(request_read_modalities);
REQUEST_FIELD(request_read_best_of);

/* Documents go where the daemon wants them: a chat's beside the messages, a completion's in front
 * of the query. */
bool request_place_documents(struct request *request, struct refusal *refusal);

#endif
