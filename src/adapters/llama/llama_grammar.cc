/* llama_grammar.cc - the grammar of one answer over the library's sampler, which throws where it gives up.
 *
 * A lazy grammar waits for its trigger.  The library would search the whole text for it at each token; words are
 * looked for here, in the last bytes only, and the library is given the tokens around one that was found.  Triggers
 * that are patterns are left to it.  Text inside of a thought triggers nothing. */
#include "adapters/llama/llama_form.h"

#include "adapters/llama/llama_chat.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <new>

struct md_llama_grammar {
    md_chat_form *form_ref = nullptr;
    const md_llama_form *form = nullptr;
    llama_sampler *sampler = nullptr;
    bool waiting = false, thinking = false, words = true;
    bool off = false;  /* a lazy one that the model has left: the parser takes what comes */
    size_t window = 0; /* bytes of the longest word that is looked for */
    std::string tail;  /* the last bytes of the answer, and the tokens they belong to */
    std::deque<std::pair<llama_token, size_t>> tokens;

    ~md_llama_grammar()
    {
        if (sampler != nullptr)
            llama_sampler_free(sampler);
        md_chat_form_unref(form_ref);
    }

    void remember(llama_token token)
    {
        const std::string piece = common_token_to_piece(form->vocab, token, true);
        tail += piece;
        tokens.emplace_back(token, piece.size());
        /* a word may end anywhere in the newest token, so that one does not count */
        while (tokens.size() > 1 && tail.size() - piece.size() - tokens.front().second >= window) {
            tail.erase(0, tokens.front().second);
            tokens.pop_front();
        }
    }

    void forget()
    {
        tail.clear();
        tokens.clear();
    }

    bool has(const std::string &word) const
    {
        return !word.empty() && tail.find(word) != std::string::npos;
    }

    void feed_tail()
    {
        for (const auto &[token, size] : tokens)
            llama_sampler_accept(sampler, token);
    }

    void look_for_trigger(llama_token token)
    {
        if (!words) {
            llama_sampler_accept(sampler, token);
            return;
        }
        for (const auto &t : form->triggers)
            if (has(t.value)) {
                feed_tail();
                waiting = false;
                return;
            }
    }

    void accept(llama_token token)
    {
        if (!form->lazy || !waiting) {
            llama_sampler_accept(sampler, token);
            return;
        }
        remember(token);
        if (!thinking) {
            if (has(form->think_start)) {
                thinking = true;
                forget();
            } else {
                look_for_trigger(token);
            }
            return;
        }
        for (const std::string &end : form->think_ends)
            if (has(end)) {
                thinking = false; /* the end of a thought may be a trigger itself: the tail stays */
                look_for_trigger(token);
                return;
            }
    }
};

/* Does the prompt end inside of a thought? */
static bool begins_thinking(const md_llama_form &f)
{
    if (f.think_start.empty())
        return false;
    size_t start = f.lead_text.rfind(f.think_start), end = std::string::npos;
    for (const std::string &s : f.think_ends)
        if (!s.empty() && f.lead_text.rfind(s) != std::string::npos)
            end = std::max(end == std::string::npos ? 0 : end, f.lead_text.rfind(s));
    return start != std::string::npos && (end == std::string::npos || end < start);
}

md_status md_llama_grammar_open(const md_chat_form *form, md_llama_grammar **ret_grammar, md_err *err)
{
    *ret_grammar = nullptr;
    const auto *f = static_cast<const md_llama_form *>(form);
    if (f == nullptr || f->grammar == nullptr)
        return MD_OK;
    try {
        auto g = std::make_unique<md_llama_grammar>();
        g->form_ref = md_chat_form_ref(const_cast<md_chat_form *>(form));
        g->form = f;
        g->sampler = llama_sampler_clone(f->grammar);
        g->waiting = f->lazy;
        g->thinking = begins_thinking(*f);
        g->window = f->think_start.size();
        for (const std::string &s : f->think_ends)
            g->window = std::max(g->window, s.size());
        for (const auto &t : f->triggers) {
            g->words = g->words && t.type == COMMON_GRAMMAR_TRIGGER_TYPE_WORD;
            g->window = std::max(g->window, t.value.size());
        }
        *ret_grammar = g.release();
        return MD_OK;
    } catch (...) {
        return md_fail(err, MD_NO_MEMORY, "grammar");
    }
}

void md_llama_grammar_close(md_llama_grammar *g)
{
    delete g;
}

md_status md_llama_grammar_apply(md_llama_grammar *g, llama_token_data_array *candidates, md_err *err)
{
    if (g->off || (g->waiting && (g->words || g->thinking)))
        return MD_OK;
    try {
        llama_sampler_apply(g->sampler, candidates);
        return MD_OK;
    } catch (const std::exception &e) {
        return md_fail(err, MD_INTERNAL, "the grammar failed: %.200s", e.what());
    } catch (...) {
        return md_fail(err, MD_INTERNAL, "the grammar failed");
    }
}

md_status md_llama_grammar_accept(md_llama_grammar *g, md_token token, md_err *err)
{
    if (g->off)
        return MD_OK;
    try {
        g->accept(token);
        return MD_OK;
    } catch (const std::bad_alloc &) {
        return md_fail(err, MD_NO_MEMORY, "grammar");
    } catch (const std::exception &e) {
        if (g->form->lazy) { /* what stood around its trigger is not of the grammar */
            g->off = true;
            return MD_OK;
        }
        return md_fail(err, MD_INTERNAL, "the grammar failed: %.200s", e.what());
    } catch (...) {
        return md_fail(err, MD_INTERNAL, "the grammar failed");
    }
}
