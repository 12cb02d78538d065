/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/sequence.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "common/mem.h"

static uint32_t
div_up(uint32_t a, uint32_t b)
{
    return a / b + (a % b != 0);
}

static enum status
copy_ids(const uint32_t *from, size_t count, uint32_t limit, const char *what, uint32_t *to)
{
    for (size_t i = 0; i < count; i++) {
        if (from[i] >= limit) {
            return ERR(ST_INVALID, "%s %zu is %" PRIu32 ": there are %" PRIu32, what, i, from[i],
                       limit);
        }
        to[i] = from[i];
    }
    return ST_OK;
}

/* Room for the ids that the blocks can hold and one more, or for those that are there. */
static enum status
grow_ids(struct sequence *seq, uint64_t n_blocks, uint32_t block_tokens)
{
    uint64_t slots = n_blocks * block_tokens;
    uint64_t wanted = (slots > seq->n_ids ? slots : seq->n_ids) + 1;

    if (seq->own_offset + wanted > UINT32_MAX) {
        return ERR(ST_INVALID, "%" PRIu64 " tokens at offset %" PRIu32 ": positions have 32 bits",
                   wanted, seq->own_offset);
    }
    uint32_t *ids = mem_realloc(seq->ids, wanted, sizeof(ids[0]));

    if (ids == NULL) {
        return ERR(ST_NO_MEMORY, "a sequence of %" PRIu64 " tokens", wanted);
    }
    seq->ids = ids;
    seq->ids_max = (uint32_t)wanted;
    return ST_OK;
}

enum status
sequence_grant(struct sequence *seq, const uint32_t *blocks, size_t count,
               const struct sequence_limits *limits)
{
    size_t total = seq->n_blocks + count;

    if (total > limits->block_count) {
        return ERR(ST_INVALID, "%zu blocks: the arena has %" PRIu32, total, limits->block_count);
    }
    uint32_t *grown = mem_realloc(seq->blocks, total + 1, sizeof(grown[0]));

    if (grown == NULL) {
        return ERR(ST_NO_MEMORY, "a sequence of %zu blocks", total);
    }
    seq->blocks = grown;
    TRY(copy_ids(blocks, count, limits->block_count, "own block", grown + seq->n_blocks));
    TRY(grow_ids(seq, total, limits->block_tokens));
    seq->n_blocks = (uint32_t)total;
    return ST_OK;
}

/* The first `count` documents of an Assign. */
static enum status
fill_segments(struct sequence *seq, const Kvasir__V1__Assign *assign, size_t count,
              const struct sequence_limits *limits)
{
    size_t n_blocks = 0;

    if (count > SEQUENCE_SEGS_MAX) {
        return ERR(ST_INVALID, "%zu segments: at most %d", count, SEQUENCE_SEGS_MAX);
    }
    for (size_t i = 0; i < count; i++) {
        n_blocks += assign->segments[i]->n_block_ids;
    }
    seq->segs = mem_zalloc(count, sizeof(seq->segs[0]));
    seq->doc_blocks = mem_zalloc(n_blocks, sizeof(seq->doc_blocks[0]));
    if (seq->segs == NULL || seq->doc_blocks == NULL || n_blocks > UINT32_MAX) {
        return ERR(ST_NO_MEMORY, "%zu segments of %zu blocks", count, n_blocks);
    }
    for (size_t i = 0; i < count; i++) {
        const Kvasir__V1__AssignSegment *from = assign->segments[i];

        if (from->n_block_ids != div_up(from->n_tokens, limits->block_tokens)) {
            return ERR(ST_INVALID, "segment %zu: %zu blocks for %" PRIu32 " tokens", i,
                       from->n_block_ids, from->n_tokens);
        }
        if ((uint64_t)from->offset + from->n_tokens > UINT32_MAX) {
            return ERR(ST_INVALID, "segment %zu: %" PRIu32 " tokens at %" PRIu32, i, from->n_tokens,
                       from->offset);
        }
        TRY(copy_ids(from->block_ids, from->n_block_ids, limits->block_count, "segment block",
                     seq->doc_blocks + seq->n_doc_blocks));
        seq->segs[i] = (struct sequence_segment){.n_tokens = from->n_tokens,
                                                 .offset = from->offset,
                                                 .block_first = seq->n_doc_blocks,
                                                 .n_blocks = (uint32_t)from->n_block_ids,
                                                 .build = from->build};
        if (from->has_generation && from->key.len == SEQUENCE_KEY_BYTES) {
            memcpy(seq->segs[i].key, from->key.data, SEQUENCE_KEY_BYTES);
            seq->segs[i].generation = from->generation;
        }
        seq->n_doc_blocks += (uint32_t)from->n_block_ids;
    }
    seq->n_segs = (uint32_t)count;
    return ST_OK;
}

