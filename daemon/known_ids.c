/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/known_ids.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "daemon/segment.h"

#define WORTH_IDS 256 /* below it the hash is as quick */
#define LANES     4   /* sums side by side, since each waits for its last product */

static uint64_t
mixed(uint64_t sum, uint64_t word)
{
    sum = (sum ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return sum ^ sum >> 29;
}

/* Nothing rests on a name: whoever makes two that are equal has them compared. */
static struct dockey
name_ids(const void *salt, size_t salt_length, const uint32_t *ids, size_t count)
{
    uint64_t sums[LANES] = {count, salt_length, 1, 2};
    const uint8_t *salt_bytes = (const uint8_t *)salt;
    struct dockey name;
    size_t i = 0;

    static_assert(sizeof(sums) == sizeof(name.bytes), "a name is the sums");
    for (size_t s = 0; s < salt_length; s++) {
        sums[s % LANES] = mixed(sums[s % LANES], salt_bytes[s]);
    }
    for (; i + 2 * LANES <= count; i += 2 * LANES) {
        uint64_t words[LANES];

        memcpy(words, ids + i, sizeof(words));
        for (size_t lane = 0; lane < LANES; lane++) {
            sums[lane] = mixed(sums[lane], words[lane]);
        }
    }
    for (; i < count; i++) {
        sums[i % LANES] = mixed(sums[i % LANES], ids[i]);
    }
    memcpy(name.bytes, sums, sizeof(sums));
    return name;
}

static bool
is_it(const struct tokens *tokens, const void *salt, size_t salt_length, const uint32_t *ids,
      size_t count)
{
    return tokens_count(tokens) == count && tokens_have_salt(tokens, salt, salt_length)
           && memcmp(tokens_ids(tokens), ids, count * sizeof(ids[0])) == 0;
}

enum status
known_ids(struct memo *memo, const void *salt, size_t salt_length, uint32_t vocab_size,
          const uint32_t *ids, size_t count, struct tokens **tokens_out)
{
    struct dockey name;

    if (count >= WORTH_IDS) {
        name = name_ids(salt, salt_length, ids, count);
        *tokens_out = memo_find(memo, MEMO_IDS, &name);
        if (*tokens_out != NULL && is_it(*tokens_out, salt, salt_length, ids, count)) {
            return ST_OK;
        }
        tokens_release(tokens_out);
    }
    TRY(segment_check_ids(vocab_size, ids, count));
    TRY(tokens_new(ids, count, tokens_out));
    if (count >= WORTH_IDS) {
        (void)memo_put(memo, MEMO_IDS, &name, *tokens_out); /* it only spares time */
    }
    return ST_OK;
}
