/* SPDX-License-Identifier: Apache-2.0 */
/* What the zipf policy has learned, as bytes: for the life after a restart.
 *
 *     struct head | struct zipf_lesson | struct saved_record [record_count]
 *
 * In the byte order of the host, which is the only one that will read it.  Open samples are left
 * out: their horizon is over by then.  Nothing is trusted because it is there: size, version,
 * checksum and every number are checked before anything is changed. */
#include "kvpool/evict_zipf.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "common/htab.h"

#define STATE_MAGIC   UINT64_C(0x66706973746d6501)
#define STATE_VERSION 2

struct head {
    uint64_t magic;
    uint32_t version;
    uint32_t record_count;
    uint64_t now; /* requests */
    uint64_t random;
    uint64_t checksum; /* of all that follows the head, then of the head with 0 here */
};

struct saved_record {
    uint64_t key;
    uint32_t last;
    float count_fast, count_slow, gap_events, gap_requests;
    uint16_t density;
    uint8_t priority;
    uint8_t reserved; /* 0 */
};

static_assert(sizeof(struct head) == 40 && sizeof(struct saved_record) == 32
                  && sizeof(struct zipf_lesson) % sizeof(uint64_t) == 0,
              "kept on disk: another layout is another STATE_VERSION");

static bool
is_worth_saving(const struct zipf_record *record)
{
    return record->priority != ZIPF_UNUSED
           && (record->count_slow > 0 || record->priority != EVICT_PRIORITY_DEFAULT);
}

size_t
zipf_state_max(const struct evict_policy *policy)
{
    return sizeof(struct head) + sizeof(struct zipf_lesson)
           + (size_t)policy->memory.taken * sizeof(struct saved_record);
}

/* Not against malice: against a torn or flipped file.  `size` is a multiple of 8. */
static uint64_t
add_to_sum(uint64_t sum, const void *bytes, size_t size)
{
    uint64_t word;

    for (size_t i = 0; i < size; i += sizeof(word)) {
        memcpy(&word, (const unsigned char *)bytes + i, sizeof(word));
        sum = htab_mix(sum ^ word);
    }
    return sum;
}

/* Who is here is worth more than who was asked for more than once, and that more than the rest. */
enum worth {
    WORTH_HERE,
    WORTH_REPEATED,
    WORTH_REST,
    WORTHS,
};

static enum worth
worth_of(const struct zipf_record *record)
{
    return record->here > 0 ? WORTH_HERE : record->count_slow > 1 ? WORTH_REPEATED : WORTH_REST;
}

static struct saved_record
saved_of(const struct zipf_record *record)
{
    return (struct saved_record){
        .key = record->key,
        .last = record->last,
        .count_fast = record->count_fast,
        .count_slow = record->count_slow,
        .gap_events = record->gap_events,
        .gap_requests = record->gap_requests,
        .density = record->density,
        .priority = record->priority,
    };
}

static void
append(struct evict_saving *saving, unsigned char *bytes, const void *part, size_t size)
{
    memcpy(bytes + saving->size, part, size);
    saving->sum = add_to_sum(saving->sum, part, size);
    saving->size += size;
}

/* Last, because records that were saved meanwhile speak of requests that came meanwhile. */
static void
end_state(const struct evict_policy *policy, struct evict_saving *saving, void *bytes)
{
    struct head head = {
        .magic = STATE_MAGIC,
        .version = STATE_VERSION,
        .record_count = saving->records,
        .now = policy->clock.now,
        .random = policy->random,
    };

    head.checksum = add_to_sum(saving->sum, &head, sizeof(head));
    memcpy(bytes, &head, sizeof(head));
    saving->is_done = true;
}

/* A record whose worth changes meanwhile may be saved twice, and then the later one counts, or not
 * at all: a document's popularity is lost, as for want of room. */
void
zipf_state_save(const struct evict_policy *policy, struct evict_saving *saving, void *bytes,
                size_t max, uint32_t records)
{
    if (max < sizeof(struct head) + sizeof(struct zipf_lesson)) {
        saving->is_done = true;
        return;
    }
    if (saving->size == 0) {
        saving->size = sizeof(struct head);
        append(saving, bytes, &policy->calibration.lesson, sizeof(struct zipf_lesson));
    }
    for (; records > 0 && saving->pass < WORTHS; records--) {
        const struct zipf_record *record;

        if (saving->slot >= policy->memory.taken) {
            saving->slot = 0;
            saving->pass++;
            continue;
        }
        record = &policy->memory.records[++saving->slot];
        if (is_worth_saving(record) && worth_of(record) == (enum worth)saving->pass) {
            struct saved_record saved = saved_of(record);

            if (max - saving->size < sizeof(saved)) {
                saving->pass = WORTHS;
                break;
            }
            append(saving, bytes, &saved, sizeof(saved));
            saving->records++;
        }
    }
    if (saving->pass == WORTHS) {
        end_state(policy, saving, bytes);
    }
}

