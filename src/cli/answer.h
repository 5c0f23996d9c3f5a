/* answer.h - is it an answer of modeld?  Every member that a verb reads is there and has its type, or the answer is
 * refused: what listens there is something else, or another version, and a 0 in place of what cannot be read would be
 * a lie.
 *
 * Threads: any; touches nothing but its arguments. */
#ifndef MD_CLI_ANSWER_H
#define MD_CLI_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <yyjson.h>

enum md_answer_type {
    MD_ANSWER_COUNT = 1, /* a whole number, 0 to INT64_MAX */
    MD_ANSWER_SECONDS,   /* a number, 0 to 1e12 */
    MD_ANSWER_ID,        /* a whole number, 1 to INT64_MAX */
    MD_ANSWER_ID_OR_NULL,
    MD_ANSWER_TEXT,
    MD_ANSWER_TEXT_OR_NULL,
    MD_ANSWER_BOOL,
    MD_ANSWER_TRUE,
    MD_ANSWER_OBJECT, /* with the members `inside` */
    MD_ANSWER_OBJECT_OR_NULL,
    MD_ANSWER_LIST, /* of such objects */
    MD_ANSWER_AND,  /* no member: `inside` belongs to this object as well */
};

/* A table of them ends with one whose type is 0. */
struct md_answer_field {
    const char *name;
    enum md_answer_type type;
    const struct md_answer_field *inside;
};

/* why: where it is none, which member is wrong and how, for people. */
bool md_answer_check(yyjson_val *answer, const struct md_answer_field *fields, char *why, size_t why_bytes);

#endif
