#include "support/gguf_spec.h"

#include <check.h>
#include <unistd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    enum md_gguf_type type;
} types[] = { { "u8:", MD_GGUF_U8 },      { "u32:", MD_GGUF_U32 }, { "i32:", MD_GGUF_I32 },
              { "bool:", MD_GGUF_BOOL },  { "u64:", MD_GGUF_U64 }, { "f32:", MD_GGUF_F32 },
              { "text:", MD_GGUF_STRING } };

static enum md_gguf_type take_type(const char **value)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (strncmp(*value, types[i].name, strlen(types[i].name)) == 0) {
            *value += strlen(types[i].name);
            return types[i].type;
        }
    }
    return MD_GGUF_U32;
}

static void put_value(struct gguf_writer *w, const char *key, const char *value)
{
    enum { LIST_MAX = 1024 };
    int64_t list[LIST_MAX];
    size_t count = 0;
    const enum md_gguf_type type = take_type(&value);
    char *end;
    if (*value == '[') {
        for (value++; *value != ']'; value = *end == ',' ? end + 1 : end) {
            list[count++] = strtoll(value, &end, 10);
            ck_assert_msg(end != value && count < LIST_MAX, "'%s' is no list", value);
        }
        gw_ints(w, key, type, list, count);
    } else if (type == MD_GGUF_F32) {
        gw_f32(w, key, strtof(value, NULL));
    } else if (type == MD_GGUF_STRING) {
        gw_string(w, key, value);
    } else {
        gw_int(w, key, type, strtoll(value, NULL, 10));
    }
}

void gw_spec(struct gguf_writer *w, const char *arch, const char *spec)
{
    char copy[2048], key[160], *save = NULL;
    ck_assert_uint_lt(strlen(spec), sizeof copy);
    strcpy(copy, spec);
    for (char *word = strtok_r(copy, " ", &save); word != NULL; word = strtok_r(NULL, " ", &save)) {
        char *value = strchr(word, '=');
        ck_assert_msg(value != NULL, "'%s' has no value", word);
        *value = '\0';
        snprintf(key, sizeof key, "%s.%s", arch, word);
        put_value(w, key, value + 1);
    }
}

enum md_status gw_probe(struct gguf_writer *w, const struct md_backend *backend,
                        struct md_model_facts *ret_facts, struct md_err *err)
{
    char path[] = "/tmp/modeld-test-XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
    ck_assert_msg(gw_save(w, path, err) == MD_OK, "%s", err->text);
    gw_done(w);
    *err = (struct md_err){ 0 };
    memset(ret_facts, 0xa5, sizeof *ret_facts);
    enum md_status s = backend->probe(path, ret_facts, err);
    unlink(path);
    return s;
}

enum md_status gw_probe_spec(const struct md_backend *backend, const char *arch, const char *spec,
                             struct md_model_facts *ret_facts, struct md_err *err)
{
    struct gguf_writer w;
    gw_init(&w);
    if (arch != NULL)
        gw_string(&w, "general.architecture", arch);
    gw_spec(&w, arch != NULL ? arch : "none", spec);
    return gw_probe(&w, backend, ret_facts, err);
}