/* --- back again ------------------------------------------------------------------------------- */

static bool
is_count(double x)
{
    return isfinite(x) && x >= 0;
}

static bool
lesson_is_sane(const struct zipf_lesson *lesson)
{
    for (int i = 0; i < ZIPF_EXPERTS; i++) {
        if (!is_count(lesson->weight[i]) || lesson->weight[i] == 0
            || !is_count(lesson->weight_hits[i]) || !is_count(lesson->weight_expected[i])) {
            return false;
        }
    }
    for (int axis = 0; axis < ZIPF_AXES; axis++) {
        for (int knot = 0; knot < ZIPF_KNOTS; knot++) {
            if (!is_count(lesson->factor[axis][knot]) || lesson->factor[axis][knot] == 0
                || !is_count(lesson->hits[axis][knot]) || !is_count(lesson->expected[axis][knot])) {
                return false;
            }
        }
    }
    return true;
}

static bool
record_is_sane(const struct saved_record *saved)
{
    return is_count((double)saved->count_fast) && is_count((double)saved->count_slow)
           && is_count((double)saved->gap_events) && is_count((double)saved->gap_requests)
           && saved->priority <= EVICT_PRIORITY_MAX && saved->reserved == 0;
}

static enum status
check_state(const struct head *head, const unsigned char *body, size_t body_size)
{
    struct head unsummed = *head;
    struct zipf_lesson lesson;
    struct saved_record saved;

    if (head->magic != STATE_MAGIC || head->version != STATE_VERSION) {
        return ERR(ST_INVALID, "state of the eviction policy: not version %d of zipf's",
                   STATE_VERSION);
    }
    if (body_size != sizeof(lesson) + (size_t)head->record_count * sizeof(saved)) {
        return ERR(ST_INVALID, "state of the eviction policy: %zu bytes do not hold %u documents",
                   body_size, head->record_count);
    }
    unsummed.checksum = 0;
    if (add_to_sum(add_to_sum(0, body, body_size), &unsummed, sizeof(unsummed)) != head->checksum) {
        return ERR(ST_INVALID, "state of the eviction policy: its checksum is wrong");
    }
    memcpy(&lesson, body, sizeof(lesson));
    if (!lesson_is_sane(&lesson)) {
        return ERR(ST_INVALID, "state of the eviction policy: impossible weights");
    }
    for (uint32_t i = 0; i < head->record_count; i++) {
        memcpy(&saved, body + sizeof(lesson) + i * sizeof(saved), sizeof(saved));
        if (!record_is_sane(&saved)) {
            return ERR(ST_INVALID, "state of the eviction policy: document %u is impossible", i);
        }
    }
    return ST_OK;
}

static void
restore_record(struct evict_policy *policy, const struct saved_record *saved)
{
    struct zipf_memory *memory = &policy->memory;
    uint32_t slot = zipf_memory_find(memory, saved->key);
    struct zipf_record *record;

    if (slot == 0 && zipf_memory_is_full(memory)) {
        return; /* a smaller pool than before: the rest is forgotten */
    }
    record = &memory->records[slot != 0 ? slot : zipf_memory_add(memory, saved->key)];
    record->last = saved->last;
    record->count_fast = saved->count_fast;
    record->count_slow = saved->count_slow;
    record->gap_events = saved->gap_events;
    record->gap_requests = saved->gap_requests;
    record->density = saved->density;
    record->priority = saved->priority;
}

enum status
zipf_state_restore(struct evict_policy *policy, const void *bytes, size_t size)
{
    const unsigned char *body = (const unsigned char *)bytes + sizeof(struct head);
    struct saved_record saved;
    struct head head;

    assert(policy->clock.now == 0);
    if (size < sizeof(head) + sizeof(struct zipf_lesson)) {
        return ERR(ST_INVALID, "state of the eviction policy: only %zu bytes", size);
    }
    memcpy(&head, bytes, sizeof(head));
    TRY(check_state(&head, body, size - sizeof(head)));
    memcpy(&policy->calibration.lesson, body, sizeof(struct zipf_lesson));
    for (uint32_t i = 0; i < head.record_count; i++) {
        memcpy(&saved, body + sizeof(struct zipf_lesson) + i * sizeof(saved), sizeof(saved));
        restore_record(policy, &saved);
    }
    policy->random = head.random != 0 ? head.random : policy->random;
    zipf_clock_set(&policy->clock, head.now);
    zipf_lesson_apply(&policy->calibration, &policy->clock);
    evict_zipf_rescore(policy);
    return ST_OK;
}
