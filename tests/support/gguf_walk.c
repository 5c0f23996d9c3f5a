#include "support/gguf_walk.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { INTS_MAX = 70 };

static enum md_status sum_bytes(void *user, const char *text, size_t len, struct md_err *err)
{
    (void)err;
    uint64_t *sum = user;
    for (size_t i = 0; i < len; i++)
        *sum += (uint8_t)text[i]; /* each borrowed byte can be read */
    return MD_OK;
}

static void ask_for_value(struct md_gguf *f, const struct md_gguf_entry *e)
{
    struct md_err err = { 0 };
    int64_t i, many[INTS_MAX];
    uint64_t sum = 0;
    double real;
    char text[40];
    const size_t n = e->is_array && e->count < INTS_MAX ? (size_t)e->count : 3;
    enum md_status s = md_gguf_int(f, e->key, -5, 5, &i, &err);
    assert(s != MD_NOT_FOUND && (s != MD_OK || (!e->is_array && i >= -5 && i <= 5)));
    s = md_gguf_real(f, e->key, &real, &err);
    assert(s != MD_NOT_FOUND && (s != MD_OK || isfinite(real)));
    for (size_t room = 1; room <= sizeof text; room++) {
        memset(text, 'x', sizeof text);
        s = md_gguf_string(f, e->key, text, room, &err);
        assert(s != MD_OK || memchr(text, '\0', room) != NULL);
    }
    s = md_gguf_ints(f, e->key, INT64_MIN, INT64_MAX, many, n, &err);
    assert(s != MD_OK || !e->is_array || e->count == n);
    s = md_gguf_each_string(f, e->key, sum_bytes, &sum, &err);
    assert(s != MD_OK || (e->is_array && e->type == MD_GGUF_STRING));
}

/* The text ends inside its room and has nothing that moves a terminal. */
static void ask_for_text(struct md_gguf *f, const struct md_gguf_entry *e)
{
    for (size_t room = 1; room < 400; room = room * 2 + 1) {
        char *out = malloc(room);
        assert(out != NULL);
        memset(out, 'x', room);
        md_gguf_value_text(f, e, out, room);
        const char *end = memchr(out, '\0', room);
        assert(end != NULL);
        for (const char *c = out; c < end; c++)
            assert((uint8_t)*c >= 0x20 && *c != 0x7f);
        free(out);
    }
}

void gguf_walk(struct md_gguf *f)
{
    int64_t bytes = 0;
    assert(md_gguf_version(f) == 2 || md_gguf_version(f) == 3);
    assert(md_gguf_path(f) != NULL && md_gguf_part_count(f) >= 1);
    assert(md_gguf_alignment(f) >= 8 && md_gguf_data_offset(f) <= (uint64_t)md_gguf_file_bytes(f));
    for (size_t i = 0; i < md_gguf_entry_count(f); i++) {
        const struct md_gguf_entry *e = md_gguf_entry_at(f, i);
        assert(e->key[0] != '\0' && md_gguf_find(f, e->key) == e);
        assert(e->type != MD_GGUF_ARRAY && md_gguf_type_name(e->type) != NULL &&
               (e->is_array || e->count == 1));
        ask_for_value(f, e);
        ask_for_text(f, e);
    }
    for (size_t i = 0; i < md_gguf_tensor_count(f); i++) {
        const struct md_gguf_tensor *t = md_gguf_tensor_at(f, i);
        assert(t->name[0] != '\0' && strlen(t->name) < 64 && t->type != NULL && t->bytes > 0);
        assert(t->dimension_count <= 4 && t->part >= 0 && t->part < md_gguf_part_count(f));
        for (int d = 0; d < 4; d++)
            assert(t->dimensions[d] > 0);
        assert((int64_t)t->offset > 0 && (int64_t)t->offset <= md_gguf_file_bytes(f) - t->bytes);
        bytes += t->bytes;
    }
    assert(bytes == md_gguf_tensor_bytes(f));
}
