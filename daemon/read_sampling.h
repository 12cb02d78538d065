/* SPDX-License-Identifier: Apache-2.0 */
/* read_sampling - how an answer is to be drawn, checked field by field. */
#ifndef DAEMON_READ_SAMPLING_H
#define DAEMON_READ_SAMPLING_H

#include "common/status.h"
#include "daemon/prompt.h"

#include "kvasir/v1/rag.pb-c.h"

/* Into a zeroed one, which is the prompt's also on failure.  Absent fields get their defaults, an
 * absent seed is drawn.  ST_INVALID names the field and the limit; ST_NO_MEMORY; ST_SYSTEM. */
enum status read_sampling(const Kvasir__V1__Sampling *wire, uint32_t vocab_size,
                          struct sampling *sampling);

#endif
