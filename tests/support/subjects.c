#include "support/subjects.h"

#include "support/exact_model.h"

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

void md_subject_random_tokens(md_token *tokens, int32_t count)
{
    uint32_t random = 20;
    for (int32_t i = 0; i < count; i++)
        tokens[i] = MD_EXACT_TOKEN_OF_BYTE_0 + (md_token)(next_random(&random) >> 16);
}

enum md_status md_subject_prose(struct md_buf *ret_text, size_t bytes, struct md_err *err)
{
    static const char *const when[] = { "In the morning",        "Towards noon",
                                        "After the rain",        "Before anyone was awake",
                                        "When the bell rang",    "Late in the evening",
                                        "While the others slept" };
    static const char *const who[] = {
        "the cook",      "our captain", "the youngest sailor", "a passenger from Lisbon",
        "the carpenter", "the doctor",  "an old pilot",        "the boy who kept the lamps"
    };
    static const char *const did[] = { "counted the barrels of flour",
                                       "wrote a letter to his sister",
                                       "mended the small sail",
                                       "looked for the lost compass",
                                       "cut bread for the whole watch",
                                       "told a story about the islands",
                                       "measured the depth of the water",
                                       "drew a map of the harbour",
                                       "repaired the pump with a piece of leather" };
    static const char *const and[] = {
        "and found that two were missing", "although the wind had turned north",
        "because nobody else wanted to",   "and said nothing about it",
        "until the light was gone",        "which took longer than expected",
        "and everyone was glad of it"
    };
    uint32_t random = 7;
    const size_t end = ret_text->len + bytes;
    enum md_status s = MD_OK;
    for (int day = 1; ret_text->len < end && s == MD_OK; day++) {
        uint32_t w = next_random(&random), x = next_random(&random);
        s = md_buf_printf(ret_text, err, "%s of day %d %s %s %s. We had sailed %u miles.%s", when[w % 7], day,
                          who[w / 7 % 8], did[x % 9], and[x / 9 % 7], 20 + w % 90,
                          day % 6 == 0 ? "\n\n" : " ");
    }
    return s;
}

enum md_status md_subject_prose_tokens(const struct md_text *text, size_t bytes, size_t least,
                                       struct md_tokens *ret_tokens, struct md_err *err)
{
    struct md_buf prose;
    md_buf_init(&prose, NULL, 1 << 20);
    enum md_status s = md_subject_prose(&prose, bytes, err);
    if (s == MD_OK)
        s = md_text_tokenize(text, (struct md_bytes){ prose.data, prose.len }, true, false, ret_tokens, err);
    if (s == MD_OK && ret_tokens->count < least)
        s = md_fail(err, MD_INVALID, "the prose has only %zu tokens", ret_tokens->count);
    md_buf_done(&prose);
    return s;
}
