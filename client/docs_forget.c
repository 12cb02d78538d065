/* SPDX-License-Identifier: Apache-2.0 */
#include "client/docs_forget.h"

#include <inttypes.h>
#include <stdio.h>

#include "client/pbjson.h"
#include "kvasir/v1/documents.pb-c.h"

static void
print_forgotten(const Kvasir__V1__ForgetReply *reply)
{
    printf("erased %" PRIu32 " blocks, %" PRIu64 " bytes: %" PRIu32 " copies, %" PRIu32
           " blocks freed earlier, %" PRIu32 " host blocks, %" PRIu32 " texts; readers: %" PRIu32
           " waited for, %" PRIu32 " ended\n",
           reply->blocks, reply->bytes, reply->copies, reply->remnants, reply->host_blocks,
           reply->texts, reply->readers_waited, reply->readers_aborted);
}

int
docs_forget(const struct cli_args *args, struct rpc *rpc, const uint8_t key[32])
{
    Kvasir__V1__ForgetRequest request = KVASIR__V1__FORGET_REQUEST__INIT;
    const ProtobufCMessage *reply;

    request.has_key = true;
    request.key = (ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t)key, .len = 32};
    request.has_abort = request.abort = cli_has(args, "abort");
    int code = cli_call(
        args, rpc, (struct rpc_call){.method = METHOD_FORGET, .request = &request.base}, &reply);

    if (code == CLI_OK && cli_has(args, "json")) {
        pbjson_print(stdout, CLI_SCHEMA, reply);
    } else if (code == CLI_OK) {
        print_forgotten((const void *)reply);
    }
    return code;
}
