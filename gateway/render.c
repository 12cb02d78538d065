/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/render.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define LOGPROB_NEVER (-9999.0f) /* OpenAI's word for minus infinity, which JSON has not */

/* ---- log probabilities ----------------------------------------------------------------------- */

void
render_logprobs_deinit(struct render_logprobs *logprobs)
{
    text_deinit(&logprobs->tokens);
    text_deinit(&logprobs->values);
    text_deinit(&logprobs->tops);
    text_deinit(&logprobs->offsets);
    *logprobs = (struct render_logprobs){0};
}

static void
add_token(struct text *out, const void *bytes, size_t length, float logprob)
{
    const uint8_t *byte = bytes;

    text_add(out, "{\"token\":");
    text_json(out, bytes, length);
    text_add(out, ",\"logprob\":");
    text_json_float(out, isinf(logprob) ? LOGPROB_NEVER : logprob);
    text_add(out, ",\"bytes\":[");
    for (size_t i = 0; i < length; i++) {
        text_format(out, i == 0 ? "%u" : ",%u", byte[i]);
    }
    text_add(out, "]");
}

/* An alternative whose text did not come along is named by its id. */
static void
get_top_text(const Kvasir__V1__TokenLogprob *item, size_t index, char name[24], const void **text,
             size_t *length)
{
    if (index < item->n_top_texts) {
        *text = item->top_texts[index].data;
        *length = item->top_texts[index].len;
        return;
    }
    struct text id = {0};

    text_format(&id, "token_id:%u", item->top_ids[index]);
    *length = id.length < 24 ? id.length : 23;
    memcpy(name, id.bytes == NULL ? "" : id.bytes, id.bytes == NULL ? 0 : *length);
    *text = name;
    text_deinit(&id);
}

static void
add_chat_item(struct text *out, const Kvasir__V1__TokenLogprob *item)
{
    add_token(out, item->text.data, item->text.len, item->logprob);
    text_add(out, ",\"top_logprobs\":[");
    for (size_t i = 0; i < item->n_top_ids && i < item->n_top_logprobs; i++) {
        char name[24];
        const void *text;
        size_t length;

        get_top_text(item, i, name, &text, &length);
        text_add(out, i == 0 ? "" : ",");
        add_token(out, text, length, item->top_logprobs[i]);
        text_add(out, "}");
    }
    text_add(out, "]}");
}

static void
add_completion_item(struct render_logprobs *logprobs, const Kvasir__V1__TokenLogprob *item)
{
    const char *comma = logprobs->count == 0 ? "" : ",";

    text_add(&logprobs->tokens, comma);
    text_json(&logprobs->tokens, item->text.data, item->text.len);
    text_add(&logprobs->values, comma);
    text_json_float(&logprobs->values, item->logprob);
    text_format(&logprobs->offsets, "%s%zu", comma, logprobs->text_bytes);
    text_format(&logprobs->tops, "%s{", comma);
    for (size_t i = 0; i < item->n_top_ids && i < item->n_top_logprobs; i++) {
        char name[24];
        const void *text;
        size_t length;

        get_top_text(item, i, name, &text, &length);
        text_add(&logprobs->tops, i == 0 ? "" : ",");
        text_json(&logprobs->tops, text, length);
        text_add(&logprobs->tops, ":");
        text_json_float(&logprobs->tops,
                        isinf(item->top_logprobs[i]) ? LOGPROB_NEVER : item->top_logprobs[i]);
    }
    text_add(&logprobs->tops, "}");
}

void
render_logprobs_add(struct render_logprobs *logprobs, bool is_chat,
                    Kvasir__V1__TokenLogprob *const *items, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (is_chat) {
            text_add(&logprobs->tokens, logprobs->count == 0 ? "" : ",");
            add_chat_item(&logprobs->tokens, items[i]);
        } else {
            add_completion_item(logprobs, items[i]);
        }
        logprobs->count++;
        logprobs->text_bytes += items[i]->text.len;
    }
}

static void
add_logprobs(const struct render_logprobs *logprobs, bool is_chat, struct text *out)
{
    text_add(out, ",\"logprobs\":");
    if (logprobs == NULL) {
        text_add(out, "null");
        return;
    }
    text_add(out, is_chat ? "{\"content\":[" : "{\"tokens\":[");
    text_append(out, logprobs->tokens.bytes, logprobs->tokens.length);
    if (!is_chat) {
        text_add(out, "],\"token_logprobs\":[");
        text_append(out, logprobs->values.bytes, logprobs->values.length);
        text_add(out, "],\"top_logprobs\":[");
        text_append(out, logprobs->tops.bytes, logprobs->tops.length);
        text_add(out, "],\"text_offset\":[");
        text_append(out, logprobs->offsets.bytes, logprobs->offsets.length);
    }
    text_add(out, "]}");
}

/* ---- answers --------------------------------------------------------------------------------- */

const char *
render_finish(Kvasir__V1__FinishReason finish)
{
    switch (finish) {
    case KVASIR__V1__FINISH_REASON__FINISH_STOP: return "stop";
    case KVASIR__V1__FINISH_REASON__FINISH_LENGTH: return "length";
    case KVASIR__V1__FINISH_REASON__FINISH_CANCELLED: return "abort";
    default: return NULL;
    }
}

static void
add_head(const struct render_head *head, bool is_chunk, struct text *out)
{
    text_format(out,
                "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%" PRIu64 ",\"model\":", head->id,
                !head->is_chat ? "text_completion"
                : is_chunk     ? "chat.completion.chunk"
                               : "chat.completion",
                head->created_s);
    text_json_string(out, head->model);
    text_add(out, ",\"choices\":[");
}

