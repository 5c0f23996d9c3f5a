/* llama_schema.h - is a JSON schema one that llama-common makes a grammar of, soon and as it stands?  C++ only. */
#ifndef MD_LLAMA_SCHEMA_H
#define MD_LLAMA_SCHEMA_H

#ifdef __cplusplus
#include "adapters/llama/llama_template.h"

#include <cstddef>

/* What schemas may cost together: those of all tools of a request share one.  The converter
 * (json-schema-to-grammar.cpp) asks for no limit, and the grammar is asked at each token:
 *
 *   visits      it goes through a part once for each type that a `type` list gives, those inside of it again
 *   optional    n optional properties of an object make about n^3 / 6 pieces of text
 *   choices     n alternatives of an enum, anyOf or oneOf are compared with each other
 *   references  each one that is new, wherever it stands, copies the whole schema; those under allOf are followed
 *               without end in a circle
 *   names       rules are named by the keys on the way to them, which are read by recursion
 *   patterns    each copies all rules made so far */
class md_schema_cost
{
  public:
    /* Add the schema, which was written in so many bytes.  Throws md_refused: what is too much, how much there is and
     * how much may be; or what is no schema, where the library would take it for one.
     *
     * strict  refuse a pattern that the library cannot express, too: it would let any string pass */
    void add(const common_json &schema, size_t bytes, bool strict);

  private:
    friend struct md_schema_reader;
    double nodes = 0, visits = 0, optional = 0, choices = 0, copied = 0;
    size_t patterns = 0;
};

#endif
#endif
