/* SPDX-License-Identifier: Apache-2.0 */
/* What became of a request that has ended: why its documents hit or missed, and when it passed
 * what. */
#include <stdio.h>

#include "client/ctl.h"
#include "client/pbjson.h"
#include "kvasir/v1/rag.pb-c.h"

#define SHORT_KEY_BYTES 6

static void
print_key(ProtobufCBinaryData key)
{
    for (size_t i = 0; i < key.len && i < SHORT_KEY_BYTES; i++) {
        printf("%02x", key.data[i]);
    }
}

static void
print_head(const Kvasir__V1__ExplainReply *reply)
{
    const Kvasir__V1__Usage *usage = reply->usage;

    printf("request %llu ended %llu.%llu s ago: %s%s%s\n", (unsigned long long)reply->id,
           (unsigned long long)(reply->ended_ms_ago / 1000),
           (unsigned long long)(reply->ended_ms_ago / 100 % 10),
           reply->end == NULL ? "?" : reply->end, reply->message == NULL ? "" : ", ",
           reply->message == NULL ? "" : reply->message);
    if (usage != NULL) {
        char mode[PBJSON_CELL_BYTES];

        pbjson_cell(&usage->base, ctl_field(&usage->base, "reuse"), mode);
        printf("%s, worker %u; %u tokens of prompt: %u document tokens read", mode, usage->worker,
               usage->prompt_tokens, usage->tokens_reused);
        if (usage->tokens_loaded > 0) {
            printf(" (%u from the host tier)", usage->tokens_loaded);
        }
        printf(", %u encoded for it; %u drawn\n", usage->tokens_built, usage->completion_tokens);
    }
}

static void
print_difference(const Kvasir__V1__DocumentExplanation *document)
{
    printf("             begins like ");
    print_key(document->nearest_key);
    printf(" (%u tokens); the first token that differs is %u\n             here  ",
           document->nearest_tokens, document->first_difference);
    pbjson_print_string(stdout, (const char *)document->here_text.data, document->here_text.len);
    printf("\n             there ");
    pbjson_print_string(stdout, (const char *)document->nearest_text.data,
                        document->nearest_text.len);
    printf("\n");
}

static void
print_document(const Kvasir__V1__DocumentExplanation *document)
{
    const Kvasir__V1__DocumentUsage *found = document->found;

    if (found == NULL) {
        return;
    }
    printf("%4u ", found->index);
    print_key(found->key);
    printf(" %-10s %u of %u tokens%s%s, now %u\n             %s\n",
           found->miss_reason == NULL ? "?" : found->miss_reason, found->tokens_reused,
           found->tokens, found->id == NULL ? "" : ", id ", found->id == NULL ? "" : found->id,
           document->tokens_resident, document->why == NULL ? "" : document->why);
    if (document->has_first_difference) {
        print_difference(document);
    }
}

static int
print_explanation(const struct cli_args *args, struct rpc *rpc, const ProtobufCMessage *reply)
{
    const Kvasir__V1__ExplainReply *explain = (const void *)reply;

    (void)args;
    (void)rpc;
    print_head(explain);
    for (size_t i = 0; i < explain->n_documents; i++) {
        print_document(explain->documents[i]);
    }
    return CLI_OK;
}

/* One point on the way: milliseconds since the arrival and since the point before. */
static void
print_point(const char *name, const Kvasir__V1__Trace *trace, uint64_t at, uint64_t *before)
{
    if (at < trace->arrived) {
        printf("%-10s %12s\n", name, "-"); /* it never came so far */
        return;
    }
    printf("%-10s %9.3f ms  +%.3f\n", name, (double)(at - trace->arrived) / 1000,
           at < *before ? 0 : (double)(at - *before) / 1000);
    *before = at;
}

static int
print_trace(const struct cli_args *args, struct rpc *rpc, const ProtobufCMessage *reply)
{
    const Kvasir__V1__ExplainReply *explain = (const void *)reply;
    const Kvasir__V1__Trace *trace = explain->usage == NULL ? NULL : explain->usage->trace;
    uint64_t before;

    (void)args;
    (void)rpc;
    print_head(explain);
    if (trace != NULL) {
        before = trace->arrived;
        print_point("read", trace, trace->read, &before);
        print_point("assigned", trace, trace->assigned, &before);
        print_point("heard", trace, trace->heard, &before);
        print_point("begun", trace, trace->begun, &before);
        print_point("ended", trace, trace->ended, &before);
        print_point("returned", trace, trace->returned, &before);
        print_point("sent", trace, trace->sent, &before);
        print_point("last", trace, trace->arrived + explain->usage->total_us, &before);
    }
    return CLI_OK;
}

static int
explain(const struct cli_args *args, ctl_print_fn print)
{
    Kvasir__V1__ExplainRequest request = KVASIR__V1__EXPLAIN_REQUEST__INIT;

    if (args->operand_count > 0) {
        request.has_id = true;
        if (cli_parse_u64("ID", args->operands[0], 0, UINT64_MAX, &request.id) != ST_OK) {
            return ctl_bad_input(args);
        }
    }
    return ctl_view(args, (struct rpc_call){.method = METHOD_EXPLAIN, .request = &request.base},
                    print);
}

int
ctl_run_explain(const struct cli_args *args)
{
    return explain(args, print_explanation);
}

int
ctl_run_requests_trace(const struct cli_args *args)
{
    return explain(args, print_trace);
}
