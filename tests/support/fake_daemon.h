/* SPDX-License-Identifier: Apache-2.0 */
/* fake_daemon - a thread that speaks kvasird's side of the client grammar, with faults on request.
 *
 * Unary methods get plausible answers.  The text of a Generate (its query, or its last message)
 * says what happens to it:
 *   "hold"    one chunk, then silence until Cancel, then CANCELLED
 *   "deaf"    one chunk, then silence, Cancel included
 *   "vanish"  one chunk, then the daemon closes its socket and ends
 *   "full"    RESOURCE_EXHAUSTED with retry_after_ms 250
 *   "late"    DEADLINE_EXCEEDED
 *   "junk"    a payload that is no message
 *   "gap"     the second reply's seq is wrong
 *   "flood"   16 MB of text
 *   else      "Hello ", "wörld", "." and usage
 * Tokenize of "mute" is never answered; a document key that begins with 0 is NOT_FOUND. */
#ifndef TESTS_SUPPORT_FAKE_DAEMON_H
#define TESTS_SUPPORT_FAKE_DAEMON_H

#include <stdint.h>

struct fake_daemon;

/* Binds client.sock and admin.sock in `dir` and serves until stopped or told to vanish. */
struct fake_daemon *fake_daemon_start(const char *dir);
void fake_daemon_stop(struct fake_daemon **daemon);

/* Calls received so far, Cancel included; and Cancels among them. */
unsigned fake_daemon_calls(struct fake_daemon *daemon);
unsigned fake_daemon_cancels(struct fake_daemon *daemon);

/* Waits for one more call than were waited for before. */
void fake_daemon_wait_call(struct fake_daemon *daemon);

#endif
