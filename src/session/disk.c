/* disk.c - see disk.h.  The index holds an entry with its tokens for each block; the KV stays in the file. */
#include "session/disk_internal.h"

#include "base/log.h"
#include "policy/prefix.h"
#include "session/block_meta.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RECORD_MAX = 256 << 20, NOTES_MAX = 16 << 20 };

#define IDENTITY MD_SECTION_TYPE('I', 'D', 'E', 'N')
#define META MD_SECTION_TYPE('M', 'E', 'T', 'A')
#define TOKENS MD_SECTION_TYPE('T', 'O', 'K', 'S')
#define RECORD MD_SECTION_TYPE('C', 'O', 'N', 'V')
#define NOTES MD_SECTION_TYPE('F', 'R', 'N', 'T')

/* ---- names ---- */

void md_disk_block_name(const struct md_key *key, char out[MD_DISK_NAME_BYTES])
{
    snprintf(out, MD_DISK_NAME_BYTES, "b-%016" PRIx64 "%016" PRIx64 ".kv", key->hi, key->lo);
}

static void record_name(int64_t id, char out[MD_DISK_NAME_BYTES])
{
    snprintf(out, MD_DISK_NAME_BYTES, "s-%" PRId64 ".session", id);
}

static struct md_sections_place place_of(const struct md_disk *d, const char *name)
{
    return (struct md_sections_place){ .folder = d->folder, .name = name };
}

void md_disk_remove_file(const struct md_disk *d, const char *name)
{
    struct md_err err;
    const struct md_sections_place at = place_of(d, name);
    const enum md_status s = md_sections_remove(&at, &err);
    if (s != MD_OK && s != MD_NOT_FOUND)
        md_log(MD_LOG_WARN, "kv folder: %s", err.text);
}

/* ---- reading files ---- */

/* The next section, which must be of `type`; its bytes into `out`, room for `most`. */
static enum md_status read_section(struct md_sections_reader *r, uint32_t type, void *out, int64_t least,
                                   int64_t most, int64_t *ret_bytes, struct md_err *err)
{
    uint32_t found;
    enum md_status s = md_sections_next(r, &found, ret_bytes, err);
    if (s == MD_OK && (found != type || *ret_bytes < least || *ret_bytes > most))
        s = md_fail(err, MD_CORRUPT, "sections of another order or size");
    return s == MD_OK && *ret_bytes > 0 ? md_sections_read(r, out, (size_t)*ret_bytes, err) : s;
}

static enum md_status check_identity(const struct md_disk *d, struct md_sections_reader *r,
                                     struct md_err *err)
{
    char found[1024];
    int64_t bytes;
    enum md_status s = read_section(r, IDENTITY, found, 1, sizeof found, &bytes, err);
    if (s == MD_OK &&
        ((size_t)bytes != strlen(d->identity) || memcmp(found, d->identity, (size_t)bytes) != 0))
        s = md_fail(err, MD_CORRUPT, "KV of another model or KV type");
    return s;
}

enum md_status md_disk_open_file(const struct md_disk *d, const char *name, uint32_t kind,
                                 struct md_sections_reader **ret_reader, struct md_err *err)
{
    static const uint32_t of_block[] = { IDENTITY, META, TOKENS, MD_DISK_KV },
                          of_record[] = { IDENTITY, RECORD, NOTES };
    const struct md_sections_place at = place_of(d, name);
    const bool block = kind == MD_DISK_BLOCK;
    enum md_status s = md_sections_open_as_read(d->alloc, &at, kind, block ? of_block : of_record,
                                                block ? 4 : 3, INT64_MAX, ret_reader, err);
    return s == MD_OK ? check_identity(d, *ret_reader, err) : s;
}

static struct md_disk_block *new_block(const struct md_disk *d, int32_t token_count)
{
    struct md_disk_block *b = md_calloc(d->alloc, 1, sizeof *b + (size_t)token_count * sizeof(md_token));
    if (b != NULL)
        b->entry.tokens = b->tokens;
    return b;
}

static struct md_disk_block *block_of(struct md_cold_entry *e)
{
    return (struct md_disk_block *)e;
}

