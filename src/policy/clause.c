/* clause.c - see clause.h. */
#include "policy/clause.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static char first_of(struct md_bytes b)
{
    return *(const char *)b.data;
}

static char last_of(struct md_bytes b)
{
    return ((const char *)b.data)[b.len - 1];
}

static bool ends_with(struct md_bytes b, const char *text)
{
    const size_t len = strlen(text);
    return b.len >= len && memcmp((const char *)b.data + b.len - len, text, len) == 0;
}

/* Less what may close a sentence behind its last mark: quotes, brackets, blanks. */
static struct md_bytes without_closing(struct md_bytes b)
{
    while (b.len > 0 && memchr("\"')]}*_` \t\r", last_of(b), 11) != NULL)
        b.len--;
    return b;
}

static bool ends_sentence(struct md_bytes b)
{
    static const char *const marks[] = {
        ".", "?", "!", ";", "\xe3\x80\x82", "\xef\xbc\x9f", "\xef\xbc\x81", "\xef\xbc\x9b"
    };
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (ends_with(b, marks[i]))
            return true;
    return false;
}

/* Does a clause end behind token i? */
static bool ends_at(const struct md_bytes *pieces, size_t count, size_t i)
{
    const struct md_bytes here = pieces[i], marked = without_closing(here);
    if (here.len == 0)
        return false;
    if (memchr(here.data, '\n', here.len) != NULL)
        return true;
    const bool closes = marked.len == 0 && !is_blank(first_of(here)) && i > 0;
    if (!ends_sentence(closes ? without_closing(pieces[i - 1]) : marked))
        return false;
    return i + 1 == count || pieces[i + 1].len == 0 || is_blank(first_of(pieces[i + 1])) ||
           is_blank(last_of(here));
}

/* One more; where all are taken, the first two become one. */
static size_t add(struct md_attention_clause *ret, size_t n, size_t most, size_t first, size_t end)
{
    if (n == most && most > 1) {
        ret[0].end = ret[1].end;
        memmove(ret + 1, ret + 2, (--n - 1) * sizeof *ret);
    }
    if (n == most) {
        ret[0].end = end;
        return n;
    }
    ret[n] = (struct md_attention_clause){ first, end };
    return n + 1;
}

size_t md_clause_split(const struct md_bytes *pieces, size_t count, size_t most,
                       struct md_attention_clause *ret)
{
    size_t n = 0, first = 0;
    assert(count > 0 && most >= 1 && most <= MD_CLAUSE_MOST);
    for (size_t i = 0; i < count; i++)
        if (i + 1 - first >= MD_CLAUSE_LEAST && ends_at(pieces, count, i)) {
            n = add(ret, n, most, first, i + 1);
            first = i + 1;
        }
    if (n == 0 || count - first >= MD_CLAUSE_LEAST)
        n = add(ret, n, most, first, count);
    ret[n - 1].end = count;
    return n;
}
