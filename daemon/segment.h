/* SPDX-License-Identifier: Apache-2.0 */
/* segment - the token ids of a Segment, in whichever form they came. */
#ifndef DAEMON_SEGMENT_H
#define DAEMON_SEGMENT_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

#include "kvasir/v1/rag.pb-c.h"

/* Borrowed from the message.  ST_INVALID: both forms, or bytes that are no whole ids. */
enum status segment_ids(const Kvasir__V1__Segment *segment, const uint32_t **ids_out,
                        size_t *count_out);

/* ST_INVALID names the first id that is beyond the vocabulary. */
enum status segment_check_ids(uint32_t vocab_size, const uint32_t *ids, size_t count);

#endif
