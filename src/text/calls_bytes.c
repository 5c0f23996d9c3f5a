/* calls_bytes.c - turns that made tool calls as bytes: see calls.h.  Each, little-endian:
 *
 *   4 bytes "TCL1"   u32 bytes of all that follows
 *   u32 tokens, lead, raw, content (bytes), calls
 *   i32 each token; lead; raw; content
 *   of each call: u32 bytes of id, name, arguments; these */
#include "text/calls.h"

#include "base/le.h"

#include <string.h>

static const char magic[] = "TCL1"; /* the last character is the version */
enum { MAGIC_BYTES = 4, HEAD_BYTES = 8, COUNTS = 5, CALL_COUNTS = 3 };

/* ---- writing ---- */

/* Into room that is there already. */
static void put(struct md_buf *b, size_t v)
{
    md_le_store(b->data + b->len, v, 4);
    b->len += 4;
}

static void put_bytes(struct md_buf *b, struct md_bytes from)
{
    if (from.len > 0)
        memcpy(b->data + b->len, from.data, from.len);
    b->len += from.len;
}

static size_t bytes_of_turn(const struct md_calls_turn *turn)
{
    size_t bytes = 4 * COUNTS + 4 * turn->token_count + turn->lead.len + turn->raw.len + turn->content.len;
    for (size_t i = 0; i < turn->call_count; i++)
        bytes +=
            4 * CALL_COUNTS + turn->calls[i].id.len + turn->calls[i].name.len + turn->calls[i].arguments.len;
    return bytes;
}

enum md_status md_calls_write_turn(const struct md_calls_turn *turn, struct md_buf *out, struct md_err *err)
{
    const size_t bytes = bytes_of_turn(turn);
    if (turn->call_count == 0 || turn->call_count > MD_CALLS_PER_TURN || bytes > MD_CALLS_TURN_BYTES)
        return MD_OK;
    enum md_status s = md_buf_reserve(out, HEAD_BYTES + bytes, err);
    if (s != MD_OK)
        return s;
    put_bytes(out, (struct md_bytes){ magic, MAGIC_BYTES });
    put(out, bytes);
    put(out, turn->token_count);
    put(out, turn->lead.len);
    put(out, turn->raw.len);
    put(out, turn->content.len);
    put(out, turn->call_count);
    for (size_t i = 0; i < turn->token_count; i++)
        put(out, (uint32_t)turn->tokens[i]);
    put_bytes(out, turn->lead);
    put_bytes(out, turn->raw);
    put_bytes(out, turn->content);
    for (size_t i = 0; i < turn->call_count; i++) {
        const struct md_chat_call *call = &turn->calls[i];
        put(out, call->id.len);
        put(out, call->name.len);
        put(out, call->arguments.len);
        put_bytes(out, call->id);
        put_bytes(out, call->name);
        put_bytes(out, call->arguments);
    }
    return MD_OK;
}

/* ---- reading ---- */

struct reader {
    const uint8_t *begin, *at, *end; /* end: of the piece at hand */
    const struct md_text *text;
    struct md_err *err;
    enum md_status status; /* the first failure */
};

static void fail(struct reader *r, const char *what)
{
    if (r->status == MD_OK)
        r->status = md_fail(r->err, MD_CORRUPT, "tool calls of a conversation: %s at byte %td", what,
                            r->at - r->begin);
}

static size_t get(struct reader *r)
{
    if (r->status == MD_OK && r->end - r->at < 4)
        fail(r, "they end");
    if (r->status != MD_OK)
        return 0;
    r->at += 4;
    return (size_t)md_le_load(r->at - 4, 4);
}

static struct md_bytes get_bytes(struct reader *r, size_t len)
{
    if (r->status == MD_OK && (size_t)(r->end - r->at) < len)
        fail(r, "a text longer than the bytes");
    if (r->status != MD_OK)
        return (struct md_bytes){ "", 0 };
    r->at += len;
    return (struct md_bytes){ r->at - len, len };
}

static void get_tokens(struct reader *r, struct md_arena *arena, struct md_calls_turn *turn)
{
    if (r->status == MD_OK && turn->token_count > (size_t)(r->end - r->at) / 4)
        fail(r, "more tokens than there are bytes");
    if (r->status != MD_OK)
        return;
    md_token *tokens = md_arena_get(arena, turn->token_count + 1, sizeof *tokens);
    if (tokens == NULL) {
        r->status = md_fail(r->err, MD_NO_MEMORY, "turn of %zu tokens", turn->token_count);
        return;
    }
    for (size_t i = 0; i < turn->token_count; i++) {
        tokens[i] = (md_token)(uint32_t)get(r);
        if (tokens[i] < 0 || tokens[i] >= r->text->info.vocab_count)
            fail(r, "a token that the vocabulary does not have");
    }
    turn->tokens = tokens;
}

