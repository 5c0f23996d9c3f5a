/* llama_template.h - a parsed chat template, for llama_chat.cc (which runs it) and llama_form.cc (which asks what its
 * answers look like).  C++ only; nothing of it is seen by C. */
#ifndef MD_ADAPTERS_LLAMA_TEMPLATE_H
#define MD_ADAPTERS_LLAMA_TEMPLATE_H
#ifdef __cplusplus

#include "adapters/llama/llama_chat.h"

#include <chat-auto-parser.h>
#include <chat.h>

#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>

struct md_stopped { /* a bound was passed; not a std::exception, on purpose */
    const char *why;
};
std::string md_one_line(std::string s);

/* What the library reads by recursion: parentheses of patterns and grammars, brackets of answers and arguments. */
constexpr int kMdParenthesesMax = 64, kMdNestingMax = 500;
/* How deep these stand inside each other, whatever else is between them. */
int md_deepest(const std::string &s, const char *open, const char *close);

struct md_refused : std::runtime_error { /* the request is at fault; what() is a line for people */
    explicit md_refused(const std::string &why) : std::runtime_error(md_one_line(why))
    {
    }
};

/* The bounds of what this thread runs start anew. */
void md_start_bounds();
/* From here on templates find enable_thinking undefined on this thread, whoever sets it; or no longer. */
void md_hide_thinking(bool hide);

std::string md_to_string(md_bytes b);

struct md_chat_template {
    std::mutex lock;
    std::string broken;                               /* why it cannot be used, "" when it can */
    common_chat_template common;                      /* its program is ours, with guards */
    std::unique_ptr<autoparser::autoparser> analysis; /* made when it is needed */
    bool special = false;                             /* with it: llama-common knows this template by name */

    md_chat_template(const char *bos, const char *eos) : common("", bos, eos)
    {
    }
    void parse(const char *source);
    common_json messages_json(const md_chat_message *messages, size_t count) const;
    common_json extra_json(const md_chat_input &in) const;
    std::string run(const md_chat_input &in, const common_json &messages);
};

/* May throw what the above do.  NULL: nothing has to be read out of the answer. */
md_chat_form *md_form_of_template(md_chat_template &t, const llama_vocab *vocab, const md_chat_input &in,
                                  const common_json &messages);

#endif
#endif
