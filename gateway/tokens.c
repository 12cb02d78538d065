/* SPDX-License-Identifier: Apache-2.0 */
/* /tokenize and /detokenize, in vLLM's shape; llama-server's `content` is understood as well. */
#include <inttypes.h>
#include <string.h>

#include "gateway/request.h"
#include "gateway/routes.h"
#include "gateway/server.h"

static void
on_tokens(struct exchange *exchange, unsigned index, const struct hub_reply *reply)
{
    const Kvasir__V1__TokenizeReply *tokens = (const void *)reply->message;
    struct text body = {0};

    (void)index;
    if (exchange_refuse_reply(exchange, reply)) {
        return;
    }
    text_format(&body, "{\"count\":%zu,\"tokens\":[", tokens->n_token_ids);
    for (size_t i = 0; i < tokens->n_token_ids; i++) {
        text_format(&body, i == 0 ? "%u" : ",%u", tokens->token_ids[i]);
    }
    text_add(&body, "]}");
    exchange_answer_json(exchange, &body);
}

static void
start_tokenize(struct exchange *exchange, const struct request *request)
{
    Kvasir__V1__TokenizeRequest tokenize = KVASIR__V1__TOKENIZE_REQUEST__INIT;
    struct refusal refusal;

    if (request->has_text == (request->message.n_messages > 0)) {
        refusal_set(&refusal, "prompt", "one of prompt (or content) and messages");
        exchange_refuse(exchange, &refusal);
        return;
    }
    tokenize.text = request->message.query;
    tokenize.n_messages = request->message.n_messages;
    tokenize.messages = request->message.messages;
    tokenize.n_documents = request->message.n_documents;
    tokenize.documents = request->message.documents;
    tokenize.has_add_bos = true;
    tokenize.add_bos = request->message.add_bos;
    tokenize.has_salt = true;
    tokenize.salt = request_salt(request);
    (void)exchange_call(exchange, METHOD_TOKENIZE, &tokenize.base, 0, on_tokens);
}

void
tokenize_handle(struct exchange *exchange)
{
    struct request request;

    if (server_read_request(exchange, REQUEST_TOKENIZE, &request)) {
        start_tokenize(exchange, &request);
    }
    request_deinit(&request);
}

static void
on_text(struct exchange *exchange, unsigned index, const struct hub_reply *reply)
{
    const Kvasir__V1__DetokenizeReply *text = (const void *)reply->message;
    struct text body = {0};

    (void)index;
    if (exchange_refuse_reply(exchange, reply)) {
        return;
    }
    text_add(&body, "{\"prompt\":");
    text_json(&body, text->text.data, text->text.len);
    text_add(&body, "}");
    exchange_answer_json(exchange, &body);
}

static void
start_detokenize(struct exchange *exchange, const struct request *request)
{
    Kvasir__V1__DetokenizeRequest detokenize = KVASIR__V1__DETOKENIZE_REQUEST__INIT;
    struct refusal refusal;

    if (request->token_ids == NULL) {
        refusal_set(&refusal, "tokens", "tokens is missing");
        exchange_refuse(exchange, &refusal);
        return;
    }
    detokenize.n_token_ids = request->token_count;
    detokenize.token_ids = request->token_ids;
    (void)exchange_call(exchange, METHOD_DETOKENIZE, &detokenize.base, 0, on_text);
}

void
detokenize_handle(struct exchange *exchange)
{
    struct request request;

    if (server_read_request(exchange, REQUEST_DETOKENIZE, &request)) {
        start_detokenize(exchange, &request);
    }
    request_deinit(&request);
}