static enum status
check_block_count(size_t n_blocks, size_t n_tokens, const struct sequence_limits *limits)
{
    return n_tokens <= UINT32_MAX / 2
                   && n_blocks == div_up((uint32_t)n_tokens, limits->block_tokens)
               ? ST_OK
               : ERR(ST_INVALID, "%zu blocks for %zu tokens of %" PRIu32 " a block", n_blocks,
                     n_tokens, limits->block_tokens);
}

/* Whole blocks behind `start`, if a head is there. */
static enum status
fill_copy(struct sequence *seq, const Kvasir__V1__Build *build,
          const struct sequence_limits *limits)
{
    size_t n = build->n_source_block_ids;

    if (build->start % limits->block_tokens != 0) {
        return ERR(ST_INVALID, "copy from token %" PRIu32 " on: blocks have %" PRIu32, build->start,
                   limits->block_tokens);
    }
    TRY(check_block_count(n, build->n_tokens, limits));
    seq->is_copy = true;
    seq->source_build = build->source_build;
    seq->source_blocks = mem_zalloc(n, sizeof(seq->source_blocks[0]));
    if (seq->source_blocks == NULL) {
        return ERR(ST_NO_MEMORY, "a copy of %zu blocks", n);
    }
    return copy_ids(build->source_block_ids, n, limits->block_count, "source block",
                    seq->source_blocks);
}

/* Blocks that the host tier has; without one they are encoded. */
static enum status
fill_host(struct sequence *seq, const Kvasir__V1__Build *build,
          const struct sequence_limits *limits)
{
    size_t n = build->n_host_block_ids;

    if (build->n_host_sums != n || build->start % limits->block_tokens != 0
        || n > build->n_block_ids - build->start / limits->block_tokens) {
        return ERR(ST_INVALID,
                   "%zu blocks of the host tier with %zu sums from token %" PRIu32
                   " on: blocks have %" PRIu32 " tokens, the document %zu blocks",
                   n, build->n_host_sums, build->start, limits->block_tokens, build->n_block_ids);
    }
    if (limits->place_count == 0) {
        return ST_OK;
    }
    seq->host_places = mem_zalloc(n, sizeof(seq->host_places[0]));
    seq->host_sums = mem_zalloc(n, sizeof(seq->host_sums[0]));
    if (seq->host_places == NULL || seq->host_sums == NULL) {
        return ERR(ST_NO_MEMORY, "%zu blocks of the host tier", n);
    }
    seq->n_host = (uint32_t)n;
    memcpy(seq->host_sums, build->host_sums, n * sizeof(seq->host_sums[0]));
    return copy_ids(build->host_block_ids, n, limits->place_count, "place", seq->host_places);
}

static enum status
fill_build(struct sequence *seq, const Kvasir__V1__Build *build, const Kvasir__V1__Assign *assign,
           const struct sequence_limits *limits)
{
    size_t n = build->n_source_block_ids > 0 ? build->n_tokens : build->n_token_ids;

    if (build->start > n) {
        return ERR(ST_INVALID, "start %" PRIu32 " of a document of %zu tokens", build->start, n);
    }
    TRY(check_block_count(build->n_block_ids, n, limits));
    if (build->context_segments > assign->n_segments) {
        return ERR(ST_INVALID, "%" PRIu32 " segments before it, %zu are there",
                   build->context_segments, assign->n_segments);
    }
    seq->is_background = assign->is_background;
    seq->own_offset = build->position;
    TRY(fill_segments(seq, assign, build->context_segments, limits));
    TRY(sequence_grant(seq, build->block_ids, build->n_block_ids, limits));
    if (build->n_source_block_ids > 0) {
        TRY(fill_copy(seq, build, limits));
    } else {
        TRY(copy_ids(build->token_ids, n, limits->vocab_size, "token", seq->ids));
        if (build->n_host_block_ids > 0) {
            TRY(fill_host(seq, build, limits));
        }
    }
    seq->n_ids = (uint32_t)n;
    seq->n_prompt = (uint32_t)n;
    seq->n_cached = build->start;
    seq->n_reused = build->start;
    return ST_OK;
}

