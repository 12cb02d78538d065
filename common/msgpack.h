/* SPDX-License-Identifier: Apache-2.0 */
/* msgpack - writing MessagePack into memory that grows.
 *
 * Each value takes its shortest form.  An array or map is its count, then that many values (of a
 * map: keys and values in turn); the caller counts.  Without memory the writer remembers that and
 * writes no more: to be asked once, at the end. */
#ifndef COMMON_MSGPACK_H
#define COMMON_MSGPACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zeroed is empty. */
struct msgpack {
    uint8_t *bytes;
    size_t length, capacity;
    bool has_failed;
};

void msgpack_nil(struct msgpack *out);
void msgpack_u64(struct msgpack *out, uint64_t value);
void msgpack_f64(struct msgpack *out, double value);
void msgpack_text(struct msgpack *out, const char *text); /* below 64 KiB, UTF-8 */
void msgpack_array(struct msgpack *out, uint32_t count);
void msgpack_map(struct msgpack *out, uint32_t count);

void msgpack_deinit(struct msgpack *out);

#endif
