#ifndef MD_POLICY_IDLE_H
#define MD_POLICY_IDLE_H
#include "policy/residency.h"
struct md_idle_block {
    int64_t session_last_used;
    enum md_cache_class cls;
    struct md_range range;
};
void md_idle_order(const struct md_idle_block *b, size_t n, size_t *order);
#endif
