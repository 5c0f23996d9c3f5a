#include "commands/start.h"

#include "base/log.h"

#include <stdio.h>

int md_start(int argc, char **argv, enum md_command_bit command, const char *about, struct md_options *ret_options)
{
    struct md_err err;
    if (md_options_parse(argc, argv, command, ret_options, &err) != MD_OK) {
        fprintf(stderr, "modeld %s: %s\n", argv[0], err.text);
        return 2;
    }
    if (ret_options->help) {
        printf("usage: modeld %s [flags]\n%s\n\n", argv[0], about);
        md_options_help(command);
        return 0;
    }
    if (command != MD_CMD_CHAT && (ret_options->model == NULL || ret_options->model[0] == '\0')) {
        fprintf(stderr, "modeld %s: no model: give one with -m FILE.gguf (`modeld chat` lists those it finds)\n", argv[0]);
        return 2;
    }
    if (ret_options->verbose)
        md_log_set_level(MD_LOG_DEBUG);
    return -1;
}

int md_failed(const char *verb, const struct md_err *err)
{
    fprintf(stderr, "modeld %s: %s\n", verb, err->text);
    return 1;
}
