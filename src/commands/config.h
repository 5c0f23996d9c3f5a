/* config.h - modeld.json: settings that last, as the text that the flag of each would be given.
 *
 *     { "memory": { "max_resident": "8GiB", "max_resident_bytes": 8589934592,    --mem-max
 *                   "reserve_free": "2GiB", "min_free_bytes": 2147483648,        --mem-reserve
 *                   "host_cold_budget": "25%", "host_cold_budget_bytes": 0,      --mem-cold
 *                   "headroom_frac": 0.15,                                       --mem-headroom
 *                   "min_hot_context_tokens": 4096 },                            --min-hot-context
 *       "rope": { "scaling": "yarn", "scale": 4,                                 --rope-scaling, --rope-scale
 *                 "freq_scale": 0.25, "freq_base": 1000000,                      --rope-freq-scale, --rope-freq-base
 *                 "yarn_orig_ctx": 8192, "yarn_ext_factor": 1,                   --yarn-orig-ctx, --yarn-ext-factor
 *                 "yarn_attn_factor": 1,                                         --yarn-attn-factor
 *                 "yarn_beta_fast": 32, "yarn_beta_slow": 1 },                   --yarn-beta-fast, --yarn-beta-slow
 *       "context": { "past_window": false },                                     --past-window
 *       "idle": { "ttl": "5m" } }                                                known, without effect here
 *
 * Where a setting has a number and a text, the text counts.  A size of zero is as if it were not there;
 * min_hot_context_tokens of zero or less means off.
 *
 * Threads: any.  Source: contenox modeld, whose file this is; "rope" and "context" are this project's. */
#ifndef MD_COMMANDS_CONFIG_H
#define MD_COMMANDS_CONFIG_H

#include "base/err.h"

#include <stddef.h>

enum { MD_CONFIG_BYTES_MAX = 1 << 20, MD_CONFIG_VALUES_MAX = 16 };

struct md_config {
    struct md_config_value {
        const char *key, *option; /* "memory.max_resident", "--mem-max": constants */
        char text[64];
    } values[MD_CONFIG_VALUES_MAX]; /* one for each option at most */
    size_t count;
};

/* A file that is not there sets nothing.
 *
 * MD_INVALID  not JSON, unknown or doubled key, wrong type or value, too large: the text has file, key, finding
 * MD_IO       a directory, or not readable;  MD_NO_MEMORY */
MD_MUST_USE enum md_status md_config_read(const char *path, struct md_config *ret_config, struct md_err *err);

#endif
