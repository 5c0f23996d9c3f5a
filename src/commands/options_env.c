#include "commands/options_table.h"

#include "base/log.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Second names, looked at where the first is not set. */
static const struct {
    const char *flag, *variable;
} contenox_names[] = {
    { "--mem-max", "CONTENOX_MODELD_MEM_MAX" },
    { "--mem-reserve", "CONTENOX_MODELD_MEM_RESERVE" },
    { "--mem-cold", "CONTENOX_MODELD_MEM_COLD" },
    { "--mem-headroom", "CONTENOX_MODELD_MEM_HEADROOM" },
    { "--min-hot-context", "CONTENOX_MODELD_MIN_HOT_CONTEXT" },
    { "--ctx-size", "CONTENOX_LLAMA_CTX" },
    { "--cache-type-k", "CONTENOX_LLAMA_KV_CACHE_TYPE" },
    { "--cache-type-v", "CONTENOX_LLAMA_KV_CACHE_TYPE" },
    { "--gpu-layers", "CONTENOX_LLAMA_GPU_LAYERS" },
};

static const char *contenox_name(const struct md_option_def *d)
{
    for (size_t i = 0; i < sizeof contenox_names / sizeof contenox_names[0]; i++)
        if (strcmp(contenox_names[i].flag, md_option_name(d)) == 0)
            return contenox_names[i].variable;
    return NULL;
}

static void env_name(const struct md_option_def *d, char *out, size_t out_bytes)
{
    snprintf(out, out_bytes, "MODELD_%s", md_option_name(d) + 2);
    for (char *c = out; *c != '\0'; c++)
        *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
}

static void warn_unknown(void)
{
    /* read by the adapters, by the build, which exports them to what it runs, and by the clients in cli */
    static const char *const others[] = { "MODELD_LLAMA_LIBDIR=", "MODELD_OPENVINO_LIBDIR=",
                                          "MODELD_LLAMA_ROOT=", "MODELD_ACCEL=", "MODELD_CONNECT=" };
    extern char **environ;
    for (char **e = environ; e != NULL && *e != NULL; e++) {
        bool known = strncmp(*e, "MODELD_", 7) != 0 || strncmp(*e, "MODELD_TEST_", 12) == 0;
        for (size_t i = 0; i < sizeof others / sizeof others[0] && !known; i++)
            known = strncmp(*e, others[i], strlen(others[i])) == 0;
        for (size_t i = 0; i < md_option_count && !known; i++) {
            char name[64];
            env_name(&md_option_defs[i], name, sizeof name);
            known = strncmp(*e, name, strlen(name)) == 0 && (*e)[strlen(name)] == '=';
        }
        if (!known)
            md_log(MD_LOG_WARN, "unknown environment variable '%.*s' is ignored", (int)strcspn(*e, "="), *e);
    }
}

enum md_status md_options_env(enum md_command_bit command, struct md_options *o, struct md_err *err)
{
    for (size_t i = 0; i < md_option_count; i++) {
        const struct md_option_def *d = &md_option_defs[i];
        char own[64];
        struct md_err why;
        env_name(d, own, sizeof own);
        const char *name = own, *text = getenv(own);
        if (text == NULL && contenox_name(d) != NULL) {
            name = contenox_name(d);
            text = getenv(name);
        }
        if (text == NULL || !(d->commands & command))
            continue;
        enum md_status s = md_option_set(d, text, name != own, o, &why);
        if (s != MD_OK)
            return md_fail(err, s, "environment variable %s: %.400s", name, why.text);
    }
    warn_unknown();
    return MD_OK;
}