static void
add_finish(const char *finish, struct text *out)
{
    if (finish == NULL) {
        text_add(out, ",\"finish_reason\":null}");
    } else {
        text_format(out, ",\"finish_reason\":\"%s\"}", finish);
    }
}

static void
add_delta(const struct render_choice *choice, struct text *out)
{
    text_format(out, "{\"index\":%u,\"delta\":{", choice->index);
    if (choice->is_first) {
        text_add(out, "\"role\":\"assistant\",");
    }
    if (choice->is_first || choice->text_bytes > 0 || choice->finish == NULL) {
        text_add(out, "\"content\":");
        text_json(out, choice->text, choice->text_bytes);
    }
    text_add(out, "}");
}

void
render_chunk(const struct render_head *head, const struct render_choice *choice, struct text *out)
{
    text_add(out, "data: ");
    add_head(head, true, out);
    if (head->is_chat) {
        add_delta(choice, out);
    } else {
        text_format(out, "{\"index\":%u,\"text\":", choice->index);
        text_json(out, choice->text, choice->text_bytes);
    }
    add_logprobs(choice->logprobs, head->is_chat, out);
    add_finish(choice->finish, out);
    text_add(out, head->has_usage_field ? "],\"usage\":null}\n\n" : "]}\n\n");
}

static void
add_whole_choice(const struct render_head *head, const struct render_choice *choice,
                 struct text *out)
{
    text_format(out, "{\"index\":%u,", choice->index);
    text_add(out, head->is_chat ? "\"message\":{\"role\":\"assistant\",\"content\":" : "\"text\":");
    text_json(out, choice->text, choice->text_bytes);
    text_add(out, head->is_chat ? ",\"refusal\":null}" : "");
    add_logprobs(choice->logprobs, head->is_chat, out);
    add_finish(choice->finish, out);
}

/* ---- usage ----------------------------------------------------------------------------------- */

void
render_usage_deinit(struct render_usage *usage)
{
    text_deinit(&usage->documents);
}

static void
add_document(const Kvasir__V1__DocumentUsage *document, size_t index, struct text *out)
{
    text_format(out, "{\"index\":%zu,\"id\":", index);
    if (document->id == NULL || document->id[0] == '\0') {
        text_add(out, "null");
    } else {
        text_json_string(out, document->id);
    }
    if (document->has_key) {
        text_add(out, ",\"hash\":\"sha256:");
        for (size_t i = 0; i < document->key.len; i++) {
            text_format(out, "%02x", document->key.data[i]);
        }
        text_add(out, "\"");
    }
    text_format(out, ",\"tokens\":%u,\"cached_tokens\":%u,\"reason\":", document->tokens,
                document->tokens_reused);
    text_json_string(out, document->miss_reason == NULL ? "" : document->miss_reason);
    text_add(out, "}");
}

void
render_usage_add(struct render_usage *usage, const Kvasir__V1__Usage *from, size_t documents,
                 bool is_first_of_prompt)
{
    usage->completion_tokens += from->completion_tokens;
    if (!is_first_of_prompt) {
        return;
    }
    size_t preambles = from->n_documents > documents ? from->n_documents - documents : 0;

    usage->prompt_tokens += from->prompt_tokens;
    usage->cached_tokens += from->tokens_reused;
    usage->loaded_tokens += from->tokens_loaded;
    if (usage->documents.length == 0) { /* later prompts have the same ones */
        for (size_t i = preambles; i < from->n_documents; i++) {
            text_add(&usage->documents, i == preambles ? "" : ",");
            add_document(from->documents[i], i - preambles, &usage->documents);
        }
        usage->queue_us = from->queue_us;
        usage->ttft_us = from->ttft_us;
        usage->total_us = from->total_us;
        usage->seed = from->seed;
        usage->request = from->request;
    }
}

/* The numbers as OpenAI has them; documents, times and the seed are ours. */
static void
add_usage(const struct render_usage *usage, struct text *out)
{
    text_format(out,
                "{\"prompt_tokens\":%" PRIu64 ",\"completion_tokens\":%" PRIu64
                ",\"total_tokens\":%" PRIu64
                ",\"prompt_tokens_details\":{\"cached_tokens\":%" PRIu64 "},\"documents\":[",
                usage->prompt_tokens, usage->completion_tokens,
                usage->prompt_tokens + usage->completion_tokens, usage->cached_tokens);
    text_append(out, usage->documents.bytes, usage->documents.length);
    text_format(out,
                "],\"loaded_tokens\":%" PRIu64 ",\"request\":%" PRIu64 ",\"seed\":%" PRIu64
                ",\"queue_ms\":%.3f,\"ttft_ms\":%.3f,\"total_ms\":%.3f}",
                usage->loaded_tokens, usage->request, usage->seed, (double)usage->queue_us / 1000,
                (double)usage->ttft_us / 1000, (double)usage->total_us / 1000);
}

void
render_usage_chunk(const struct render_head *head, const struct render_usage *usage,
                   struct text *out)
{
    text_add(out, "data: ");
    add_head(head, true, out);
    text_add(out, "],\"usage\":");
    add_usage(usage, out);
    text_add(out, "}\n\n");
}

void
render_answer(const struct render_head *head, const struct render_choice *choices, size_t count,
              const struct render_usage *usage, struct text *out)
{
    add_head(head, false, out);
    for (size_t i = 0; i < count; i++) {
        text_add(out, i == 0 ? "" : ",");
        add_whole_choice(head, &choices[i], out);
    }
    text_add(out, "],\"usage\":");
    add_usage(usage, out);
    text_add(out, "}");
}
