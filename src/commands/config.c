#include "commands/config.h"

#include "base/log.h"
#include "base/mem.h"
#include "commands/options.h"
#include "host/file.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <yyjson.h>

enum form { BYTES, SIZE_TEXT, SHARE, TOKENS, NUMBER, NAME, YES_NO, UNUSED_TEXT };

/* Of two rows for one option the later one counts. */
static const struct key {
    const char *key; /* the name of its object, a dot, its own name */
    enum form form;
    const char *option;
} keys[] = {
    { "memory.max_resident_bytes", BYTES, "--mem-max" },
    { "memory.max_resident", SIZE_TEXT, "--mem-max" },
    { "memory.min_free_bytes", BYTES, "--mem-reserve" },
    { "memory.reserve_free", SIZE_TEXT, "--mem-reserve" },
    { "memory.host_cold_budget_bytes", BYTES, "--mem-cold" },
    { "memory.host_cold_budget", SIZE_TEXT, "--mem-cold" },
    { "memory.headroom_frac", SHARE, "--mem-headroom" },
    { "memory.min_hot_context_tokens", TOKENS, "--min-hot-context" },
    { "rope.scaling", NAME, "--rope-scaling" },
    { "rope.scale", NUMBER, "--rope-scale" },
    { "rope.freq_scale", NUMBER, "--rope-freq-scale" },
    { "rope.freq_base", NUMBER, "--rope-freq-base" },
    { "rope.yarn_orig_ctx", TOKENS, "--yarn-orig-ctx" },
    { "rope.yarn_ext_factor", NUMBER, "--yarn-ext-factor" },
    { "rope.yarn_attn_factor", NUMBER, "--yarn-attn-factor" },
    { "rope.yarn_beta_fast", NUMBER, "--yarn-beta-fast" },
    { "rope.yarn_beta_slow", NUMBER, "--yarn-beta-slow" },
    { "context.past_window", YES_NO, "--past-window" },
    { "engine.xattention", NUMBER, "--xattention" },
    { "idle.ttl", UNUSED_TEXT, NULL },
};
enum { KEY_COUNT = sizeof keys / sizeof keys[0] };

/* One file on its way to a config. */
struct parser {
    const char *path;
    bool seen[KEY_COUNT];
    char text[KEY_COUNT][sizeof((struct md_config_value *)0)->text]; /* "": sets nothing */
};

/* ---- values ---- */

static enum md_status wrong(const struct parser *p, const struct key *k, const char *wanted,
                            yyjson_val *found, struct md_err *err)
{
    char value[64];
    if (yyjson_is_sint(found))
        snprintf(value, sizeof value, "%" PRId64, yyjson_get_sint(found));
    else if (yyjson_is_uint(found))
        snprintf(value, sizeof value, "%" PRIu64, yyjson_get_uint(found));
    else if (yyjson_is_real(found))
        snprintf(value, sizeof value, "%g", yyjson_get_real(found));
    else if (yyjson_is_str(found))
        snprintf(value, sizeof value, "'%.40s'", yyjson_get_str(found));
    else
        snprintf(value, sizeof value, "%s", yyjson_get_type_desc(found));
    return md_fail(err, MD_INVALID, "file '%.250s': %s must be %s, found %s", p->path, k->key, wanted, value);
}

static enum md_status take_size_text(const struct parser *p, const struct key *k, yyjson_val *v, char *out,
                                     size_t out_bytes, struct md_err *err)
{
    const int64_t some = INT64_C(1) << 60; /* which percentage it is does not matter yet */
    struct md_err why;
    int64_t bytes;
    if (!yyjson_is_str(v) || strlen(yyjson_get_str(v)) != yyjson_get_len(v) || yyjson_get_len(v) >= out_bytes)
        return wrong(p, k, "a size such as \"8GiB\"", v, err);
    enum md_status s = md_parse_size(yyjson_get_str(v), some, &bytes, &why);
    if (s != MD_OK)
        return md_fail(err, s, "file '%.250s': %s: %.150s", p->path, k->key, why.text);
    if (bytes > 0) /* else a number beside it counts */
        snprintf(out, out_bytes, "%s", yyjson_get_str(v));
    return MD_OK;
}

