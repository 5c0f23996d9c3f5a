/* needles.c - see needles.h. */
#include "policy/needles.h"

#include <assert.h>

#define COUNT(list) ((uint32_t)(sizeof(list) / sizeof(list)[0]))

/* clang-format off */
static const struct md_needle needles[MD_NEEDLES_KINDS][MD_NEEDLES] = {
    [MD_NEEDLES_PROSE] = {
        { "The ferry to Ostrand leaves from pier 47.", "The ferry to Ostholm leaves from pier 83.",
          "From which pier does the ferry to Ostrand leave?" },
        { "Captain Veldt keeps the log of the tower in a copper chest.", "Captain Velling keeps the log of the tower in a walnut desk.",
          "Where does Captain Veldt keep the log of the tower?" },
        { "The winter market in Tarnow opens at 6:40.", "The summer market in Tarnow opens at 9:15.",
          "When does the winter market in Tarnow open?" },
        { "Old Merrit sold the grey mare for 312 crowns.", "Old Merrit sold the brown foal for 145 crowns.",
          "For how many crowns did old Merrit sell the grey mare?" },
        { "The password at the northern gate is thistle.", "The password at the southern gate is juniper.",
          "What is the password at the northern gate?" },
        { "Doctor Aune gave the miller eleven drops of foxglove.", "Doctor Aune gave the baker nine drops of valerian.",
          "What did Doctor Aune give the miller?" },
    },
    [MD_NEEDLES_CODE] = {
        { "#define RETRY_LIMIT_UPLOAD 37", "#define RETRY_LIMIT_DOWNLOAD 52", "What is the value of RETRY_LIMIT_UPLOAD?" },
        { "static const int frame_queue_depth = 1184;", "static const int frame_queue_width = 2296;",
          "Which number is frame_queue_depth set to?" },
        { "static bool is_header(const struct packet *p) { return p->magic == 0x5eed; }",
          "static bool is_footer(const struct packet *p) { return p->magic == 0xfade; }",
          "Which magic number does the function is_header compare with?" },
        { "const char *cache_folder = \"/var/lib/otter\";", "const char *cache_backup = \"/mnt/disk/heron\";",
          "Which path does cache_folder hold?" },
        { "register_handler(EVENT_RESIZE, stretch_canvas);", "register_handler(EVENT_REPAINT, flush_canvas);",
          "Which function is registered for EVENT_RESIZE?" },
        { "static double sensor_gain_left = 0.731;", "static double sensor_gain_right = 0.264;",
          "What is the gain of the left sensor?" },
    },
    [MD_NEEDLES_CHAT] = {
        { "mira 09:14: my locker is number 508 now", "mirko 09:31: my locker is number 266 now",
          "What is the number of mira's locker?" },
        { "tomas 10:02: the build server stands in rack C9", "tomas 10:05: the mail server stands in rack F3",
          "In which rack does the build server stand?" },
        { "yuki 11:20: on friday we eat at the Blue Anchor", "yuki 11:26: on monday we eat at the Stone Mill",
          "Where do they eat on friday?" },
        { "pavel 12:48: I set the timeout of staging to 95 seconds", "pavel 12:51: I set the timeout of production to 240 seconds",
          "To how many seconds did pavel set the timeout of staging?" },
        { "ines 14:07: the invoice for the drills is 7714", "ines 14:09: the invoice for the ladders is 7682",
          "Which invoice is the one for the drills?" },
        { "omar 15:33: my train comes in on track 12", "omid 15:36: my train comes in on track 4",
          "On which track does omar's train come in?" },
    },
};
/* clang-format on */

const struct md_needle *md_needle_at(enum md_needles_kind kind, int i)
{
    assert((unsigned)kind < MD_NEEDLES_KINDS && i >= 0 && i < MD_NEEDLES);
    return &needles[kind][i];
}

const char *md_needles_null(void)
{
    return "N/A";
}

int md_needles_line_in(int slot)
{
    static const int lines[2 * MD_NEEDLES] = { 0, 5, 10, 3, 8, 1, 6, 11, 4, 9, 2, 7 };
    assert(slot >= 0 && slot < 2 * MD_NEEDLES);
    return lines[slot];
}

/* ---- filler ---- */

static const char *const nouns[] = { "window", "garden", "basket", "river",  "letter",  "kettle",  "bridge",
                                     "ladder", "meadow", "candle", "wagon",  "orchard", "blanket", "stove",
                                     "cellar", "fence",  "hammer", "parcel", "valley",  "curtain" };