/* What a file says of its block, up to its KV; the reader stands before that. */
enum md_status md_disk_read_head(const struct md_disk *d, struct md_sections_reader *r,
                                 struct md_disk_block **ret_block, struct md_err *err)
{
    uint8_t meta[MD_BLOCK_META_BYTES];
    struct md_cold_entry e = { 0 };
    int64_t bytes;
    enum md_status s = read_section(r, META, meta, MD_BLOCK_META_BYTES, MD_BLOCK_META_BYTES, &bytes, err);
    if (s == MD_OK && !md_block_meta_read(meta, &e))
        s = md_fail(err, MD_CORRUPT, "values that no block has");
    if (s != MD_OK)
        return s;
    struct md_disk_block *b = new_block(d, e.token_count);
    if (b == NULL)
        return md_fail(err, MD_NO_MEMORY, "block of %d tokens", e.token_count);
    const int64_t want = (int64_t)e.token_count * (int64_t)sizeof(md_token);
    s = read_section(r, TOKENS, b->tokens, want, want, &bytes, err);
    if (s == MD_OK && !md_key_equal(md_prefix_chain(e.parent, b->tokens, (size_t)e.token_count), e.key))
        s = md_fail(err, MD_CORRUPT, "tokens of another key");
    if (s != MD_OK) {
        md_free(d->alloc, b);
        return s;
    }
    e.tokens = b->tokens;
    b->entry = e;
    *ret_block = b;
    return MD_OK;
}

/* ---- the index ---- */

static void remove_block_file(const struct md_disk *d, const struct md_key *key)
{
    char name[MD_DISK_NAME_BYTES];
    md_disk_block_name(key, name);
    md_disk_remove_file(d, name);
}

static void forget(struct md_disk *d, struct md_cold_entry *e, bool dropped)
{
    md_coldstore_remove(d->index, e, dropped);
    remove_block_file(d, &e->key);
    md_free(d->alloc, block_of(e));
}

bool md_disk_make_room(struct md_disk *d, size_t bytes, enum md_cache_class cls)
{
    if (!md_coldstore_can_fit(d->index, bytes, cls))
        return false;
    struct md_cold_entry *e;
    while ((e = md_coldstore_victim(d->index, bytes, cls)) != NULL)
        forget(d, e, true);
    return true;
}

size_t md_disk_whole_pages(uint64_t bytes)
{
    return (size_t)((bytes + MD_DISK_PAGE - 1) / MD_DISK_PAGE * MD_DISK_PAGE);
}

static struct md_cold_entry *peek(const struct md_disk *d, const struct md_cold_ref *ref)
{
    return md_coldstore_peek(d->index, ref->key, ref->parent, ref->range.start, ref->tokens,
                             md_range_len(ref->range));
}

struct md_coldstore *md_disk_index(struct md_disk *d)
{
    return d->index;
}

/* ---- writing ---- */

/* A whole file of `count` sections, behind the identity; in place of what was there. */
static enum md_status write_file(const struct md_disk *d, const char *name, uint32_t kind,
                                 const uint32_t *types, const struct md_bytes *parts, size_t count,
                                 struct md_err *err)
{
    const struct md_sections_place at = place_of(d, name);
    const struct md_bytes identity = { d->identity, strlen(d->identity) };
    struct md_sections_writer *w;
    enum md_status s = md_sections_create(d->alloc, &at, kind, INT64_MAX, &w, err);
    if (s != MD_OK)
        return s;
    s = md_sections_put(w, IDENTITY, &identity, 1, err);
    for (size_t i = 0; s == MD_OK && i < count; i++)
        s = md_sections_put(w, types[i], &parts[i], 1, err);
    if (s == MD_OK)
        return md_sections_commit(w, true, err);
    md_sections_abort(w);
    return s;
}

static enum md_status write_block(struct md_disk *d, const struct md_cold_entry *e, struct md_bytes kv,
                                  struct md_err *err)
{
    static const uint32_t types[] = { META, TOKENS, MD_DISK_KV };
    char name[MD_DISK_NAME_BYTES];
    uint8_t meta[MD_BLOCK_META_BYTES];
    md_disk_block_name(&e->key, name);
    md_block_meta_write(e, meta);
    const struct md_bytes parts[] = { { meta, sizeof meta },
                                      { e->tokens, (size_t)e->token_count * sizeof *e->tokens },
                                      kv };
    return write_file(d, name, MD_DISK_BLOCK, types, parts, 3, err);
}

size_t md_disk_cost(const struct md_disk *d, int32_t token_count, uint64_t kv_bytes)
{
    enum { FRAME = 256 }; /* header, heads of sections, end */
    return md_disk_whole_pages(FRAME + strlen(d->identity) + MD_BLOCK_META_BYTES +
                               (uint64_t)token_count * sizeof(md_token) + kv_bytes);
}

