/* SPDX-License-Identifier: Apache-2.0 */
/* What every process does with its options before it begins. */
#include <stdio.h>

#include "common/conf.h"

enum status
conf_read_args(struct conf conf, int argc, char **argv)
{
    int operand;

    TRY(conf_parse_args(conf, argc, argv, &operand));
    if (operand < argc) {
        return ERR(ST_INVALID, "%s: there is nothing but options; --help lists them",
                   argv[operand]);
    }
    return ST_OK;
}

enum status
conf_read(struct conf conf, int argc, char **argv)
{
    const char *path = conf_config_path(argc, argv);

    TRY(conf_defaults(conf));
    if (path != NULL) {
        TRY(conf_read_file(conf, path));
    }
    return conf_read_args(conf, argc, argv);
}

bool
conf_print_only(struct conf conf, int argc, char **argv, const char *program, const char *usage)
{
    if (conf_scan(argc, argv, "help")) {
        (void)printf("%s\n", usage);
        conf_print_help(conf, stdout);
    } else if (conf_scan(argc, argv, "version")) {
        (void)printf("%s %s\n", program, PACKAGE_VERSION);
    } else if (conf_scan(argc, argv, "print-config")) {
        conf_print_sample(conf, stdout);
    } else {
        return false;
    }
    return true;
}
