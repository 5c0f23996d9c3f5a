#include "support/fault_engine.h"

static enum md_status count_or_fail(void *user, const struct md_engine_call *call, struct md_err *err)
{
    struct md_fault *f = user;
    f->calls[call->op]++;
    if (f->watch != NULL)
        f->watch(f->user, call);
    if (f->nth <= 0 || (f->op != MD_OP_COUNT && f->op != call->op))
        return MD_OK;
    if (f->nth > 1) {
        f->nth--;
        return MD_OK;
    }
    if (!f->from_then_on)
        f->nth = 0;
    f->failed++;
    return md_fail(err, f->status, "injected fault in %s", md_engine_op_name(call->op));
}

enum md_status md_fault_open(struct md_engine *inner, struct md_fault *fault, struct md_engine **ret_engine,
                             struct md_err *err)
{
    const struct md_engine_hooks hooks = { .before = count_or_fail, .user = fault };
    return md_engine_wrap(inner, &hooks, ret_engine, err);
}