enum md_status md_disk_put(struct md_disk *d, const struct md_cold_ref *ref, enum md_cache_class cls,
                           struct md_provenance provenance, struct md_bytes kv, bool displace,
                           bool *ret_stored, struct md_err *err)
{
    struct md_cold_entry *here = peek(d, ref);
    *ret_stored = here != NULL && here->provenance.kind <= provenance.kind;
    if (*ret_stored) {
        md_coldstore_touch(d->index, here, cls);
        return MD_OK;
    }
    const int32_t count = md_range_len(ref->range);
    const size_t cost = md_disk_cost(d, count, kv.len);
    if (!displace && md_coldstore_victim(d->index, cost, cls) != NULL)
        return MD_OK;
    if (!md_disk_make_room(d, cost, cls)) {
        md_coldstore_count_refused(d->index);
        return MD_OK;
    }
    struct md_disk_block *b = new_block(d, count);
    if (b == NULL)
        return md_fail(err, MD_NO_MEMORY, "block of %d tokens", count);
    memcpy(b->tokens, ref->tokens, (size_t)count * sizeof *b->tokens);
    b->entry = (struct md_cold_entry){ .key = ref->key,
                                       .parent = ref->parent,
                                       .start = ref->range.start,
                                       .tokens = b->tokens,
                                       .token_count = count,
                                       .cls = cls,
                                       .provenance = provenance,
                                       .is_state = ref->is_state,
                                       .bytes = cost };
    enum md_status s = write_block(d, &b->entry, kv, err);
    here = peek(d, ref); /* it may have gone to make room */
    if (s == MD_OK && here != NULL) {
        b->entry.holds = here->holds;
        md_coldstore_remove(d->index, here, false);
        md_free(d->alloc, block_of(here));
        here = NULL;
    }
    if (s == MD_OK)
        s = md_coldstore_put(d->index, &b->entry, err);
    if (s != MD_OK) {
        md_free(d->alloc, b);
        if (here == NULL) /* a file may stand there all the same: see md_sections_commit */
            remove_block_file(d, &ref->key);
        return s;
    }
    *ret_stored = true;
    return MD_OK;
}

/* ---- reading blocks ---- */

static enum md_status read_kv(struct md_sections_reader *r, struct md_buf *ret_kv, struct md_err *err)
{
    uint32_t type;
    int64_t bytes;
    enum md_status s = md_sections_next(r, &type, &bytes, err);
    if (s == MD_OK && type != MD_DISK_KV)
        s = md_fail(err, MD_CORRUPT, "sections of another order");
    if (s == MD_OK)
        s = md_buf_reserve(ret_kv, (size_t)bytes, err);
    if (s == MD_OK)
        s = md_sections_read(r, ret_kv->data + ret_kv->len, (size_t)bytes, err);
    if (s == MD_OK)
        ret_kv->len += (size_t)bytes;
    return s;
}

static enum md_status read_block(struct md_disk *d, const struct md_cold_entry *e, struct md_buf *ret_kv,
                                 struct md_err *err)
{
    char name[MD_DISK_NAME_BYTES];
    struct md_sections_reader *r = NULL;
    struct md_disk_block *b = NULL;
    md_disk_block_name(&e->key, name);
    enum md_status s = md_disk_open_file(d, name, MD_DISK_BLOCK, &r, err);
    if (s == MD_OK)
        s = md_disk_read_head(d, r, &b, err);
    if (s == MD_OK && (b->entry.start != e->start || b->entry.token_count != e->token_count ||
                       memcmp(b->tokens, e->tokens, (size_t)e->token_count * sizeof *e->tokens) != 0))
        s = md_fail(err, MD_CORRUPT, "'%s' is of another block", name);
    if (s == MD_OK)
        s = read_kv(r, ret_kv, err);
    md_sections_close(r);
    md_free(d->alloc, b);
    return s;
}

enum md_status md_disk_get(struct md_disk *d, const struct md_cold_ref *ref, enum md_provenance_kind floor,
                           struct md_buf *ret_kv, struct md_provenance *ret_provenance, struct md_err *err)
{
    struct md_cold_entry *e = md_coldstore_find(d->index, ref->key, ref->parent, ref->range.start,
                                                ref->tokens, md_range_len(ref->range), floor);
    if (e == NULL)
        return md_fail(err, MD_NOT_FOUND, "block at %d is not on disk", ref->range.start);
    *ret_provenance = e->provenance;
    const size_t before = ret_kv->len;
    enum md_status s = read_block(d, e, ret_kv, err);
    if (s == MD_OK) {
        md_coldstore_touch(d->index, e, e->cls);
        return MD_OK;
    }
    ret_kv->len = before;
    if (s == MD_CORRUPT || s == MD_NOT_FOUND || s == MD_UNSUPPORTED || s == MD_INVALID) {
        md_log(MD_LOG_WARN, "kv folder: block at %d is given up: %s", ref->range.start, err->text);
        forget(d, e, true);
        return md_fail(err, MD_CORRUPT, "block at %d is damaged on disk", ref->range.start);
    }
    return s;
}

