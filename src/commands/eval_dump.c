/* eval_dump.c - see eval_dump.h. */
#include "commands/eval_dump.h"

#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include <yyjson.h>

enum { CLAUSES = 4 };
static const int32_t clause_rows[CLAUSES] = { INT32_MAX, 64, 32, 12 }; /* from the end; of fewer rows: all */

enum md_status md_eval_dump_open(const char *path, struct md_eval_dump *ret, struct md_err *err)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    *ret = (struct md_eval_dump){ .file = fd >= 0 ? fdopen(fd, "wb") : NULL };
    if (ret->file != NULL)
        return MD_OK;
    const enum md_status s = errno == EEXIST ? MD_INVALID : MD_IO;
    return md_fail(err, s, "--dump: file '%.300s' cannot be begun: %s", path, strerror(errno));
}

enum md_status md_eval_dump_close(struct md_eval_dump *d, struct md_err *err)
{
    enum md_status s = d->failed.status;
    if (s != MD_OK)
        *err = d->failed;
    if (d->file != NULL && fclose(d->file) != 0 && s == MD_OK)
        s = md_fail(err, MD_IO, "--dump: %s", strerror(errno));
    *d = (struct md_eval_dump){ 0 };
    return s;
}

enum md_status md_eval_dump_check(const struct md_eval_dump *d, struct md_err *err)
{
    if (d->failed.status != MD_OK)
        *err = d->failed;
    return d->failed.status;
}

void md_eval_dump_next(struct md_eval_dump *d, const struct md_eval_dumped *what)
{
    d->what = *what;
}

void md_eval_dump_configure(struct md_pool_config *config)
{
    static struct md_retrieve_params all;
    all = md_retrieve_defaults();
    all.heads.band_start = 0;
    all.heads.band_end = 1;
    all.heads.heads = MD_CALIBRATE_HEADS_MOST;
    config->retrieve = &all;
}

/* ---- a record ---- */

static yyjson_mut_val *pair(yyjson_mut_doc *doc, int32_t a, int32_t b)
{
    yyjson_mut_val *p = yyjson_mut_arr(doc);
    yyjson_mut_arr_add_int(doc, p, a);
    yyjson_mut_arr_add_int(doc, p, b);
    return p;
}

/* Whatever is no UTF-8 becomes a question mark, so that it can stand in JSON. */
static void make_valid(struct md_buf *b)
{
    for (size_t at = 0; at < b->len;) {
        const int n = md_utf8_step(b->data + at, b->len - at);
        if (n <= 0)
            b->data[at] = '?';
        at += n > 0 ? (size_t)n : 1;
    }
}

static enum md_status text_of(yyjson_mut_doc *doc, const struct md_eval_dumped *w, int32_t from, int32_t to,
                              yyjson_mut_val **ret, struct md_err *err)
{
    struct md_buf b MD_CLEANUP(md_buf_done);
    enum md_status s = MD_OK;
    md_buf_init(&b, NULL, 1 << 24);
    for (int32_t i = from; i < to && i < w->prompt_count && s == MD_OK; i++)
        s = md_text_piece(w->text, w->prompt[i], true, &b, err);
    make_valid(&b);
    *ret = yyjson_mut_strncpy(doc, b.len > 0 ? (const char *)b.data : "", b.len);
    return s;
}

static enum md_status add_texts(yyjson_mut_doc *doc, yyjson_mut_val *o, const struct md_eval_dumped *w,
                                const struct md_attention_input *in, int32_t from, struct md_err *err)
{
    yyjson_mut_val *v, *list = yyjson_mut_obj_add_arr(doc, o, "texts");
    enum md_status s = text_of(doc, w, from, w->prompt_count, &v, err);
    yyjson_mut_obj_add_val(doc, o, "question", v);
    for (size_t i = 0; i < in->block_count && s == MD_OK; i++) {
        s = text_of(doc, w, in->blocks[i].start, in->blocks[i].start + in->blocks[i].tokens, &v, err);
        yyjson_mut_arr_append(list, v);
    }
    return s;
}

static void add_blocks(yyjson_mut_doc *doc, yyjson_mut_val *o, const struct md_attention_input *in,
                       const size_t *index, struct md_block_view *map, size_t map_count)
{
    yyjson_mut_val *starts = yyjson_mut_obj_add_arr(doc, o, "starts"),
                   *tokens = yyjson_mut_obj_add_arr(doc, o, "tokens"),
                   *candidates = yyjson_mut_obj_add_arr(doc, o, "candidates"),
                   *hot = yyjson_mut_obj_add_arr(doc, o, "hot");
    for (size_t i = 0; i < in->block_count; i++) {
        yyjson_mut_arr_add_int(doc, starts, in->blocks[i].start);
        yyjson_mut_arr_add_int(doc, tokens, in->blocks[i].tokens);
        yyjson_mut_arr_add_int(doc, candidates, in->blocks[i].candidate);
        yyjson_mut_arr_add_int(doc, hot, index[i] < map_count && map[index[i]].state == MD_STATE_HOT);
    }
}

