/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/attn_merge.h"

#include "kernels/attn_row.h"
#include "kernels/rows.h"

enum status
attn_merge_rows(const struct attn_merge_args *args, uint32_t first, uint32_t end)
{
    uint32_t H = args->H, D = args->D;

    if (D == 0 || D > ATTN_D_MAX) {
        return ERR(ST_INVALID, "head dimension %u: must be 1 to %d", D, ATTN_D_MAX);
    }
    for (uint32_t row = first; row < end; row++) {
        size_t out_row = args->row_ids == NULL ? row : args->row_ids[row];

        for (uint32_t h = 0; h < H; h++) {
            struct attn_state state;

            attn_state_reset(&state);
            for (uint32_t p = args->partial_first[row]; p < args->partial_first[row + 1]; p++) {
                size_t at = (size_t)p * H + h;

                attn_state_merge(&state, &args->o[at * D], args->ml[at * 2], args->ml[at * 2 + 1],
                                 D);
            }
            attn_output(state.o, state.l, (float *)args->out + (out_row * H + h) * D, D);
        }
    }
    return ST_OK;
}

enum status
attn_merge_ref(struct attn_merge_args args)
{
    return attn_merge_rows(&args, 0, args.n_rows);
}