static struct sequence *
new_sequence(uint64_t id, uint64_t order, bool is_build)
{
    struct sequence *seq = mem_zalloc(1, sizeof(*seq));

    if (seq != NULL) {
        list_init(&seq->link);
        seq->id = id;
        seq->order = order;
        seq->is_build = is_build;
        kvasir__v1__step_result__init(&seq->result);
        kvasir__v1__token_logprob__init(&seq->logprob);
        seq->logprobs[0] = &seq->logprob;
    }
    return seq;
}

enum status
sequence_new_build(const Kvasir__V1__Build *build, const Kvasir__V1__Assign *assign,
                   const struct sequence_limits *limits, struct sequence **seq_out)
{
    struct sequence *seq = new_sequence(build->build, assign->arrival_order, true);

    if (seq == NULL) {
        return ERR(ST_NO_MEMORY, "build %" PRIu64, build->build);
    }
    enum status st = fill_build(seq, build, assign, limits);

    if (st != ST_OK) {
        sequence_destroy(&seq);
        return ERR(st, "build %" PRIu64 ": %s", build->build, status_detail());
    }
    *seq_out = seq;
    return ST_OK;
}

/* Checked here and not only in the kernel: a bad parameter must not cost others their step.
 * Written so that NaN is refused. */
static enum status
fill_sampling(struct sequence *seq, const Kvasir__V1__Assign *assign,
              const struct sequence_limits *limits, const struct tokenizer *tokenizer)
{
    struct constrain_limits constrain_limits = {
        .tokenizer = tokenizer,
        .vocabulary = limits->vocabulary,
        .vocab_size = limits->vocab_size,
    };
    const Kvasir__V1__Sampling *s = assign->sampling;

    if (s == NULL) {
        return ERR(ST_INVALID, "no sampling parameters");
    }
    seq->sampling = (struct sample_params){
        .temperature = s->temperature,
        .top_k = s->top_k,
        .top_p = s->has_top_p ? s->top_p : 1.0f,
        .min_p = s->min_p,
        .repetition_penalty = s->has_repetition_penalty ? s->repetition_penalty : 1.0f,
        .seed = s->seed,
        .n_logprobs = s->logprobs,
    };
    if (!(s->temperature >= 0.0f && isfinite(s->temperature))) {
        return ERR(ST_INVALID, "temperature %g: 0 or more", (double)s->temperature);
    }
    if (!(seq->sampling.top_p > 0.0f && seq->sampling.top_p <= 1.0f)) {
        return ERR(ST_INVALID, "top_p %g: above 0, at most 1", (double)seq->sampling.top_p);
    }
    if (!(s->min_p >= 0.0f && s->min_p <= 1.0f)) {
        return ERR(ST_INVALID, "min_p %g: 0 to 1", (double)s->min_p);
    }
    if (!(seq->sampling.repetition_penalty > 0.0f && isfinite(seq->sampling.repetition_penalty))) {
        return ERR(ST_INVALID, "repetition_penalty %g: above 0",
                   (double)seq->sampling.repetition_penalty);
    }
    if (s->logprobs > SAMPLE_LOGPROBS_MAX) {
        return ERR(ST_INVALID, "logprobs %" PRIu32 ": at most %d", s->logprobs,
                   SAMPLE_LOGPROBS_MAX);
    }
    seq->has_logprobs = s->has_logprobs;
    seq->ignores_end = assign->ignore_end;
    seq->max_tokens = s->max_tokens;
    if (assign->n_sent_ids >= s->max_tokens) {
        return ERR(ST_INVALID, "%zu tokens sent of max_tokens %" PRIu32 ": nothing left to draw",
                   assign->n_sent_ids, s->max_tokens);
    }
    TRY(constrain_init(&seq->constrain, s, &constrain_limits));
    return answer_init(&seq->answer, s->stop, s->n_stop);
}

