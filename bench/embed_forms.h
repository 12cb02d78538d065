/* SPDX-License-Identifier: Apache-2.0 */
/* embed_forms - other forms of embed, beside the landed one: for a decision by numbers, never for
 * the engine.  kernels/README.md says what is expected of each. */
#ifndef BENCH_EMBED_FORMS_H
#define BENCH_EMBED_FORMS_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "kernels/embed.h"

#ifdef __cplusplus
extern "C" {
#endif

#define EMBED_FORMS 4 /* the first is embed_cuda */

const char *embed_form_name(uint32_t form);

/* Whether a form writes what embed_cuda writes, byte for byte, and nothing behind it; `args.out`
 * and `other`, on the device, have room for a row more.  ST_DEVICE: it does not, or a CUDA error.
 */
enum status embed_form_check(uint32_t form, struct embed_args args, void *other);

/* Median microseconds a call, in recorded rounds over `count` sets of arguments. */
enum status embed_form_time(uint32_t form, const struct embed_args *sets, uint32_t count,
                            double *us_out);

#ifdef __cplusplus
}
#endif
#endif