static yyjson_mut_val *describe(yyjson_mut_doc *doc, const struct md_eval_dump *d,
                                const struct md_attention_input *in, const struct md_calibrate_set *heads,
                                int32_t from, int32_t pass)
{
    yyjson_mut_val *o = yyjson_mut_obj(doc);
    yyjson_mut_obj_add_int(doc, o, "trial", d->unit.trial);
    yyjson_mut_obj_add_int(doc, o, "length", d->settings->lengths[d->unit.length]);
    yyjson_mut_obj_add_int(doc, o, "depth", d->settings->depths[d->unit.depth]);
    yyjson_mut_obj_add_int(doc, o, "order", d->what.item->order);
    yyjson_mut_obj_add_int(doc, o, "turn", d->what.item->turn);
    yyjson_mut_obj_add_int(doc, o, "needle", d->what.item->needle);
    yyjson_mut_obj_add_int(doc, o, "pass", pass);
    yyjson_mut_obj_add_int(doc, o, "from", from);
    yyjson_mut_obj_add_uint(doc, o, "rows", in->row_count);
    yyjson_mut_val *spans = yyjson_mut_obj_add_arr(doc, o, "spans"),
                   *list = yyjson_mut_obj_add_arr(doc, o, "heads"),
                   *clauses = yyjson_mut_obj_add_arr(doc, o, "clauses");
    for (int i = 0; i < d->what.item->part_count; i++)
        yyjson_mut_arr_append(spans, pair(doc, d->what.item->spans[i].start, d->what.item->spans[i].end));
    for (size_t i = 0; i < heads->count; i++)
        yyjson_mut_arr_append(list, pair(doc, heads->heads[i].layer, heads->heads[i].head));
    for (size_t i = 0; i < in->clause_count; i++)
        yyjson_mut_arr_add_uint(doc, clauses, in->clauses[i].end - in->clauses[i].first);
    return o;
}

static enum md_status write_record(struct md_eval_dump *d, const struct md_attention_input *in,
                                   const struct md_calibrate_set *heads, const size_t *index, int32_t from,
                                   int32_t pass, const float *share, const float *mass, size_t tokens,
                                   struct md_arena *arena, struct md_err *err)
{
    const size_t shares = heads->count * in->clause_count, masses = shares * tokens;
    const size_t blocks = md_session_map(d->what.session, NULL, 0);
    struct md_block_view *map = md_arena_get(arena, blocks + 1, sizeof *map);
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    enum md_status s = map != NULL && doc != NULL ? MD_OK : md_fail(err, MD_NO_MEMORY, "--dump: a record");
    if (s == MD_OK) {
        yyjson_mut_val *o = describe(doc, d, in, heads, from, pass);
        add_blocks(doc, o, in, index, map, md_session_map(d->what.session, map, blocks));
        s = add_texts(doc, o, &d->what, in, from, err);
        yyjson_mut_obj_add_uint(doc, o, "bytes", (shares + masses) * sizeof(float));
        yyjson_mut_doc_set_root(doc, o);
        if (s == MD_OK &&
            (!yyjson_mut_write_fp(d->file, doc, YYJSON_WRITE_NOFLAG, NULL, NULL) ||
             fputc('\n', d->file) == EOF || fwrite(share, sizeof *share, shares, d->file) != shares ||
             fwrite(mass, sizeof *mass, masses, d->file) != masses))
            s = md_fail(err, MD_IO, "--dump: %s", strerror(errno));
    }
    yyjson_mut_doc_free(doc);
    return s;
}

static void on_scoring(void *user, const struct md_attention_input *in, const struct md_calibrate_set *heads,
                       const size_t *index, int32_t from, int32_t pass)
{
    struct md_eval_dump *d = user;
    struct md_attention_clause clauses[CLAUSES];
    struct md_attention_input mine = *in;
    struct md_arena arena, work;
    if (d->failed.status != MD_OK)
        return;
    for (int i = 0; i < CLAUSES; i++) {
        const size_t rows = (size_t)clause_rows[i];
        clauses[i] =
            (struct md_attention_clause){ rows < in->row_count ? in->row_count - rows : 0, in->row_count };
    }
    mine.clauses = clauses;
    mine.clause_count = CLAUSES;
    md_arena_init(&arena, NULL, (size_t)2 << 30);
    md_arena_init(&work, NULL, MD_ATTENTION_WORK_BYTES);
    const size_t tokens = md_attention_tokens(in->blocks, in->block_count), shares = heads->count * CLAUSES;
    const struct md_attention_scores scores = { .mass = md_arena_get(&arena, shares * tokens, sizeof(float)),
                                                .share = md_arena_get(&arena, shares, sizeof(float)) };
    enum md_status s = scores.mass != NULL && scores.share != NULL
                           ? md_attention_score(&mine, &work, &scores, &d->failed)
                           : md_fail(&d->failed, MD_NO_MEMORY, "--dump: masses of %zu tokens", tokens);
    if (s == MD_OK)
        (void)!write_record(d, &mine, heads, index, from, pass, scores.share, scores.mass, tokens, &arena,
                            &d->failed);
    md_arena_done(&work);
    md_arena_done(&arena);
}

struct md_retrieve_observer md_eval_dump_observer(struct md_eval_dump *d)
{
    return (struct md_retrieve_observer){ .seen = on_scoring, .user = d };
}