static const char *const people[] = { "gardener", "teacher",   "neighbour", "carpenter", "visitor",
                                      "shepherd", "traveller", "painter",   "widow",     "student" };
static const char *const adjectives[] = { "narrow", "quiet", "heavy", "dusty",  "yellow",  "broken",
                                          "gentle", "empty", "early", "wooden", "distant", "clean" };
static const char *const verbs[] = { "carried", "watched", "repaired", "painted", "forgot",
                                     "noticed", "covered", "measured", "admired", "followed" };
static const char *const prose[] = {
    "In the morning the %a %p %v a %n beside the %n. ",
    "Nobody knew why the %p had %v the %a %n. ",
    "It rained, and the %n stood under the %a %n until evening. ",
    "Some said that the %p %v every %n in the house. ",
    "Later the %p sat down by the %n and %v the %a %n once more. ",
    "There was a %n on the table, and behind it a %a %n. ",
    "The %p told the %p about a %a %n that someone had %v. ",
};
static const char *const code[] = {
    "    if (%n->%n == NULL)\n        return -1;\n",
    "    for (size_t i = 0; i < %n->count; i++)\n        sum += %n->items[i].weight;\n",
    "    %n->%n = compute_%n(%n, flags);\n",
    "    log_debug(\"%a %n: %%d\", %n->state);\n",
    "    while (next_%n(&%n))\n        total += %n.size;\n",
};
static const char *const talkers[] = { "lena", "karl", "petra", "ravi", "ada", "jon", "nils" };
static const char *const chat[] = {
    "did anyone look at the %a %n yet?",
    "I think the %p %v it yesterday",
    "ok, then we leave the %n as it is",
    "the %n page looks %a on my screen",
    "can someone review the %n change, it is %a",
    "no idea, ask the %p about the %n",
    "sounds good, I will write about the %n tonight",
    "we should talk about that %a %n next week",
};

/* splitmix64: Steele, Lea, Flood, Fast splittable pseudorandom number generators, 2014. */
static uint32_t below(uint64_t *state, uint32_t n)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return (uint32_t)((z ^ (z >> 31)) >> 33) % n;
}

static const char *word_of(uint64_t *state, char letter)
{
    switch (letter) {
    case 'n': return nouns[below(state, COUNT(nouns))];
    case 'p': return people[below(state, COUNT(people))];
    case 'a': return adjectives[below(state, COUNT(adjectives))];
    case 'v': return verbs[below(state, COUNT(verbs))];
    default: assert(letter == '%'); return "%";
    }
}

static enum md_status expand(const char *pattern, uint64_t *state, struct md_buf *out, struct md_err *err)
{
    enum md_status s = MD_OK;
    for (const char *p = pattern; *p != '\0' && s == MD_OK; p++) {
        const char *word = *p == '%' ? word_of(state, *++p) : NULL;
        s = word != NULL ? md_buf_append(out, word, strlen(word), err) : md_buf_append(out, p, 1, err);
    }
    return s;
}

enum md_status md_needles_filler(enum md_needles_kind kind, uint32_t n, struct md_buf *out,
                                 struct md_err *err)
{
    uint64_t state = (uint64_t)kind << 32 | n;
    enum md_status s = MD_OK;
    assert((unsigned)kind < MD_NEEDLES_KINDS);
    if (kind == MD_NEEDLES_CODE)
        s = expand("static int %v_%n(struct %n *%n, int flags)\n{\n    int sum = 0, total = 0;\n", &state,
                   out, err);
    for (int i = 0; i < 5 && s == MD_OK; i++) {
        switch (kind) {
        case MD_NEEDLES_PROSE: s = expand(prose[below(&state, COUNT(prose))], &state, out, err); break;
        case MD_NEEDLES_CODE: s = expand(code[below(&state, COUNT(code))], &state, out, err); break;
        default:
            s = md_buf_printf(out, err, "%s %02u:%02u: ", talkers[below(&state, COUNT(talkers))],
                              8 + n / 5 % 10, (n % 5 * 12 + (uint32_t)i * 2) % 60);
            if (s == MD_OK)
                s = expand(chat[below(&state, COUNT(chat))], &state, out, err);
            if (s == MD_OK)
                s = md_buf_append(out, "\n", 1, err);
        }
    }
    if (s == MD_OK && kind == MD_NEEDLES_CODE)
        s = expand("    return sum + total;\n}\n", &state, out, err);
    return s == MD_OK && kind != MD_NEEDLES_CHAT ? md_buf_append(out, "\n", 1, err) : s;
}
