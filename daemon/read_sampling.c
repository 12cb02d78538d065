/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/read_sampling.h"

#include <math.h>
#include <string.h>

#include <openssl/rand.h>

#include "common/mem.h"
#include "model/grammar.h"

static enum status
check_range(const char *name, double value, double min, double max, bool is_min_open)
{
    if (isfinite(value) && value <= max && (is_min_open ? value > min : value >= min)) {
        return ST_OK;
    }
    return ERR(ST_INVALID, "sampling.%s is %.7g: it must be in %c%.7g, %.7g]", name, value,
               is_min_open ? '(' : '[', min, max);
}

static enum status
check_count(const char *name, uint32_t value, uint32_t min, uint32_t max)
{
    return value >= min && value <= max
               ? ST_OK
               : ERR(ST_INVALID, "sampling.%s is %u: it must be in [%u, %u]", name, value, min,
                     max);
}

static enum status
read_stops(const Kvasir__V1__Sampling *wire, struct sampling *sampling)
{
    if (wire->n_stop > SAMPLING_STOPS_MAX) {
        return ERR(ST_INVALID, "sampling.stop has %zu strings: the limit is %d", wire->n_stop,
                   SAMPLING_STOPS_MAX);
    }
    for (size_t i = 0; i < wire->n_stop; i++) {
        size_t length = strlen(wire->stop[i]);

        if (length == 0 || length > SAMPLING_STOP_BYTES_MAX) {
            return ERR(ST_INVALID, "sampling.stop[%zu] has %zu bytes: it must be 1 to %d", i,
                       length, SAMPLING_STOP_BYTES_MAX);
        }
        sampling->stops[i] = mem_strdup(wire->stop[i]);
        if (sampling->stops[i] == NULL) {
            return ERR(ST_NO_MEMORY, "no memory for a stop string");
        }
        sampling->stop_count++;
    }
    return ST_OK;
}

static enum status
read_biases(const Kvasir__V1__Sampling *wire, uint32_t vocab_size, struct sampling *sampling)
{
    if (wire->n_logit_bias > SAMPLING_BIASES_MAX) {
        return ERR(ST_INVALID, "sampling.logit_bias has %zu ids: the limit is %d",
                   wire->n_logit_bias, SAMPLING_BIASES_MAX);
    }
    sampling->biases = mem_zalloc(wire->n_logit_bias, sizeof(*sampling->biases));
    if (sampling->biases == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for logit_bias");
    }
    for (size_t i = 0; i < wire->n_logit_bias; i++) {
        const Kvasir__V1__LogitBias *from = wire->logit_bias[i];

        if (from->id >= vocab_size) {
            return ERR(ST_INVALID, "sampling.logit_bias names id %u: the vocabulary has %u",
                       from->id, vocab_size);
        }
        TRY(check_range("logit_bias", (double)from->bias, -100, 100, false));
        sampling->biases[sampling->bias_count++] = (struct sampling_bias){from->id, from->bias};
    }
    return ST_OK;
}

/* Compiled here so that the client hears what is wrong with it; the worker compiles it again. */
static enum status
read_schema(const char *schema, struct sampling *sampling)
{
    struct grammar *grammar = NULL;

    if (schema == NULL) {
        return ST_OK;
    }
    TRY(grammar_compile(schema, strlen(schema), &grammar));
    grammar_destroy(&grammar);
    sampling->json_schema = mem_strdup(schema);
    return sampling->json_schema != NULL ? ST_OK : ERR(ST_NO_MEMORY, "no memory for json_schema");
}

static enum status
check_sampling(const struct sampling *sampling)
{
    TRY(check_count("max_tokens", sampling->max_tokens, 1, SAMPLING_MAX_TOKENS_MAX));
    TRY(check_range("temperature", (double)sampling->temperature, 0, 100, false));
    TRY(check_range("top_p", (double)sampling->top_p, 0, 1, true));
    TRY(check_range("min_p", (double)sampling->min_p, 0, 1, false));
    TRY(check_range("repetition_penalty", (double)sampling->repetition_penalty, 0, 100, true));
    TRY(check_range("frequency_penalty", (double)sampling->frequency_penalty, -2, 2, false));
    TRY(check_range("presence_penalty", (double)sampling->presence_penalty, -2, 2, false));
    return check_count("logprobs", sampling->logprobs, 0, SAMPLING_LOGPROBS_MAX);
}

enum status
read_sampling(const Kvasir__V1__Sampling *wire, uint32_t vocab_size, struct sampling *sampling)
{
    static const Kvasir__V1__Sampling absent = KVASIR__V1__SAMPLING__INIT;

    wire = wire == NULL ? &absent : wire;
    sampling->has_max_tokens = wire->has_max_tokens;
    sampling->max_tokens = wire->has_max_tokens ? wire->max_tokens : SAMPLING_MAX_TOKENS_DEFAULT;
    sampling->temperature = wire->has_temperature ? wire->temperature : 0;
    sampling->top_k = wire->has_top_k ? wire->top_k : 0;
    sampling->top_p = wire->has_top_p ? wire->top_p : 1;
    sampling->min_p = wire->has_min_p ? wire->min_p : 0;
    sampling->repetition_penalty = wire->has_repetition_penalty ? wire->repetition_penalty : 1;
    sampling->has_logprobs = wire->has_logprobs;
    sampling->logprobs = wire->has_logprobs ? wire->logprobs : 0;
    sampling->seed = wire->seed;
    if (!wire->has_seed
        && RAND_bytes((unsigned char *)&sampling->seed, sizeof(sampling->seed)) != 1) {
        return ERR(ST_SYSTEM, "no random bytes for a seed");
    }
    sampling->frequency_penalty = wire->frequency_penalty;
    sampling->presence_penalty = wire->presence_penalty;
    sampling->min_tokens = wire->min_tokens;
    TRY(check_sampling(sampling));
    TRY(read_biases(wire, vocab_size, sampling));
    TRY(read_schema(wire->json_schema, sampling));
    return read_stops(wire, sampling);
}
