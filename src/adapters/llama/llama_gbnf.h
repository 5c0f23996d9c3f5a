/* llama_gbnf.h - is a grammar one that llama.cpp comes to an end with?  C++ only. */
#ifndef MD_LLAMA_GBNF_H
#define MD_LLAMA_GBNF_H

#ifdef __cplusplus
#include <string>

/* Why not, in words; "": it is, or it is none at all, which the library says itself.
 *
 * Two things keep the library busy for good (llama-grammar.cpp): x{5,2}, whose difference is unsigned, and rules that
 * begin with each other again and again: its search for left recursion follows every way on which one may begin, and
 * forgets where it has been.  Takes time and memory in proportion to the text.  `text` has at most a few hundred
 * parentheses inside each other. */
std::string md_gbnf_trouble(const std::string &text);

#endif
#endif
