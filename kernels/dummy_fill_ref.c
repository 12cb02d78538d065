/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/dummy_fill.h"

enum status
dummy_fill_ref(struct dummy_fill_args args)
{
    float *out = args.out;
    uint32_t words[4] = {0};

    for (uint64_t i = 0; i < args.count; i++) {
        uint32_t in_group = i % DUMMY_FILL_GROUP;

        if (in_group == 0) {
            dummy_fill_draw(args.seed, args.stream, i / DUMMY_FILL_GROUP, words);
        }
        out[i] = dummy_fill_value(words, in_group, args.center, args.scale);
    }
    return ST_OK;
}
