/* SPDX-License-Identifier: Apache-2.0 */
/* rmsnorm_forms - other forms of rmsnorm with delta, beside the landed one: for a decision by
 * numbers, never for the engine.  kernels/README.md says what is expected of each. */
#ifndef BENCH_RMSNORM_FORMS_H
#define BENCH_RMSNORM_FORMS_H

#include <stdint.h>

#include "common/status.h"
#include "kernels/rmsnorm.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RMSNORM_FORMS 3 /* the first is rmsnorm_cuda */

const char *rmsnorm_form_name(uint32_t form);

/* Whether a form leaves x and out as rmsnorm_cuda does: x byte for byte, out within one step of
 * bf16, and nothing behind their T rows.  Width at most 4096, a delta, and room for a row more, on
 * the device.  ST_DEVICE: it does not, or a CUDA error. */
enum status rmsnorm_form_check(uint32_t form, struct rmsnorm_args args);

/* Median microseconds a call, in recorded rounds over `count` sets of arguments. */
enum status rmsnorm_form_time(uint32_t form, const struct rmsnorm_args *sets, uint32_t count,
                              double *us_out);

#ifdef __cplusplus
}
#endif
#endif
