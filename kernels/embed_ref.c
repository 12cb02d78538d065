/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/embed.h"

#include <string.h>

#include "kernels/rows.h"

enum status
embed_rows(const struct embed_args *args, uint32_t first, uint32_t end)
{
    size_t row_bytes = args->C * sizeof(float);

    for (uint32_t t = first; t < end; t++) {
        if (args->ids[t] >= args->V) {
            return ERR(ST_INVALID, "row %u: token id %u, the vocabulary has %u", t, args->ids[t],
                       args->V);
        }
        memcpy((char *)args->out + t * row_bytes,
               (const char *)args->table + args->ids[t] * row_bytes, row_bytes);
    }
    return ST_OK;
}

enum status
embed_ref(struct embed_args args)
{
    return embed_rows(&args, 0, args.T);
}
