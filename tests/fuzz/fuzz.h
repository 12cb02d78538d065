/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz - what every fuzz target defines: libFuzzer's entry point, called once an input.
 *
 * Built with --enable-fuzz libFuzzer calls it; in `make check` replay.c does, with the corpus. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Feeds the input to the code under test.  Returns 0; a bug shows as a crash. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

#endif
