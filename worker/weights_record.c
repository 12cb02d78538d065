/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/weights_record.h"

#include <assert.h>
#include <string.h>

#include "kernels/panel.h"
#include "model/file_map.h"

#define RECORD_MAGIC 0x327468676965776bull /* "kweight2", little-endian */

struct record {
    uint64_t magic;
    uint64_t bytes;         /* of the weights before it */
    uint8_t plan[32];       /* SHA-256 of the types, the order and the places */
    uint8_t checkpoint[32]; /* its fingerprint */
    uint8_t tuning[32];     /* SHA-256 of what comes behind, all of it */
    uint8_t check[32];      /* SHA-256 of what stands before */
};

static_assert(sizeof(struct record) == 144, "read by other processes");
static_assert(sizeof(struct weights_tuning) == 4 + OPS_TUNING_MAX, "it comes behind");

static size_t
record_offset(const struct weights_plan *plan)
{
    return (plan->bytes + WEIGHT_ALIGN - 1) / WEIGHT_ALIGN * WEIGHT_ALIGN;
}

size_t
weights_record_arena_bytes(const struct weights_plan *plan)
{
    return record_offset(plan) + sizeof(struct record) + sizeof(struct weights_tuning);
}

static enum status
make_record(const struct device_kind *kind, const struct weights_plan *plan,
            const uint8_t checkpoint[32], const struct weights_tuning *tuning,
            struct record *record_out)
{
    /* Rows that lie packed, side by side; 0: they lie as they are. */
    uint64_t panel = kind->pack_weight == NULL ? 0 : PANEL_ROWS;
    uint64_t places[2 + 3 * WEIGHT_KINDS] = {plan->bytes, panel};
    struct record record = {.magic = RECORD_MAGIC, .bytes = plan->bytes};

    for (size_t i = 0; i < WEIGHT_KINDS; i++) {
        places[2 + 3 * i] = plan->type[i];
        places[3 + 3 * i] = plan->base[i];
        places[4 + 3 * i] = plan->stride[i];
    }
    TRY(file_map_digest("the plan of the weights", places, sizeof(places), record.plan));
    memcpy(record.checkpoint, checkpoint, sizeof(record.checkpoint));
    TRY(file_map_digest("what was measured", tuning, sizeof(*tuning), record.tuning));
    TRY(file_map_digest("the record of the weights", &record, offsetof(struct record, check),
                        record.check));
    *record_out = record;
    return ST_OK;
}

enum status
weights_record_write(const struct device_kind *kind, const struct weights_plan *plan,
                     const uint8_t checkpoint[32], const struct weights_tuning *tuning, void *arena)
{
    char *at = (char *)arena + record_offset(plan);
    struct record record;

    TRY(make_record(kind, plan, checkpoint, tuning, &record));
    TRY(kind->write(at + sizeof(record), tuning, sizeof(*tuning)));
    return kind->write(at, &record, sizeof(record));
}

enum status
weights_record_check(const struct device_kind *kind, const struct weights_plan *plan,
                     const uint8_t checkpoint[32], const void *arena,
                     struct weights_tuning *tuning_out)
{
    const char *at = (const char *)arena + record_offset(plan);
    struct record want, found;

    TRY(kind->read(&found, at, sizeof(found)));
    TRY(kind->read(tuning_out, at + sizeof(found), sizeof(*tuning_out)));
    TRY(make_record(kind, plan, checkpoint, tuning_out, &want));
    if (memcmp(&found, &want, sizeof(want)) == 0) {
        return ST_OK;
    }
    if (found.magic != RECORD_MAGIC) {
        return ERR(ST_INVALID, "the weights arena has no record of what it holds");
    }
    return ERR(ST_INVALID, "the weights arena holds %s",
               memcmp(found.checkpoint, want.checkpoint, 32) != 0 ? "another checkpoint"
               : memcmp(found.plan, want.plan, 32) != 0 ? "weights that another version laid out"
                                                        : "a record that is damaged");
}
