#include "policy/idle.h"
void md_idle_order(const struct md_idle_block *b, size_t n, size_t *order)
{
    for (size_t i = 0; i < n; i++) {
        size_t at = i;
        while (at > 0 && (b[order[at - 1]].session_last_used > b[i].session_last_used ||
                          (b[order[at - 1]].session_last_used == b[i].session_last_used &&
                           b[order[at - 1]].range.start < b[i].range.start))) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = i;
    }
}
