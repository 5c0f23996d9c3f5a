/* origin.c - see origin.h. */
#include "session/origin.h"

#include "base/le.h"
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

enum { VERSION = 1 };

/* The members in the order of the file. */
static const struct member {
    const char *name;
    size_t at, bytes;
} members[] = {
#define MEMBER(name, member)                                                            \
    {                                                                                   \
        name, offsetof(struct md_origin, member), sizeof((struct md_origin *)0)->member \
    }
    MEMBER("engine", engine),
    MEMBER("version", version),
    MEMBER("device", device),
    MEMBER("model", model),
    MEMBER("model's key", model_key),
    MEMBER("KV type of keys", type_k),
    MEMBER("KV type of values", type_v),
    MEMBER("RoPE", rope),
#undef MEMBER
};
enum { MEMBERS = sizeof members / sizeof members[0] };

/* ---- text ---- */

/* Bytes of the character at p, when it is one that can be shown; else minus the bytes that are none. */
static int shown(const unsigned char *p, size_t len)
{
    const int n = md_utf8_step(p, len);
    const bool control = p[0] < 0x20 || p[0] == 0x7f || (n == 2 && p[0] == 0xc2 && p[1] < 0xa0);
    return n > 0 && control ? -n : n;
}

/* At most `bytes` - 1 of it, whole characters, and '?' for each that cannot be shown. */
static void copy_shown(struct md_bytes from, char *out, size_t bytes)
{
    const unsigned char *p = from.data;
    size_t used = 0;
    for (size_t at = 0; at < from.len;) {
        const int n = shown(p + at, from.len - at);
        const size_t take = n > 0 ? (size_t)n : 1;
        if (used + take >= bytes)
            break;
        if (n > 0)
            memcpy(out + used, p + at, take);
        else
            out[used] = '?';
        used += take;
        at += n > 0 ? (size_t)n : (size_t)-n;
    }
    out[used] = '\0';
}

/* ---- an origin ---- */

void md_origin_of(const struct md_engine_info *info, struct md_origin *ret)
{
    const char *const from[MEMBERS] = { info->engine,    info->version, info->device, info->model,
                                        info->model_key, info->type_k,  info->type_v, info->rope };
    *ret = (struct md_origin){ 0 };
    for (size_t i = 0; i < MEMBERS; i++)
        copy_shown((struct md_bytes){ from[i], strlen(from[i]) }, (char *)ret + members[i].at,
                   members[i].bytes);
}

enum md_status md_origin_write(const struct md_origin *o, struct md_buf *out, struct md_err *err)
{
    enum md_status st = md_buf_reserve(out, 4 + MEMBERS * 2 + sizeof *o, err);
    if (st != MD_OK)
        return st;
    md_le_store(out->data + out->len, VERSION, 4);
    out->len += 4;
    for (size_t i = 0; i < MEMBERS; i++) {
        const char *text = (const char *)o + members[i].at;
        const size_t len = strlen(text);
        md_le_store(out->data + out->len, len, 2);
        memcpy(out->data + out->len + 2, text, len);
        out->len += 2 + len;
    }
    return MD_OK;
}

static enum md_status read_member(const struct member *m, const uint8_t *p, size_t len, struct md_origin *out,
                                  struct md_err *err)
{
    if (len >= m->bytes)
        return md_fail(err, MD_CORRUPT,
                       "origin of the conversation: its %s has %zu bytes, at most %zu are read", m->name, len,
                       m->bytes - 1);
    for (size_t at = 0; at < len;) {
        const int n = shown(p + at, len - at);
        if (n <= 0)
            return md_fail(err, MD_CORRUPT, "origin of the conversation: byte %zu of its %s is no text", at,
                           m->name);
        at += (size_t)n;
    }
    memcpy((char *)out + m->at, p, len);
    return MD_OK;
}

enum md_status md_origin_read(struct md_bytes bytes, struct md_origin *ret, struct md_err *err)
{
    const uint8_t *p = bytes.data, *end = p + bytes.len;
    struct md_origin out = { 0 };
    if (bytes.len < 4)
        return md_fail(err, MD_CORRUPT, "origin of the conversation: it ends in its version");
    const unsigned version = (unsigned)md_le_load(p, 4);
    if (version != VERSION)
        return md_fail(err, MD_UNSUPPORTED,
                       "origin of the conversation: it is of version %u, this program reads %d", version,
                       VERSION);
    p += 4;
    for (size_t i = 0; i < MEMBERS; i++) {
        const size_t len = end - p >= 2 ? (size_t)md_le_load(p, 2) : 0;
        if (end - p < 2 || (size_t)(end - p) - 2 < len)
            return md_fail(err, MD_CORRUPT, "origin of the conversation: it ends in its %s", members[i].name);
        enum md_status st = read_member(&members[i], p + 2, len, &out, err);
        if (st != MD_OK)
            return st;
        p += 2 + len;
    }
    if (p != end)
        return md_fail(err, MD_CORRUPT, "origin of the conversation: %td bytes follow it", end - p);
    *ret = out;
    return MD_OK;
}

