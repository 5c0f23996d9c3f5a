/* heads_table.c - see heads_table.h.  The texts are heads_table.inc, which a script writes. */
#include "policy/heads_table.h"

static const char *const texts[] = {
#include "policy/heads_table.inc"
    NULL
};

size_t md_heads_table_count(void)
{
    return sizeof texts / sizeof texts[0] - 1;
}

struct md_bytes md_heads_table_text(size_t i)
{
    const char *text = i + 1 < sizeof texts / sizeof texts[0] ? texts[i] : "";
    return (struct md_bytes){ text, strlen(text) };
}

enum md_status md_heads_table_find(const struct md_calibrate_key *key, struct md_calibrate_set *ret_set,
                                   struct md_err *err)
{
    for (size_t i = 0; i < md_heads_table_count(); i++)
        if (md_calibrate_parse(md_heads_table_text(i), key, ret_set, NULL) == MD_OK)
            return MD_OK;
    return md_fail(err, MD_NOT_FOUND, "no heads are known of model %.64s", key->model);
}
