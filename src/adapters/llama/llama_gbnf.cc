/* llama_gbnf.cc - see llama_gbnf.h.  Reads no more of a grammar than what its rules begin with. */
#include "adapters/llama/llama_gbnf.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <stdexcept>
#include <unordered_map>
#include <vector>

namespace
{

constexpr int kDepthMax = 10000;
constexpr double kBeginningsMax = 1e6; /* of one rule; those of tools and schemas have some hundreds */

struct trouble : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct element {
    int rule; /* -1: characters or a token */
    double times;
};
struct rule {
    std::vector<std::vector<element>> alternates;
    bool may_be_empty = false; /* as the library understands it: one alternate is empty */
    bool entered = false;
    double beginnings = 0;
};

/* Where it stands in the text, and what it has found. */
struct reader {
    const std::string &s;
    size_t at = 0;
    std::vector<rule> rules = {};
    std::unordered_map<std::string, int> names = {};

    bool is(const char *any) const
    {
        return at < s.size() && s[at] != '\0' && strchr(any, s[at]) != nullptr;
    }
    void blanks()
    {
        while (is(" \t\r\n#"))
            at = s[at] == '#' ? std::min(s.find('\n', at), s.size()) : at + 1;
    }
    int fresh()
    {
        rules.emplace_back();
        return static_cast<int>(rules.size()) - 1;
    }
    int named(const std::string &name)
    {
        const auto found = names.find(name);
        return found != names.end() ? found->second : names[name] = fresh();
    }
};

std::string read_word(reader &r)
{
    const size_t from = r.at;
    while (r.at < r.s.size() && (isalnum(static_cast<unsigned char>(r.s[r.at])) || r.s[r.at] == '-'))
        r.at++;
    return r.s.substr(from, r.at - from);
}

int read_number(reader &r) /* -1: there is none */
{
    int n = -1;
    while (r.is("0123456789"))
        n = std::min((n < 0 ? 0 : n) * 10 + (r.s[r.at++] - '0'), 99999999);
    return n;
}

/* Behind `end`, with what a backslash hides passed over; whether anything stood before it. */
bool pass_quoted(reader &r, char end)
{
    const size_t from = ++r.at;
    while (r.at < r.s.size() && r.s[r.at] != end)
        r.at += r.s[r.at] == '\\' ? 2 : 1;
    const bool any = r.at > from;
    r.at = std::min(r.at + 1, r.s.size());
    return any;
}

void read_alternates(reader &r, int id);

/* What stands here is taken; false: nothing of the kind. */
bool read_symbol(reader &r, std::vector<element> &to)
{
    if (r.is("\"")) {
        if (pass_quoted(r, '"'))
            to.push_back({ -1, 1 });
    } else if (r.is("[")) {
        pass_quoted(r, ']');
        to.push_back({ -1, 1 });
    } else if (r.is("!<.")) {
        r.at = r.s[r.at] == '.' ? r.at + 1 : std::min(r.s.find('>', r.at), r.s.size() - 1) + 1;
        to.push_back({ -1, 1 });
    } else if (r.is("(")) {
        const int group = r.fresh();
        r.at++;
        read_alternates(r, group);
        r.at += r.is(")") ? 1 : 0;
        to.push_back({ group, 1 });
    } else {
        const size_t from = r.at;
        const std::string name = read_word(r);
        r.blanks();
        if (name.empty() || r.s.compare(r.at, 3, "::=") == 0) { /* the next rule */
            r.at = from;
            return false;
        }
        to.push_back({ r.named(name), 1 });
    }
    return true;
}

/* {low,high}, and the others as if they were written so; high -1: without end. */
void read_bounds(reader &r, int *ret_low, int *ret_high)
{
    const size_t from = r.at;
    *ret_low = r.is("+") ? 1 : 0;
    *ret_high = r.is("?") ? 1 : -1;
    if (r.is("{")) {
        r.at++;
        r.blanks();
        *ret_low = *ret_high = std::max(read_number(r), 0);
        r.blanks();
        if (r.is(",")) {
            r.at++;
            r.blanks();
            *ret_high = read_number(r);
            r.blanks();
        }
    }
    r.at = std::min(r.at + 1, r.s.size());
    if (*ret_high >= 0 && *ret_high < *ret_low)
        throw trouble("a repetition {" + std::to_string(*ret_low) + "," + std::to_string(*ret_high) +
                      "} has its bounds the wrong way round (byte " + std::to_string(from) + ")");
}

/* How often the last one stands there. */
void read_repetition(reader &r, std::vector<element> &to)
{
    int low, high;
    read_bounds(r, &low, &high);
    if (to.empty())
        return;
    const element last = to.back();
    to.pop_back();
    if (low > 0)
        to.push_back({ last.rule, last.times * low });
    if (high == low)
        return;
    const int more = r.fresh();
    r.rules[more].alternates = { { { last.rule, high < 0 ? 1.0 : high - low } }, {} };
    r.rules[more].may_be_empty = true;
    to.push_back({ more, 1 });
}

void read_alternates(reader &r, int id)
{
    do {
        std::vector<element> sequence;
        r.at += r.is("|") ? 1 : 0;
        for (r.blanks(); r.at < r.s.size() && !r.is("|)"); r.blanks())
            if (r.is("*+?{"))
                read_repetition(r, sequence);
            else if (!read_symbol(r, sequence))
                break;
        r.rules[id].may_be_empty |= sequence.empty();
        r.rules[id].alternates.push_back(std::move(sequence));
    } while (r.is("|"));
}

void read_rules(reader &r)
{
    for (r.blanks(); r.at < r.s.size(); r.blanks()) {
        const std::string name = read_word(r);
        r.blanks();
        if (name.empty() || r.s.compare(r.at, 3, "::=") != 0)
            return; /* no grammar: the library will say so */
        r.at += 3;
        read_alternates(r, r.named(name));
    }
}

/* As often as the library would enter the rules of this one's beginnings, each time anew. */
double beginnings(std::vector<rule> &rules, int id, int depth)
{
    if (depth > kDepthMax) /* the library goes down as far, without asking */
        throw trouble("its rules begin with each other more than " + std::to_string(kDepthMax) + " deep");
    rule &r = rules[id];
    if (r.entered)
        return r.beginnings;
    r.entered = true;
    double sum = 1;
    for (const auto &sequence : r.alternates)
        for (const element &e : sequence) {
            if (e.rule >= 0)
                sum += e.times * beginnings(rules, e.rule, depth + 1);
            if (e.rule < 0 || !rules[e.rule].may_be_empty)
                break;
        }
    return r.beginnings = sum;
}

} // namespace

std::string md_gbnf_trouble(const std::string &text)
{
    try {
        reader r = { text };
        read_rules(r);
        for (size_t id = 0; id < r.rules.size(); id++)
            if (beginnings(r.rules, static_cast<int>(id), 0) > kBeginningsMax)
                return "its rules begin with each other in more than a million ways";
    } catch (const trouble &t) {
        return t.what();
    }
    return "";
}