/* Brings the text state to where the answer so far has left it. */
static enum status
replay(struct sequence *seq, const Kvasir__V1__Assign *assign, const struct tokenizer *tokenizer)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < assign->n_sent_ids; i++) {
        bytes += answer_push(&seq->answer, tokenizer, assign->sent_ids[i], seq->text);
        constrain_take(&seq->constrain, assign->sent_ids[i]);
    }
    if (bytes != assign->sent_text_bytes || seq->answer.is_stopped) {
        return ERR(ST_INVALID, "%zu sent tokens give %" PRIu64 " bytes of text%s, not %" PRIu32,
                   assign->n_sent_ids, bytes, seq->answer.is_stopped ? " and a stop string" : "",
                   assign->sent_text_bytes);
    }
    return ST_OK;
}

/* What earlier turns have left in its first blocks, and which of its ids are documents. */
static enum status
take_reused(struct sequence *seq, const Kvasir__V1__Assign *assign,
            const struct sequence_limits *limits)
{
    if (assign->own_cached >= seq->n_ids || assign->own_cached % limits->block_tokens != 0
        || assign->own_cached / limits->block_tokens > seq->n_blocks) {
        return ERR(ST_INVALID,
                   "%" PRIu32 " of %" PRIu32 " own tokens in %" PRIu32
                   " blocks are cached: whole blocks, and not all of the tokens",
                   assign->own_cached, seq->n_ids, seq->n_blocks);
    }
    if (assign->own_document_tokens >= seq->n_prompt) {
        return ERR(ST_INVALID, "%" PRIu32 " of %" PRIu32 " query tokens are documents",
                   assign->own_document_tokens, seq->n_prompt);
    }
    seq->n_cached = assign->own_cached;
    seq->n_reused = assign->own_cached;
    seq->n_documents = assign->own_document_tokens;
    return ST_OK;
}

static enum status
fill_request(struct sequence *seq, const Kvasir__V1__Assign *assign,
             const struct sequence_limits *limits, const struct tokenizer *tokenizer)
{
    size_t total = assign->n_query_ids + assign->n_sent_ids;

    if (assign->n_query_ids == 0) {
        return ERR(ST_INVALID, "no query tokens");
    }
    if (total > UINT32_MAX / 2) {
        return ERR(ST_INVALID, "%zu own tokens", total);
    }
    if (assign->name.len > 0 && assign->name.len <= SEQUENCE_NAME_BYTES_MAX) {
        memcpy(seq->name, assign->name.data, assign->name.len);
        seq->n_name = (uint32_t)assign->name.len;
    }
    seq->own_offset = assign->own_offset;
    seq->n_ids = (uint32_t)total;
    seq->n_prompt = (uint32_t)assign->n_query_ids;
    TRY(fill_segments(seq, assign, assign->n_segments, limits));
    TRY(fill_sampling(seq, assign, limits, tokenizer));
    TRY(sequence_grant(seq, assign->own_block_ids, assign->n_own_block_ids, limits));
    TRY(copy_ids(assign->query_ids, assign->n_query_ids, limits->vocab_size, "query token",
                 seq->ids));
    TRY(copy_ids(assign->sent_ids, assign->n_sent_ids, limits->vocab_size, "sent token",
                 seq->ids + assign->n_query_ids));
    TRY(take_reused(seq, assign, limits));
    return replay(seq, assign, tokenizer);
}

enum status
sequence_new_request(const Kvasir__V1__Assign *assign, const struct sequence_limits *limits,
                     const struct tokenizer *tokenizer, struct sequence **seq_out)
{
    struct sequence *seq = new_sequence(assign->request, assign->arrival_order, false);

    if (seq == NULL) {
        return ERR(ST_NO_MEMORY, "request %" PRIu64, assign->request);
    }
    enum status st = fill_request(seq, assign, limits, tokenizer);

    if (st != ST_OK) {
        sequence_destroy(&seq);
        return st;
    }
    *seq_out = seq;
    return ST_OK;
}

