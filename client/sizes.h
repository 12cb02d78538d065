/* SPDX-License-Identifier: Apache-2.0 */
/* sizes - "1GiB..64GiB" as a list of sizes, for kvasirctl whatif. */
#ifndef CLIENT_SIZES_H
#define CLIENT_SIZES_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

#define SIZES_MAX 16 /* that kvasird takes */

/* A..B doubles from A to B, both included; A,B,C and A alone are as they stand.  ST_INVALID with a
 * detail that names the text. */
enum status sizes_read(const char *text, uint64_t sizes[SIZES_MAX], size_t *count_out);

#endif
