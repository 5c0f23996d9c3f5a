/* fault_engine.h - an engine that fails on request: the Nth call of an operation, with a chosen status. */
#ifndef MD_TESTS_FAULT_ENGINE_H
#define MD_TESTS_FAULT_ENGINE_H

#include "engine/wrap.h"

/* The caller's; it must outlive the engine, and may be changed between calls. */
struct md_fault {
    enum md_engine_op op;   /* MD_OP_COUNT: any operation */
    int nth;                /* 1: the next call; 0: none.  Counts down as calls of op pass */
    bool from_then_on;      /* later calls fail as well */
    enum md_status status;  /* not MD_OK */
    int calls[MD_OP_COUNT]; /* that reached this wrapper, failed ones included */
    int failed;             /* calls that were made to fail */
    void (*watch)(void *user,
                  const struct md_engine_call *call); /* NULL, or sees each call before it is made */
    void *user;
};

/* inner  taken over, also on failure; must be empty.  Errors as md_engine_wrap. */
MD_MUST_USE enum md_status md_fault_open(struct md_engine *inner, struct md_fault *fault,
                                         struct md_engine **ret_engine, struct md_err *err);

#endif
