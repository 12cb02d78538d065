/* SPDX-License-Identifier: Apache-2.0 */
#include "client/sizes.h"

#include <string.h>

#include "common/conf.h"

#define NAME      "kv-memory"
#define TEXT_SIZE 256

static enum status
read_range(const char *from, const char *to, uint64_t sizes[SIZES_MAX], size_t *count_out)
{
    uint64_t first = 0, last = 0;
    size_t count = 0;

    TRY(conf_read_size(NAME, from, &first));
    TRY(conf_read_size(NAME, to, &last));
    if (first == 0 || last < first) {
        return ERR(ST_INVALID, NAME " %s..%s: not a range of sizes", from, to);
    }
    for (uint64_t size = first; size < last; size *= 2) {
        if (count + 1 == SIZES_MAX) {
            return ERR(ST_INVALID, NAME " %s..%s: more than %d sizes when doubled", from, to,
                       SIZES_MAX);
        }
        sizes[count++] = size;
        if (size > last / 2) {
            break;
        }
    }
    if (count == 0 || sizes[count - 1] != last) {
        sizes[count++] = last;
    }
    *count_out = count;
    return ST_OK;
}

enum status
sizes_read(const char *text, uint64_t sizes[SIZES_MAX], size_t *count_out)
{
    char copy[TEXT_SIZE], *rest = copy, *word, *dots;
    size_t count = 0;

    if (strlen(text) >= sizeof(copy)) {
        return ERR(ST_INVALID, NAME " of %zu characters: at most %zu", strlen(text),
                   sizeof(copy) - 1);
    }
    memcpy(copy, text, strlen(text) + 1);
    dots = strstr(copy, "..");
    if (dots != NULL) {
        *dots = '\0';
        return read_range(copy, dots + 2, sizes, count_out);
    }
    while ((word = strsep(&rest, ",")) != NULL) {
        if (count == SIZES_MAX) {
            return ERR(ST_INVALID, NAME " %s: more than %d sizes", text, SIZES_MAX);
        }
        TRY(conf_read_size(NAME, word, &sizes[count++]));
    }
    *count_out = count;
    return ST_OK;
}
