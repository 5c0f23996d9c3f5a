/* notes.c - a front's notes on a conversation (session.h: struct md_request): bytes that nobody else reads. */
#include "session/session_internal.h"

#include <string.h>

enum md_status md_session_reserve_notes(struct md_session *s, size_t bytes, struct md_err *err)
{
    if (bytes > MD_NOTES_BYTES_MAX)
        return md_fail(err, MD_INVALID, "notes of %zu bytes, at most %d are kept", bytes, MD_NOTES_BYTES_MAX);
    return bytes > s->notes.len ? md_buf_reserve(&s->notes, bytes - s->notes.len, err) : MD_OK;
}

void md_session_put_notes(struct md_session *s, struct md_bytes notes)
{
    if (notes.len > 0)
        memcpy(s->notes.data, notes.data, notes.len);
    s->notes.len = notes.len;
}

struct md_bytes md_session_notes(const struct md_session *s)
{
    return (struct md_bytes){ s->notes.data, s->notes.len };
}