void md_disk_drop(struct md_disk *d, const struct md_cold_ref *ref)
{
    struct md_cold_entry *e = peek(d, ref);
    if (e != NULL)
        forget(d, e, true);
}

/* ---- conversations ---- */

static struct md_disk_record *find_record(struct md_disk *d, int64_t id)
{
    for (size_t i = 0; i < d->record_count; i++)
        if (d->records[i].id == id)
            return &d->records[i];
    return NULL;
}

static int64_t record_bytes(const struct md_disk *d)
{
    int64_t sum = 0;
    for (size_t i = 0; i < d->record_count; i++)
        sum += d->records[i].bytes;
    return sum;
}

void md_disk_reserve(struct md_disk *d)
{
    md_coldstore_reserve(d->index, (size_t)(MD_DISK_LOCK_BYTES + record_bytes(d) + d->left_bytes));
}

/* Note that a record takes so many bytes; 0: none.  Room for it was made, and in the list. */
void md_disk_note_record(struct md_disk *d, int64_t id, int64_t bytes)
{
    struct md_disk_record *r = find_record(d, id);
    if (r == NULL && bytes > 0) {
        d->records[d->record_count] = (struct md_disk_record){ id, bytes };
        d->record_count++;
    } else if (r != NULL && bytes > 0) {
        r->bytes = bytes;
    } else if (r != NULL) {
        *r = d->records[--d->record_count];
    }
    md_disk_reserve(d);
}

bool md_disk_leave(struct md_disk *d, int64_t bytes)
{
    if (!md_disk_make_room(d, (size_t)bytes, MD_CLASS_TASK_PINNED))
        return false;
    d->left_bytes += bytes;
    md_disk_reserve(d);
    return true;
}

enum md_status md_disk_reserve_record(struct md_disk *d, int64_t bytes, struct md_err *err)
{
    void *records = d->records;
    if (!md_grow(d->alloc, &records, &d->record_cap, d->record_count + 1, sizeof *d->records))
        return md_fail(err, MD_NO_MEMORY, "list of conversations on disk");
    d->records = records;
    /* the old one stands there until the new one is whole */
    if (!md_disk_make_room(d, (size_t)bytes, MD_CLASS_TASK_PINNED))
        return md_fail(err, MD_NO_MEMORY,
                       "the records of %zu conversations and %" PRId64
                       " bytes of blocks that are left alone fill the %" PRId64
                       " bytes of the KV folder: close some, or raise --kv-disk",
                       d->record_count, d->left_bytes, d->budget_bytes);
    return MD_OK;
}

enum md_status md_disk_put_record(struct md_disk *d, int64_t id, struct md_bytes record,
                                  struct md_bytes notes, struct md_err *err)
{
    static const uint32_t types[] = { RECORD, NOTES };
    const struct md_bytes parts[] = { record, notes };
    char name[MD_DISK_NAME_BYTES];
    const int64_t bytes = (int64_t)md_disk_cost(d, 0, record.len + notes.len);
    if (record.len > RECORD_MAX || notes.len > NOTES_MAX)
        return md_fail(err, MD_TOO_LARGE,
                       "conversation record of %zu bytes and notes of %zu, at most %d and %d are "
                       "written",
                       record.len, notes.len, RECORD_MAX, NOTES_MAX);
    enum md_status s = md_disk_reserve_record(d, bytes, err);
    if (s != MD_OK)
        return s;
    record_name(id, name);
    s = write_file(d, name, MD_DISK_RECORD, types, parts, notes.len > 0 ? 2 : 1, err);
    if (s == MD_OK)
        md_disk_note_record(d, id, bytes);
    else if (find_record(d, id) == NULL) /* a file may stand there all the same: see md_sections_commit */
        md_disk_remove_file(d, name);
    return s;
}

void md_disk_drop_record(struct md_disk *d, int64_t id)
{
    char name[MD_DISK_NAME_BYTES];
    record_name(id, name);
    md_disk_remove_file(d, name); /* also one that was not noted, after a write that failed */
    md_disk_note_record(d, id, 0);
}

size_t md_disk_record_count(const struct md_disk *d)
{
    return d->record_count;
}

/* The next section, which is `type`, into out; without one nothing.  Its bytes are within the file, and it is
 * verified. */
