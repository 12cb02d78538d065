/* SPDX-License-Identifier: Apache-2.0 */
/* kvasir_private - what the files of libkvasir share; their names are not kvasir_*, so they stay
 * inside the installed library. */
#ifndef CLIENT_KVASIR_PRIVATE_H
#define CLIENT_KVASIR_PRIVATE_H

#include "client/kvasir.h"
#include "client/rpc.h"
#include "kvasir/v1/rag.pb-c.h"

struct kvasir {
    struct rpc *rpc;
    uint32_t timeout_ms;
    uint32_t retry_ms; /* never 0; KVASIR_RETRY_NEVER */
    uint64_t busy_us;
    void *scratch;
    size_t scratch_bytes;
    const char *error; /* found here, not by rpc; NULL: ask rpc */
};

/* The reply, or NULL with the reason in *code_out. */
const void *client_call(struct kvasir *client, enum method_id method,
                        const ProtobufCMessage *request, enum kvasir_code *code_out);
/* protobuf-c knows no const; packing only reads. */
void *client_unconst(const void *bytes);
ProtobufCBinaryData client_binary(const void *bytes, size_t length);
Kvasir__V1__Segment client_segment(const struct kvasir_document *document);
/* Memory that lives until the next call; NULL: none is left, and client_out_of_memory says so. */
void *client_scratch(struct kvasir *client, size_t count, size_t size);
enum kvasir_code client_out_of_memory(struct kvasir *client);

#endif