void
sequence_destroy(struct sequence **seq)
{
    if (*seq == NULL) {
        return;
    }
    mem_free((*seq)->segs);
    mem_free((*seq)->doc_blocks);
    mem_free((*seq)->ids);
    mem_free((*seq)->blocks);
    mem_free((*seq)->source_blocks);
    mem_free((*seq)->host_places);
    mem_free((*seq)->host_sums);
    mem_free((*seq)->untold);
    mem_free((*seq)->kept_message);
    answer_deinit(&(*seq)->answer);
    constrain_deinit(&(*seq)->constrain);
    MEM_FREE(*seq);
}

struct llama_room
sequence_room(const struct sequence *seq, uint32_t block_tokens)
{
    struct llama_room room = {
        .segs = (size_t)seq->n_segs + 1,
        .block_ids = (size_t)seq->n_doc_blocks + seq->n_blocks,
        .partials = div_up(seq->n_blocks * block_tokens, LAZY_DECODE_CHUNK),
        .copies = seq->is_copy ? seq->n_blocks : 0,
        .sums = seq->is_build ? seq->n_blocks : 0,
        .history = (seq->sampling.repetition_penalty != 1.0f ? seq->ids_max : 0)
                   + constrain_words(&seq->constrain),
    };

    for (uint32_t i = 0; i < seq->n_segs; i++) {
        room.partials += div_up(seq->segs[i].n_tokens, LAZY_DECODE_CHUNK);
    }
    return room;
}

static void
report_logprob(struct sequence *seq, const struct tokenizer *tokenizer)
{
    Kvasir__V1__TokenLogprob *out = &seq->logprob;
    size_t length;
    const char *text = tokenizer_text(tokenizer, seq->draw.id, &length);

    out->has_id = true;
    out->id = seq->draw.id;
    out->has_text = true;
    out->text = (ProtobufCBinaryData){.len = length, .data = (uint8_t *)(uintptr_t)text};
    out->has_logprob = true;
    out->logprob = seq->draw.logprob;
    out->n_top_ids = seq->draw.n_top;
    out->top_ids = seq->draw.top_ids;
    for (uint32_t i = 0; i < seq->draw.n_top; i++) { /* only packed, never written */
        text = tokenizer_text(tokenizer, seq->draw.top_ids[i], &length);
        seq->top_texts[i] =
            (ProtobufCBinaryData){.len = length, .data = (uint8_t *)(uintptr_t)text};
    }
    out->n_top_texts = seq->draw.n_top;
    out->top_texts = seq->top_texts;
    out->n_top_logprobs = seq->draw.n_top;
    out->top_logprobs = seq->draw.top_logprobs;
    seq->result.n_logprobs = 1;
    seq->result.logprobs = seq->logprobs;
}

void
sequence_take(struct sequence *seq, const struct tokenizer *tokenizer)
{
    Kvasir__V1__StepResult *result = &seq->result;
    uint32_t id = seq->draw.id;
    bool is_end = !seq->ignores_end && tokenizer_is_end(tokenizer, id);
    size_t length = is_end ? 0 : answer_push(&seq->answer, tokenizer, id, seq->text);

    assert(seq->n_ids < seq->ids_max && seq->n_cached == seq->n_ids);
    seq->ids[seq->n_ids++] = id;
    constrain_take(&seq->constrain, id);
    kvasir__v1__step_result__init(result);
    result->has_finish = true;
    result->finish = KVASIR__V1__FINISH_REASON__FINISH_NONE;
    if (is_end || seq->answer.is_stopped) {
        result->finish = KVASIR__V1__FINISH_REASON__FINISH_STOP;
    } else if (seq->n_ids - seq->n_prompt >= seq->max_tokens) {
        result->finish = KVASIR__V1__FINISH_REASON__FINISH_LENGTH;
    }
    if (result->finish != KVASIR__V1__FINISH_REASON__FINISH_NONE) {
        length += answer_finish(&seq->answer, seq->text + length);
    }
    result->has_request = true;
    result->request = seq->id;
    result->n_token_ids = 1;
    result->token_ids = &seq->draw.id;
    result->has_text = true;
    result->text = (ProtobufCBinaryData){.len = length, .data = (uint8_t *)seq->text};
    result->has_own_tokens = true;
    result->own_tokens = seq->n_cached;
    if (seq->has_logprobs) {
        report_logprob(seq, tokenizer);
    }
}

