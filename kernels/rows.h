/* SPDX-License-Identifier: Apache-2.0 */
/* rows - the twins on a range of rows [first, end), so that threads can share a call.
 *
 * X_ref(args) is X_rows(&args, 0, all).  Rows are independent; errors name the row of the whole
 * call. */
#ifndef KERNELS_ROWS_H
#define KERNELS_ROWS_H

#include "kernels/attn_merge.h"
#include "kernels/embed.h"
#include "kernels/kv_checksum.h"
#include "kernels/kv_compare.h"
#include "kernels/rmsnorm.h"
#include "kernels/rope_append.h"
#include "kernels/rope_copy.h"
#include "kernels/sample.h"
#include "kernels/swiglu.h"

enum status attn_merge_rows(const struct attn_merge_args *args, uint32_t first, uint32_t end);
enum status embed_rows(const struct embed_args *args, uint32_t first, uint32_t end);
enum status kv_checksum_rows(const struct kv_checksum_args *args, uint32_t first, uint32_t end);
enum status kv_compare_rows(const struct kv_compare_args *args, uint32_t first, uint32_t end);
enum status rmsnorm_rows(const struct rmsnorm_args *args, uint32_t first, uint32_t end);
enum status rope_append_rows(const struct rope_append_args *args, uint32_t first, uint32_t end);
enum status rope_copy_rows(const struct rope_copy_args *args, uint32_t first, uint32_t end);
enum status sample_rows(const struct sample_args *args, uint32_t first, uint32_t end);
enum status swiglu_rows(const struct swiglu_args *args, uint32_t first, uint32_t end);

#endif
