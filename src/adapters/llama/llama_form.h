/* llama_form.h - what a form of this adapter holds; for llama_form.cc (which makes it) and llama_grammar.cc.  C++ only. */
#ifndef MD_ADAPTERS_LLAMA_FORM_H
#define MD_ADAPTERS_LLAMA_FORM_H
#ifdef __cplusplus

#include "text/form.h"

#include <chat.h>

#include <string>
#include <vector>

struct md_llama_form : md_chat_form {
    common_chat_parser_params parser;
    const llama_vocab *vocab = nullptr;
    llama_sampler *grammar = nullptr; /* at its beginning: each answer gets a copy; NULL: nothing binds it */
    bool lazy = false;                /* it binds from a trigger on */
    std::vector<common_grammar_trigger> triggers;
    std::string think_start;
    std::vector<std::string> think_ends;
    std::string lead_text;
    std::vector<std::string> marker_texts, stop_texts;
    std::vector<md_bytes> marker_list, stop_list;
    std::vector<md_token> kept_list;

    ~md_llama_form();
};

#endif
#endif
