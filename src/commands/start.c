#include "commands/start.h"

#include "base/log.h"

#include <stdio.h>

int md_start(int argc, char **argv, enum md_command_bit command, const char *about,
             struct md_options *ret_options)
{
    struct md_err err;
    if (md_options_parse(argc, argv, command, ret_options, &err) != MD_OK) {
        md_complain(argv[0], err.text);
        return 2;
    }
    if (ret_options->help) {
        bool about_a_file = (command & (MD_CMD_PLAN | MD_CMD_SHOW)) != 0;
        printf("usage: modeld %s [flags]%s\n%s\n\n", argv[0], about_a_file ? " [FILE|NAME]" : "", about);
        md_options_help(command);
        return 0;
    }
    if (ret_options->verbose)
        md_log_set_level(MD_LOG_DEBUG);
    if (md_options_read_file(command, ret_options, &err) != MD_OK) {
        md_complain(argv[0], err.text);
        return 2;
    }
    if (!(command & (MD_CMD_CHAT | MD_CMD_DOCTOR)) &&
        (ret_options->model == NULL || ret_options->model[0] == '\0')) {
        md_complain(argv[0], "no model: give one with -m FILE.gguf (`modeld chat` lists those it finds)");
        return 2;
    }
    return -1;
}

int md_failed(const char *verb, const struct md_err *err)
{
    md_complain(verb, err->text);
    return 1;
}

enum md_status md_start_memory(struct md_host_memory *ret, struct md_err *err)
{
    static bool told;
    enum md_status s = md_host_memory(NULL, ret, err);
    if (s == MD_OK && ret->problem[0] != '\0' && !told) {
        told = true;
        md_log(MD_LOG_WARN, "a memory limit cannot be read and does not count: %s", ret->problem);
    }
    return s;
}
