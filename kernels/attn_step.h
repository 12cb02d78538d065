/* SPDX-License-Identifier: Apache-2.0 */
/* attn_step - whether an instance of the operations was made for a step. */
#ifndef KERNELS_ATTN_STEP_H
#define KERNELS_ATTN_STEP_H

#include "common/status.h"
#include "kernels/attn_desc.h"
#include "kernels/ops.h"

/* n_segs_out: segments that the step's sequences refer to.  ST_NO_MEMORY: more than the instance
 * holds; ST_INVALID: another model's. */
enum status attn_step_check(const struct attn_step *step, const struct ops_config *config,
                            uint32_t *n_segs_out);

#endif
