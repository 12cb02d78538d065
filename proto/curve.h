/* SPDX-License-Identifier: Apache-2.0 */
/* curve - CURVE keys in files: who may speak to a kvasird over a network, and as whom.
 *
 * A key file has one line, the key in Z85 (40 characters); lines that begin with '#' are comments.
 * A secret's file must belong to its owner alone.  Source: ZeroMQ RFC 26 and 32. */
#ifndef PROTO_CURVE_H
#define PROTO_CURVE_H

#include "common/status.h"

#define CURVE_KEY_BYTES 32
#define CURVE_KEY_TEXT  41 /* Z85, with the NUL */

/* Reads a secret key.  ST_INVALID: others may read the file, or it holds no key; ST_NOT_FOUND;
 * ST_SYSTEM. */
enum status curve_read_secret(const char *path, char key_out[CURVE_KEY_TEXT]);

/* `text` if it is a key itself, else the key in the file of that name.  Errors as above. */
enum status curve_read_public(const char *text, char key_out[CURVE_KEY_TEXT]);

/* Writes a new pair: the secret to PATH (mode 0600), the public key to PATH.pub and to public_out.
 * ST_INVALID: one of the files is there already. */
enum status curve_write_pair(const char *path, char public_out[CURVE_KEY_TEXT]);

/* Makes a socket a client: of the server with this public key, by our secret. */
enum status curve_be_client(void *socket, const char *server_key, const char *secret);

/* Makes a socket a server with this secret, which asks the context's ZAP handler. */
enum status curve_be_server(void *socket, const char *secret);

#endif
