/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/embed.h"

#include <string.h>

#include "kernels/rows.h"

enum status
embed_rows(const struct embed_args *args, uint32_t first, uint32_t end)
{
    const float *table = args->table;

    for (uint32_t t = first; t < end; t++) {
        float *out = (float *)args->out + (size_t)t * args->C;

        if (args->ids[t] >= args->V) {
            return ERR(ST_INVALID, "row %u: token id %u, the vocabulary has %u", t, args->ids[t],
                       args->V);
        }
        if (args->is_packed) {
            panel_unpack_row(args->form, table, args->V, args->C, args->ids[t], out);
        } else {
            memcpy(out, &table[(size_t)args->ids[t] * args->C], args->C * sizeof(*out));
        }
    }
    return ST_OK;
}

enum status
embed_ref(struct embed_args args)
{
    return embed_rows(&args, 0, args.T);
}