static enum md_status read_part(struct md_sections_reader *r, uint32_t type, bool may_miss, int64_t most,
                                struct md_buf *out, struct md_err *err)
{
    uint32_t found;
    int64_t bytes;
    enum md_status s = md_sections_next(r, &found, &bytes, err);
    if (s == MD_OK && may_miss && found == 0)
        return MD_OK;
    if (s == MD_OK && (found != type || bytes > most))
        s = md_fail(err, MD_CORRUPT, "another section, or a longer one, than a record has");
    if (s == MD_OK)
        s = md_buf_reserve(out, (size_t)bytes, err);
    if (s == MD_OK && bytes > 0)
        s = md_sections_read(r, out->data, (size_t)bytes, err);
    out->len = s == MD_OK ? (size_t)bytes : 0;
    return s;
}

static enum md_status read_record(struct md_disk *d, const char *name, struct md_buf *out,
                                  struct md_buf *notes, struct md_err *err)
{
    struct md_sections_reader *r = NULL;
    enum md_status s = md_disk_open_file(d, name, MD_DISK_RECORD, &r, err);
    if (s == MD_OK)
        s = read_part(r, RECORD, false, RECORD_MAX, out, err);
    if (s == MD_OK) {
        s = read_part(r, NOTES, true, NOTES_MAX, notes, err);
        if (s == MD_CORRUPT || s == MD_UNSUPPORTED) { /* the conversation is whole without it */
            md_log(MD_LOG_WARN, "kv folder: the notes of '%s' are lost: %s", name, err->text);
            s = MD_OK;
        }
    }
    md_sections_close(r);
    return s;
}

static int by_id(const void *a, const void *b)
{
    const int64_t x = ((const struct md_disk_record *)a)->id, y = ((const struct md_disk_record *)b)->id;
    return (x > y) - (x < y);
}

/* Records that are not ours to remove. */
struct left_records {
    int64_t count, bytes;
};

/* Read one and hand it on.  What cannot be used costs its conversation, not the start: damaged it goes, else it stays for
 * a program that can. */
static enum md_status give_record(struct md_disk *d, const struct md_disk_record *r,
                                  struct left_records *left,
                                  enum md_status (*take)(void *user, int64_t id, struct md_bytes record,
                                                         struct md_bytes notes, struct md_err *err),
                                  void *user, bool *ret_gone, struct md_err *err)
{
    char name[MD_DISK_NAME_BYTES];
    struct md_buf bytes MD_CLEANUP(md_buf_done), notes MD_CLEANUP(md_buf_done);
    const int64_t id = r->id;
    record_name(id, name);
    md_buf_init(&bytes, d->alloc, RECORD_MAX);
    md_buf_init(&notes, d->alloc, NOTES_MAX);
    *ret_gone = false;
    enum md_status s = read_record(d, name, &bytes, &notes, err);
    if (s == MD_IO) {
        md_log(MD_LOG_WARN, "kv folder: conversation %" PRId64 " stays closed, its file is left alone: %s",
               id, err->text);
        return MD_OK;
    }
    if (s == MD_OK)
        s = take(user, id, (struct md_bytes){ bytes.data, bytes.len },
                 (struct md_bytes){ notes.data, notes.len }, err);
    if (s == MD_UNSUPPORTED) {
        left->count++;
        left->bytes += r->bytes;
        return MD_OK;
    }
    if (s != MD_CORRUPT && s != MD_NOT_FOUND)
        return s;
    md_log(MD_LOG_WARN, "kv folder: conversation %" PRId64 " is given up: %s", id, err->text);
    md_disk_drop_record(d, id);
    *ret_gone = true;
    return MD_OK;
}

enum md_status md_disk_records(struct md_disk *d,
                               enum md_status (*take)(void *user, int64_t id, struct md_bytes record,
                                                      struct md_bytes notes, struct md_err *err),
                               void *user, struct md_err *err)
{
    enum md_status s = MD_OK;
    struct left_records left = { 0 };
    struct md_err why;
    bool gone = true; /* the last one takes the place of one that went: sorted once more */
    for (size_t i = 0; i < d->record_count && s == MD_OK; i += !gone) {
        if (gone)
            qsort(d->records, d->record_count, sizeof *d->records, by_id);
        s = give_record(d, &d->records[i], &left, take, user, &gone, err != NULL ? err : &why);
    }
    if (left.count > 0)
        md_disk_log_left("conversation(s)", left.count, left.bytes);
    return s;
}

void md_disk_log_left(const char *what, int64_t count, int64_t bytes)
{
    md_log(MD_LOG_WARN,
           "kv folder: left alone are %" PRId64
           " %s of another version of the format, which the modeld that wrote "
           "them can read; their %.1f MB count against --kv-disk",
           count, what, (double)bytes / 1e6);
}