/* A prompt gets these tokens where it has that text: they must be the same. */
static void check_spelling(struct reader *r, const struct md_arena *arena, const struct md_calls_turn *turn)
{
    struct md_buf text;
    md_buf_init(&text, arena->alloc, turn->raw.len + MD_CALLS_TURN_BYTES);
    for (size_t i = 0; i < turn->token_count && r->status == MD_OK && text.len <= turn->raw.len; i++)
        r->status = md_text_piece(r->text, turn->tokens[i], true, &text, r->err);
    if (!md_bytes_equal((struct md_bytes){ text.data, text.len }, turn->raw))
        fail(r, "tokens of another text");
    md_buf_done(&text);
}

static void get_calls(struct reader *r, struct md_chat_call *calls, size_t count)
{
    for (size_t i = 0; i < count && r->status == MD_OK; i++) {
        const size_t id = get(r), name = get(r), arguments = get(r);
        calls[i].id = get_bytes(r, id);
        calls[i].name = get_bytes(r, name);
        calls[i].arguments = get_bytes(r, arguments);
        if (id == 0)
            fail(r, "a call without an id");
    }
}

/* One piece; calls has room for MD_CALLS_PER_TURN. */
static struct md_calls_turn get_turn(struct reader *r, const uint8_t *end, struct md_arena *arena,
                                     struct md_chat_call *calls)
{
    struct md_calls_turn turn = { .calls = calls };
    r->end = end;
    const struct md_bytes head = get_bytes(r, MAGIC_BYTES);
    if (r->status == MD_OK && memcmp(head.data, magic, MAGIC_BYTES - 1) != 0)
        fail(r, "something else");
    else if (r->status == MD_OK && memcmp(head.data, magic, MAGIC_BYTES) != 0)
        r->status = md_fail(r->err, MD_UNSUPPORTED, "tool calls of a conversation: another version");
    const size_t bytes = get(r);
    if (r->status == MD_OK && bytes > (size_t)(end - r->at))
        fail(r, "a turn longer than the bytes");
    if (r->status != MD_OK)
        return turn;
    r->end = r->at + bytes;
    turn.token_count = get(r);
    const size_t lead = get(r), raw = get(r), content = get(r);
    turn.call_count = get(r);
    if (r->status == MD_OK && (turn.call_count == 0 || turn.call_count > MD_CALLS_PER_TURN))
        fail(r, "a number of calls that no turn has");
    get_tokens(r, arena, &turn);
    turn.lead = get_bytes(r, lead);
    turn.raw = get_bytes(r, raw);
    turn.content = get_bytes(r, content);
    get_calls(r, calls, turn.call_count);
    if (r->status == MD_OK && r->at != r->end)
        fail(r, "more bytes than the turn has");
    if (r->status == MD_OK)
        check_spelling(r, arena, &turn);
    return turn;
}

/* Once to see that all of it is sound, once to take it. */
static enum md_status read_all(struct md_calls *c, const struct md_text *t, struct md_bytes bytes, bool take,
                               struct md_err *err)
{
    struct md_chat_call calls[MD_CALLS_PER_TURN];
    struct reader r = { .begin = bytes.data, .at = bytes.data, .text = t, .err = err };
    const uint8_t *end = r.at + bytes.len;
    while (r.status == MD_OK && r.at < end) {
        struct md_arena arena;
        md_arena_init(&arena, NULL, 2 * bytes.len + 4096);
        const struct md_calls_turn turn = get_turn(&r, end, &arena, calls);
        if (r.status == MD_OK && take)
            r.status = md_calls_remember(c, &turn, err);
        md_arena_done(&arena);
    }
    return r.status;
}

enum md_status md_calls_read(struct md_calls *c, const struct md_text *t, struct md_bytes bytes,
                             struct md_err *err)
{
    if (bytes.len == 0)
        return MD_OK;
    enum md_status s = read_all(c, t, bytes, false, err);
    return s == MD_OK ? read_all(c, t, bytes, true, err) : s;
}