/* ---- may it be used here ---- */

/* Nothing says that KV of the one is other KV than that of the other; where it was computed does not matter. */
static bool same_kv(const struct md_origin *a, const struct md_origin *b)
{
    return strcmp(a->engine, b->engine) == 0 && strcmp(a->version, b->version) == 0 &&
           strcmp(a->type_k, b->type_k) == 0 && strcmp(a->type_v, b->type_v) == 0 &&
           strcmp(a->rope, b->rope) == 0;
}

enum { WORD_BYTES = 64, KV_BYTES = 128 };

/* What KV is of, in words: "llama b1234 with f16/f16 KV, RoPE yarn x4". */
static const char *kv_text(const struct md_origin *o, char out[KV_BYTES])
{
    char text[sizeof *o + 32];
    const int n =
        snprintf(text, sizeof text, "%s%s%s with %s/%s KV%s%s", o->engine, o->version[0] != '\0' ? " " : "",
                 o->version, o->type_k, o->type_v, o->rope[0] != '\0' ? ", RoPE " : "", o->rope);
    copy_shown((struct md_bytes){ text, (size_t)n }, out, KV_BYTES);
    return out;
}

/* Identities are words with bars between them: the first that differs is what people want to hear of. */
static void first_difference(struct md_bytes theirs, const char *ours, char ret_theirs[WORD_BYTES],
                             char ret_ours[WORD_BYTES])
{
    const char *a = theirs.data;
    size_t at = 0, begin = 0, end;
    for (; at < theirs.len && ours[at] != '\0' && ours[at] == a[at]; at++)
        begin = ours[at] == '|' ? at + 1 : begin;
    for (end = begin; end < theirs.len && a[end] != '|';)
        end++;
    copy_shown((struct md_bytes){ a + begin, end - begin }, ret_theirs, WORD_BYTES);
    copy_shown((struct md_bytes){ ours + begin, strcspn(ours + begin, "|") }, ret_ours, WORD_BYTES);
}

/* The line for KV that is of no use here, though the tokens are. */
static enum md_status refuse_kv(struct md_bytes identity, const struct md_origin *theirs,
                                const struct md_origin *ours, const struct md_engine_info *info,
                                struct md_err *err)
{
    char a[KV_BYTES], b[KV_BYTES], more[2 * WORD_BYTES + 32] = "", word[2][WORD_BYTES];
    if (same_kv(theirs, ours)) {
        first_difference(identity, info->identity, word[0], word[1]);
        snprintf(more, sizeof more, " ('%s' there, '%s' here)", word[0], word[1]);
    }
    return md_fail(err, MD_INVALID,
                   "the snapshot's KV is of %s, this daemon has %s%s: restore it with its tokens only "
                   "(--tokens-only, \"tokens_only\": true), and the KV is computed again",
                   kv_text(theirs, a), kv_text(ours, b), more);
}

enum md_status md_origin_judge(struct md_bytes identity, const struct md_bytes *origin,
                               const struct md_engine_info *info, bool tokens_only, struct md_err *err)
{
    const bool our_kv = md_bytes_are(identity, info->identity);
    char word[2][WORD_BYTES];
    struct md_origin theirs, ours;
    if (origin == NULL && our_kv)
        return MD_OK;
    if (origin == NULL) {
        first_difference(identity, info->identity, word[0], word[1]);
        return md_fail(
            err, MD_INVALID,
            "the snapshot is of another model or KV type: it has '%s' where this daemon has '%s', and "
            "is too old to say of which model its tokens are",
            word[0], word[1]);
    }
    enum md_status st = md_origin_read(*origin, &theirs, err);
    if (st != MD_OK)
        return st;
    md_origin_of(info, &ours);
    const bool our_model = ours.model_key[0] != '\0' && strcmp(theirs.model_key, ours.model_key) == 0;
    if (our_kv && (!our_model || !same_kv(&theirs, &ours)))
        return md_fail(err, MD_CORRUPT, "snapshot: its origin and the identity of its KV are of two engines");
    if (!our_model)
        return md_fail(err, MD_INVALID,
                       "the snapshot is of another model, '%.80s' (%s), this daemon has '%.80s' (%s): its "
                       "tokens mean nothing here",
                       theirs.model, theirs.model_key, ours.model, ours.model_key);
    return our_kv || tokens_only ? MD_OK : refuse_kv(identity, &theirs, &ours, info, err);
}