/* --- behind: drawn while nobody listened ---------------------------------------------- */

/* Text of the answer's tokens from the beginning on, into `out` if that is there: how much. */
static size_t
say_again(const struct sequence *seq, const struct tokenizer *tokenizer, uint32_t n_tokens,
          char *out)
{
    /* The stop strings are the sequence's, the rest begins anew. */
    struct answer answer = {.stops = seq->answer.stops, .n_stops = seq->answer.n_stops};
    char piece[ANSWER_OUT_MAX];
    size_t length = 0;

    memcpy(answer.stop_lengths, seq->answer.stop_lengths, sizeof(answer.stop_lengths));
    for (uint32_t i = 0; i < n_tokens; i++) {
        uint32_t id = seq->ids[seq->n_prompt + i];
        bool is_end = !seq->ignores_end && tokenizer_is_end(tokenizer, id);
        size_t n = is_end ? 0 : answer_push(&answer, tokenizer, id, piece);

        if (out != NULL) {
            memcpy(out + length, piece, n);
        }
        length += n;
    }
    if (seq->is_done && n_tokens == seq->n_ids - seq->n_prompt) {
        size_t n = answer_finish(&answer, piece);

        if (out != NULL) {
            memcpy(out + length, piece, n);
        }
        length += n;
    }
    return length;
}

enum status
sequence_fall_behind(struct sequence *seq, const struct tokenizer *tokenizer, uint32_t n_told,
                     uint64_t told_bytes)
{
    uint32_t n_drawn = seq->n_ids - seq->n_prompt;

    if (n_told > n_drawn || (n_told == n_drawn && seq->is_done)
        || say_again(seq, tokenizer, n_told, NULL) != told_bytes) {
        return ERR(ST_INVALID, "%" PRIu32 " tokens of an answer of %" PRIu32 ": not the same text",
                   n_told, n_drawn);
    }
    size_t length = say_again(seq, tokenizer, n_drawn, NULL);
    char *text = mem_zalloc(length + sizeof(seq->text), 1); /* and of one token more */

    if (text == NULL) {
        return ERR(ST_NO_MEMORY, "the text of %" PRIu32 " tokens", n_drawn);
    }
    (void)say_again(seq, tokenizer, n_drawn, text);
    memmove(text, text + told_bytes, length - told_bytes);
    mem_free(seq->untold);
    seq->untold = text;
    seq->n_untold = length - told_bytes;
    seq->n_told = n_told;
    seq->is_behind = true;
    return ST_OK;
}

void
sequence_take_behind(struct sequence *seq, const struct tokenizer *tokenizer)
{
    sequence_take(seq, tokenizer);
    if (seq->is_behind) {
        memcpy(seq->untold + seq->n_untold, seq->text, seq->result.text.len);
        seq->n_untold += seq->result.text.len;
    }
    seq->is_done = seq->result.finish != KVASIR__V1__FINISH_REASON__FINISH_NONE;
}

void
sequence_catch_up(struct sequence *seq)
{
    Kvasir__V1__StepResult *result = &seq->result;
    Kvasir__V1__FinishReason finish =
        seq->is_done ? result->finish : KVASIR__V1__FINISH_REASON__FINISH_NONE;

    kvasir__v1__step_result__init(result);
    result->has_finish = true;
    result->finish = finish;
    result->has_request = true;
    result->request = seq->id;
    result->n_token_ids = seq->n_ids - seq->n_prompt - seq->n_told;
    result->token_ids = seq->ids + seq->n_prompt + seq->n_told;
    result->has_text = true;
    result->text = (ProtobufCBinaryData){.len = seq->n_untold, .data = (uint8_t *)seq->untold};
    /* Of a whole answer nothing is in the blocks of its request: it was drawn in others. */
    result->has_own_tokens = !seq->is_done;
    result->own_tokens = seq->is_done ? 0 : seq->n_cached;
    result->has_tokens_reused = true;
    for (uint32_t i = 0; i < seq->n_segs; i++) {
        result->tokens_reused += seq->segs[i].n_tokens;
    }
    seq->is_behind = false;
}
