/* segment.c - see segment.h. */
#include "policy/segment.h"

#include <assert.h>
#include <string.h>
#include <strings.h>

#define NONE MD_CLASS_COUNT /* no class of its own: as stable as the segment is */

static const struct {
    const char *name;
    int rank;
    enum md_cache_class cls;
} kinds[MD_SEGMENT_KIND_COUNT] = {
    [MD_SEGMENT_SYSTEM] = { "system", 1, MD_CLASS_TASK_PINNED },
    [MD_SEGMENT_TOOLS] = { "tools", 2, MD_CLASS_TASK_PINNED },
    [MD_SEGMENT_REPO_RULES] = { "repo_rules", 3, MD_CLASS_TASK_PINNED },
    [MD_SEGMENT_REPO_MAP] = { "repo_map", 4, MD_CLASS_REPO_MAP },
    [MD_SEGMENT_PINNED] = { "pinned", 5, MD_CLASS_REPO_MAP },
    [MD_SEGMENT_DIFF] = { "diff", 6, MD_CLASS_VOLATILE },
    [MD_SEGMENT_TERMINAL] = { "terminal", 7, MD_CLASS_VOLATILE },
    [MD_SEGMENT_USER] = { "user", 8, MD_CLASS_VOLATILE },
    [MD_SEGMENT_ASSISTANT] = { "assistant", 8, MD_CLASS_VOLATILE },
    [MD_SEGMENT_TOOL] = { "tool", 8, MD_CLASS_VOLATILE },
    [MD_SEGMENT_ASSISTANT_PROMPT] = { "assistant_prompt", 8, MD_CLASS_VOLATILE },
    [MD_SEGMENT_BOS] = { "bos", 0, NONE },
    [MD_SEGMENT_OTHER] = { "other", 8, NONE },
};

static const char *const classes[MD_CLASS_COUNT] = { "task_pinned", "repo_map", "volatile" };
static const char *const hints[] = { "none", "on_edit", "on_turn" };
enum { HINT_COUNT = sizeof hints / sizeof hints[0] };

const char *md_segment_kind_name(enum md_segment_kind kind)
{
    assert(kind < MD_SEGMENT_KIND_COUNT);
    return kinds[kind].name;
}

enum md_segment_kind md_segment_kind_parse(struct md_bytes name)
{
    int i = 0;
    while (i < MD_SEGMENT_OTHER && !md_bytes_are(name, kinds[i].name))
        i++;
    return (enum md_segment_kind)i;
}

int md_segment_rank(enum md_segment_kind kind)
{
    assert(kind < MD_SEGMENT_KIND_COUNT);
    return kinds[kind].rank;
}

enum md_cache_class md_segment_class(enum md_segment_kind kind, bool stable, enum md_cache_class given)
{
    assert(kind < MD_SEGMENT_KIND_COUNT);
    if (given != NONE)
        return given;
    if (kinds[kind].cls != NONE)
        return kinds[kind].cls;
    return stable ? MD_CLASS_TASK_PINNED : MD_CLASS_VOLATILE;
}

const char *md_cache_class_name(enum md_cache_class cls)
{
    assert(cls < MD_CLASS_COUNT);
    return classes[cls];
}

const char *md_invalidation_name(enum md_invalidation i)
{
    assert((int)i < HINT_COUNT);
    return hints[i];
}

static bool blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Index in `names`, or -1. */
static int find_name(struct md_bytes name, const char *const *names, int count)
{
    const char *p = name.data;
    size_t from = 0, to = name.len;
    while (from < to && blank(p[from]))
        from++;
    while (to > from && blank(p[to - 1]))
        to--;
    for (int i = 0; i < count; i++)
        if (to - from == strlen(names[i]) && strncasecmp(p + from, names[i], to - from) == 0)
            return i;
    return -1;
}

static int shown(struct md_bytes name)
{
    return name.len < 60 ? (int)name.len : 60;
}

enum md_status md_cache_class_parse(struct md_bytes name, const char *field, enum md_cache_class *ret_class,
                                    struct md_err *err)
{
    int i = find_name(name, classes, MD_CLASS_COUNT);
    if (i < 0)
        return md_fail(err, MD_INVALID, "%s must be task_pinned, repo_map or volatile, got '%.*s'", field,
                       shown(name), name.len > 0 ? (const char *)name.data : "");
    *ret_class = (enum md_cache_class)i;
    return MD_OK;
}

enum md_status md_invalidation_parse(struct md_bytes name, const char *field, enum md_invalidation *ret,
                                     struct md_err *err)
{
    int i = find_name(name, hints, HINT_COUNT);
    if (i < 0)
        return md_fail(err, MD_INVALID, "%s must be none, on_edit or on_turn, got '%.*s'", field, shown(name),
                       name.len > 0 ? (const char *)name.data : "");
    *ret = (enum md_invalidation)i;
    return MD_OK;
}

struct md_segment_label md_segment_label_of(struct md_bytes name, bool stable)
{
    const enum md_segment_kind kind = md_segment_kind_parse(name);
    return (struct md_segment_label){ .name = name,
                                      .kind = kind,
                                      .cls = md_segment_class(kind, stable, NONE),
                                      .stable = stable,
                                      .invalidation = MD_INVALIDATION_NONE };
}

enum md_cache_class md_segment_block_class(struct md_range block, const struct md_segment_span *spans,
                                           size_t count)
{
    size_t low = 0, high = count; /* the first span that ends behind the start of the block */
    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        if (spans[mid].range.end <= block.start)
            low = mid + 1;
        else
            high = mid;
    }
    enum md_cache_class least = MD_CLASS_VOLATILE;
    for (size_t i = low; i < count && spans[i].range.start < block.end; i++)
        if (md_range_overlaps(spans[i].range, block) && md_range_len(spans[i].range) > 0 &&
            spans[i].cls < least)
            least = spans[i].cls;
    return least;
}
