/* SPDX-License-Identifier: Apache-2.0 */
/* How long an answer takes, and who has no time left for one.
 *
 * Under more load than can be served the queue is as long as the deadlines of its requests.
 * Whoever is next in line has then almost none of his time left: he would be started, run out of
 * it, and have wasted the machine for one who could still have been served; at twice the capacity
 * nothing would be finished in time at all.  So a request is not started that is not likely to
 * finish: its client hears so at once, and the next one gets the place.
 *
 * The pace is a moving mean over answers that ended well: time a token from admission to end, and
 * tokens an answer.  Before PACE_ANSWERS_MIN of them nobody is judged; nor is who has begun. */
#include "daemon/sched_state.h"

#define PACE_ANSWERS_MIN 16
#define PACE_WEIGHT      16 /* answers over which the mean forgets */

static void
blend(uint64_t *mean, uint64_t value)
{
    *mean = *mean == 0 ? value : *mean - *mean / PACE_WEIGHT + value / PACE_WEIGHT;
}

void
sched_pace_note(struct sched *sched, const struct session *session, uint64_t now_us)
{
    struct pace *pace = &sched->pace;

    if (session_is_warm(session) || session->sent_count == 0 || session->admitted_us == 0
        || session->hold_until_us != 0) {
        return; /* of one that was held the time says how long */
    }
    pace->answers++;
    /* In sixteenths, so that small numbers do not round to nothing. */
    blend(&pace->token_us_16, 16 * (now_us - session->admitted_us) / session->sent_count);
    blend(&pace->tokens_16, 16 * (uint64_t)session->sent_count);
}

bool
sched_is_hopeless(const struct sched *sched, const struct session *session, uint64_t now_us)
{
    const struct pace *pace = &sched->pace;
    uint64_t tokens = session->prompt.sampling.max_tokens;
    uint64_t left_us = session->deadline_us > now_us ? session->deadline_us - now_us : 0;

    if (session_is_warm(session) || session->admitted_us != 0 || session->sent_count > 0
        || pace->answers < PACE_ANSWERS_MIN) {
        return false;
    }
    if (tokens > pace->tokens_16 / 16) {
        tokens = pace->tokens_16 / 16;
    }
    return tokens * pace->token_us_16 / 16 > left_us;
}
