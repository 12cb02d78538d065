/* SPDX-License-Identifier: Apache-2.0 */
/* What is served, and ids back to text: constant data, so it is answered in the loop. */
#include "daemon/kvasird.h"

#include <string.h>

#include "common/clock.h"
#include "common/mem.h"

#define DETOKENIZE_IDS_MAX   131072 /* some milliseconds of the loop */
#define DETOKENIZE_BYTES_MAX (WIRE_CLIENT_BYTES_MAX - 1024)

void
model_describe(struct kvasird *d, struct call *call)
{
    Kvasir__V1__ModelReply reply = KVASIR__V1__MODEL_REPLY__INIT;
    const char *slash = strrchr(d->model_path, '/');
    uint64_t age_s = (clock_now_us() - d->started_us) / 1000000;

    reply.name = slash == NULL ? d->model_path : (char *)(uintptr_t)(slash + 1); /* only packed */
    reply.has_context_tokens = reply.has_vocab_size = reply.has_block_tokens = true;
    reply.context_tokens = d->model.context_max;
    reply.vocab_size = d->model.V;
    reply.block_tokens = (uint32_t)d->options.block_tokens;
    reply.chat_template = (char *)(uintptr_t)template_name(d->reader.template_kind);
    reply.has_created_s = true;
    reply.created_s = clock_wall_s() - age_s;
    reply.has_tokenizer = true;
    reply.tokenizer.data = d->reader.tokenizer_fingerprint;
    reply.tokenizer.len = sizeof(d->reader.tokenizer_fingerprint);
    deliver_reply(d, call, RPC_OK, NULL, 0, &reply.base, true);
}

/* What grows with each id is copied out; the last bytes are what the detokeniser still held. */
static enum status
detokenize(const struct tokenizer *tokenizer, const uint32_t *ids, size_t count, char **text_out,
           size_t *length_out)
{
    struct detokenizer state = {0};
    char piece[DETOKENIZER_OUT_MAX];
    size_t capacity = 8 * count + DETOKENIZER_OUT_MAX;
    size_t length = 0;
    char *text = mem_zalloc(capacity, 1);

    for (size_t i = 0; i <= count && text != NULL; i++) {
        size_t bytes = i < count ? detokenizer_push(tokenizer, &state, ids[i], piece)
                                 : detokenizer_finish(&state, piece);

        if (length + bytes > capacity) {
            char *grown = mem_realloc(text, 2 * capacity, 1);

            if (grown == NULL) {
                MEM_FREE(text);
                break;
            }
            capacity *= 2;
            text = grown;
        }
        memcpy(text + length, piece, bytes);
        length += bytes;
    }
    *text_out = text;
    *length_out = length;
    if (text != NULL && length > DETOKENIZE_BYTES_MAX) {
        return ERR(ST_INVALID, "text of %zu bytes: the limit is %u", length, DETOKENIZE_BYTES_MAX);
    }
    return text == NULL ? ERR(ST_NO_MEMORY, "no memory for the text of %zu ids", count) : ST_OK;
}

void
model_detokenize(struct kvasird *d, struct call *call, const Kvasir__V1__DetokenizeRequest *request)
{
    Kvasir__V1__DetokenizeReply reply = KVASIR__V1__DETOKENIZE_REPLY__INIT;
    char *text = NULL;
    size_t length = 0;
    enum status st = ST_OK;

    if (request->n_token_ids > DETOKENIZE_IDS_MAX) {
        st = ERR(ST_INVALID, "%zu token_ids: the limit is %d", request->n_token_ids,
                 DETOKENIZE_IDS_MAX);
    }
    for (size_t i = 0; st == ST_OK && i < request->n_token_ids; i++) {
        if (request->token_ids[i] >= d->reader.vocab_size) {
            st = ERR(ST_INVALID, "token_ids[%zu] is %u: the vocabulary has %u", i,
                     request->token_ids[i], d->reader.vocab_size);
        }
    }
    if (st == ST_OK) {
        st = detokenize(d->reader.tokenizer, request->token_ids, request->n_token_ids, &text,
                        &length);
    }
    reply.has_text = true;
    reply.text.data = (uint8_t *)text;
    reply.text.len = length;
    deliver_reply(d, call, rpc_code_of(st), st == ST_OK ? NULL : status_detail(), 0, &reply.base,
                  true);
    mem_free(text);
}