static enum md_status take_value(const struct parser *p, const struct key *k, yyjson_val *v, char *out,
                                 size_t out_bytes, struct md_err *err)
{
    switch (k->form) {
    case BYTES:
        if (!yyjson_is_uint(v) || yyjson_get_uint(v) > INT64_MAX)
            return wrong(p, k, "a whole number of bytes", v, err);
        snprintf(out, out_bytes, "%" PRIu64, yyjson_get_uint(v));
        return MD_OK;
    case SIZE_TEXT: return take_size_text(p, k, v, out, out_bytes, err);
    case SHARE:
        if (!yyjson_is_num(v) || !(yyjson_get_num(v) > 0 && yyjson_get_num(v) < 1))
            return wrong(p, k, "a number between 0 and 1", v, err);
        snprintf(out, out_bytes, "%.17g", yyjson_get_num(v));
        return MD_OK;
    case TOKENS:
        if (!yyjson_is_int(v) || (yyjson_is_uint(v) && yyjson_get_uint(v) > INT32_MAX))
            return wrong(p, k, "a whole number of tokens", v, err);
        snprintf(out, out_bytes, "%" PRId64, yyjson_is_uint(v) ? (int64_t)yyjson_get_uint(v) : 0);
        return MD_OK;
    case NUMBER: /* the flag knows its range */
        if (!yyjson_is_num(v))
            return wrong(p, k, "a number", v, err);
        snprintf(out, out_bytes, "%.17g", yyjson_get_num(v));
        return MD_OK;
    case NAME:
        if (!yyjson_is_str(v) || strlen(yyjson_get_str(v)) != yyjson_get_len(v) || yyjson_get_len(v) == 0 ||
            yyjson_get_len(v) >= out_bytes)
            return wrong(p, k, "a word", v, err);
        snprintf(out, out_bytes, "%s", yyjson_get_str(v));
        return MD_OK;
    case YES_NO:
        if (!yyjson_is_bool(v))
            return wrong(p, k, "true or false", v, err);
        snprintf(out, out_bytes, "%s", yyjson_get_bool(v) ? "on" : "off");
        return MD_OK;
    case UNUSED_TEXT:
        if (!yyjson_is_str(v))
            return wrong(p, k, "a text", v, err);
        md_log(MD_LOG_DEBUG, "file '%.250s': %s has no effect in this version", p->path, k->key);
        return MD_OK;
    }
    return MD_OK;
}

/* ---- keys ---- */

static enum md_status unknown_key(const struct parser *p, const char *prefix, const char *name,
                                  struct md_err *err)
{
    return md_fail(err, MD_INVALID, "file '%.250s': unknown key '%s%.60s'", p->path, prefix, name);
}

static enum md_status take_group(struct parser *p, const char *group, yyjson_val *members, struct md_err *err)
{
    yyjson_obj_iter it = yyjson_obj_iter_with(members);
    enum md_status s = MD_OK;
    for (yyjson_val *name; s == MD_OK && (name = yyjson_obj_iter_next(&it)) != NULL;) {
        char prefix[32];
        int n = snprintf(prefix, sizeof prefix, "%s.", group);
        size_t i = 0;
        while (i < KEY_COUNT &&
               (strncmp(keys[i].key, prefix, (size_t)n) != 0 || !yyjson_equals_str(name, keys[i].key + n)))
            i++;
        if (i == KEY_COUNT)
            return unknown_key(p, prefix, yyjson_get_str(name), err);
        if (p->seen[i])
            return md_fail(err, MD_INVALID, "file '%.250s': %s is there twice", p->path, keys[i].key);
        p->seen[i] = true;
        s = take_value(p, &keys[i], yyjson_obj_iter_get_val(name), p->text[i], sizeof p->text[i], err);
    }
    return s;
}

