/* SPDX-License-Identifier: Apache-2.0 */
/* The table of policies; a new one is a line here, a line in the names, and its file. */
#include "kvpool/evict.h"

#include <string.h>

static const struct evict_policy_ops *const policies[] = {
    &evict_zipf,
    &evict_lru,
    &evict_s3fifo,
    &evict_arc,
};

const char *const evict_policy_names[] = {"zipf", "lru", "s3fifo", "arc", NULL};

const struct evict_policy_ops *
evict_policy_find(const char *name)
{
    for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++) {
        if (strcmp(policies[i]->name, name) == 0) {
            return policies[i];
        }
    }
    return NULL;
}
