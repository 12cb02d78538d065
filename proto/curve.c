/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/curve.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zmq.h>

#define FILE_BYTES_MAX 1024
#define ZAP_DOMAIN     "kvasir"

static bool
is_key(const char *text)
{
    uint8_t bytes[CURVE_KEY_BYTES];

    return strlen(text) == CURVE_KEY_TEXT - 1 && zmq_z85_decode(bytes, text) != NULL;
}

/* The first line that is no comment, without blanks around it. */
static enum status
read_key(int fd, const char *path, char key_out[CURVE_KEY_TEXT])
{
    char text[FILE_BYTES_MAX + 1];
    ssize_t length = read(fd, text, FILE_BYTES_MAX);

    if (length < 0) {
        return ERR(ST_SYSTEM, "%s: %s", path, strerror(errno));
    }
    text[length] = '\0';
    for (char *line = text; *line != '\0'; line += strcspn(line, "\n"), line += *line == '\n') {
        size_t begin = strspn(line, " \t\r");
        size_t end = begin + strcspn(line + begin, " \t\r\n");

        if (line[0] == '#' || begin == end) {
            continue;
        }
        if (end - begin == CURVE_KEY_TEXT - 1) {
            memcpy(key_out, line + begin, end - begin);
            key_out[end - begin] = '\0';
            if (is_key(key_out)) {
                return ST_OK;
            }
        }
        break;
    }
    return ERR(ST_INVALID, "%s: its first line must be a key: %d characters of Z85", path,
               CURVE_KEY_TEXT - 1);
}

static enum status
read_file(const char *path, bool is_secret, char key_out[CURVE_KEY_TEXT])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    enum status st = ST_OK;
    struct stat info;

    if (fd < 0) {
        return ERR(errno == ENOENT ? ST_NOT_FOUND : ST_SYSTEM, "%s: %s", path, strerror(errno));
    }
    if (fstat(fd, &info) != 0) {
        st = ERR(ST_SYSTEM, "%s: %s", path, strerror(errno));
    } else if (is_secret && (info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        st = ERR(ST_INVALID, "%s: a secret that others may read (mode %03o): chmod 600 it", path,
                 (unsigned)info.st_mode & 0777u);
    }
    st = st != ST_OK ? st : read_key(fd, path, key_out);
    (void)close(fd);
    return st;
}

enum status
curve_read_secret(const char *path, char key_out[CURVE_KEY_TEXT])
{
    return read_file(path, true, key_out);
}

enum status
curve_read_public(const char *text, char key_out[CURVE_KEY_TEXT])
{
    if (is_key(text)) {
        memcpy(key_out, text, CURVE_KEY_TEXT);
        return ST_OK;
    }
    return read_file(text, false, key_out);
}

static enum status
write_key(const char *path, mode_t mode, const char *what, const char *key)
{
    char text[128];
    int length = snprintf(text, sizeof(text), "# kvasir: %s key\n%s\n", what, key);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    enum status st = ST_OK;

    if (fd < 0) {
        return ERR(errno == EEXIST ? ST_INVALID : ST_SYSTEM, "%s: %s", path, strerror(errno));
    }
    if (write(fd, text, (size_t)length) != length || fsync(fd) != 0) {
        st = ERR(ST_SYSTEM, "%s: %s", path, strerror(errno));
    }
    (void)close(fd);
    return st;
}

enum status
curve_write_pair(const char *path, char public_out[CURVE_KEY_TEXT])
{
    char secret[CURVE_KEY_TEXT];
    char public_path[PATH_MAX];
    int length = snprintf(public_path, sizeof(public_path), "%s.pub", path);

    if (length < 0 || (size_t)length >= sizeof(public_path)) {
        return ERR(ST_INVALID, "%s: longer than %d bytes", path, PATH_MAX - 5);
    }
    if (zmq_curve_keypair(public_out, secret) != 0) {
        return ERR(ST_SYSTEM, "zmq_curve_keypair: %s", zmq_strerror(errno));
    }
    if (access(public_path, F_OK) == 0) {
        return ERR(ST_INVALID, "%s: File exists", public_path);
    }
    TRY(write_key(path, 0600, "secret", secret));
    return write_key(public_path, 0644, "public", public_out);
}

static enum status
set(void *socket, int option, const void *value, size_t length)
{
    return zmq_setsockopt(socket, option, value, length) == 0
               ? ST_OK
               : ERR(ST_SYSTEM, "CURVE: %s", zmq_strerror(errno));
}

enum status
curve_be_client(void *socket, const char *server_key, const char *secret)
{
    char public_key[CURVE_KEY_TEXT];

    if (zmq_curve_public(public_key, secret) != 0) {
        return ERR(ST_SYSTEM, "zmq_curve_public: %s", zmq_strerror(errno));
    }
    TRY(set(socket, ZMQ_CURVE_SERVERKEY, server_key, CURVE_KEY_TEXT));
    TRY(set(socket, ZMQ_CURVE_PUBLICKEY, public_key, CURVE_KEY_TEXT));
    return set(socket, ZMQ_CURVE_SECRETKEY, secret, CURVE_KEY_TEXT);
}

enum status
curve_be_server(void *socket, const char *secret)
{
    int is_server = 1;

    TRY(set(socket, ZMQ_CURVE_SERVER, &is_server, sizeof(is_server)));
    TRY(set(socket, ZMQ_ZAP_DOMAIN, ZAP_DOMAIN, strlen(ZAP_DOMAIN)));
    return set(socket, ZMQ_CURVE_SECRETKEY, secret, CURVE_KEY_TEXT);
}