static enum md_status take_root(struct parser *p, yyjson_val *root, struct md_err *err)
{
    static const char *const groups[] = { "memory", "rope", "context", "engine", "idle" };
    enum { GROUP_COUNT = sizeof groups / sizeof groups[0] };
    bool seen[GROUP_COUNT] = { 0 };
    if (!yyjson_is_obj(root))
        return md_fail(err, MD_INVALID, "file '%.250s' must be an object, found %s", p->path,
                       yyjson_get_type_desc(root));
    yyjson_obj_iter it = yyjson_obj_iter_with(root);
    enum md_status s = MD_OK;
    for (yyjson_val *name; s == MD_OK && (name = yyjson_obj_iter_next(&it)) != NULL;) {
        yyjson_val *v = yyjson_obj_iter_get_val(name);
        size_t g = 0;
        while (g < GROUP_COUNT && !yyjson_equals_str(name, groups[g]))
            g++;
        if (g == GROUP_COUNT)
            return unknown_key(p, "", yyjson_get_str(name), err);
        if (seen[g])
            return md_fail(err, MD_INVALID, "file '%.250s': %s is there twice", p->path, groups[g]);
        if (!yyjson_is_obj(v))
            return md_fail(err, MD_INVALID, "file '%.250s': %s must be an object, found %s", p->path,
                           groups[g], yyjson_get_type_desc(v));
        seen[g] = true;
        s = take_group(p, groups[g], v, err);
    }
    return s;
}

static void put(const struct key *k, const char *text, struct md_config *c)
{
    size_t i = 0;
    while (i < c->count && strcmp(c->values[i].option, k->option) != 0)
        i++;
    if (i == c->count)
        c->count++;
    c->values[i] = (struct md_config_value){ .key = k->key, .option = k->option };
    snprintf(c->values[i].text, sizeof c->values[i].text, "%s", text);
}

static enum md_status parse(const char *path, struct md_buf *b, struct md_config *ret_config,
                            struct md_err *err)
{
    struct parser p = { .path = path };
    struct md_config c = { .count = 0 };
    yyjson_read_err bad;
    if (b->len == 0)
        return md_fail(err, MD_INVALID, "file '%.250s' is empty: write {} for no settings", path);
    yyjson_doc *doc = yyjson_read_opts((char *)b->data, b->len, YYJSON_READ_NOFLAG, NULL, &bad);
    if (doc == NULL && bad.code == YYJSON_READ_ERROR_MEMORY_ALLOCATION)
        return md_fail(err, MD_NO_MEMORY, "file '%.250s'", path);
    if (doc == NULL) {
        int line = 1;
        for (size_t i = 0; i < bad.pos && i < b->len; i++)
            line += b->data[i] == '\n';
        return md_fail(err, MD_INVALID, "file '%.250s' is not JSON: line %d: %s", path, line, bad.msg);
    }
    enum md_status s = take_root(&p, yyjson_doc_get_root(doc), err);
    yyjson_doc_free(doc);
    for (size_t i = 0; i < KEY_COUNT; i++)
        if (p.text[i][0] != '\0')
            put(&keys[i], p.text[i], &c);
    if (s == MD_OK)
        *ret_config = c;
    return s;
}

enum md_status md_config_read(const char *path, struct md_config *ret_config, struct md_err *err)
{
    struct md_buf b;
    bool missing;
    md_buf_init(&b, NULL, MD_CONFIG_BYTES_MAX);
    enum md_status s = md_file_read(path, MD_CONFIG_BYTES_MAX, &b, &missing, err);
    if (s == MD_OK && missing)
        *ret_config = (struct md_config){ .count = 0 };
    else if (s == MD_OK)
        s = parse(path, &b, ret_config, err);
    md_buf_done(&b);
    return s;
}
