/* store_rig.c - see store_rig.h. */
#include "support/store_rig.h"
#include "support/temp_folder.h"

#include <check.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

char sr_folder[200];
static struct sr_files counted;

void sr_setup(void)
{
    md_temp_folder(sr_folder, sizeof sr_folder, "store");
}

void sr_empty(void)
{
    md_temp_folder_empty(sr_folder);
}

void sr_teardown(void)
{
    md_temp_folder_remove(sr_folder);
}

enum md_status sr_try_start(struct store_rig *s, struct md_pool_config config, int64_t budget_bytes,
                            const struct md_alloc *alloc)
{
    const struct md_disk_config d = {
        .folder = sr_folder, .identity = "fake", .budget_bytes = budget_bytes, .alloc = alloc
    };
    memset(s, 0, sizeof *s);
    enum md_status st = md_disk_open(&d, &s->disk, &s->err);
    if (st != MD_OK)
        return st;
    config.disk = s->disk;
    config.alloc = alloc;
    st = rig_try_open(&s->r, config, 0);
    s->err = s->r.err;
    return st;
}

void sr_start(struct store_rig *s, struct md_pool_config config, int64_t budget_bytes)
{
    ck_assert_msg(sr_try_start(s, config, budget_bytes, NULL) == MD_OK, "%s", s->err.text);
}

void sr_stop(struct store_rig *s)
{
    rig_close(&s->r);
    md_disk_close(s->disk);
    memset(s, 0, sizeof *s);
}

struct md_session *sr_find(const struct store_rig *s, const md_token *tokens, int32_t count)
{
    struct md_session *c = NULL;
    while ((c = md_pool_next(s->r.pool, c)) != NULL) {
        int32_t have;
        const md_token *context = md_session_context(c, &have);
        if (have == count && (count == 0 || memcmp(context, tokens, (size_t)count * sizeof *tokens) == 0))
            return c;
    }
    return NULL;
}

int sr_used(const struct store_rig *s)
{
    int used = 0;
    struct md_session *c = NULL;
    while ((c = md_pool_next(s->r.pool, c)) != NULL) {
        int32_t have;
        (void)md_session_context(c, &have);
        used += have > 0;
    }
    return used;
}

static int count_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    const char *name = path + at->base;
    const size_t len = strlen(name);
    const bool block = strncmp(name, "b-", 2) == 0, record = strncmp(name, "s-", 2) == 0;
    if (type != FTW_F)
        return 0;
    counted.blocks += block;
    counted.records += record;
    counted.temporary += len > 4 && strcmp(name + len - 4, ".tmp") == 0;
    const int64_t pages = (st->st_size + 4095) / 4096 * 4096;
    counted.pages += block || record ? pages : 0;
    counted.all_pages += pages;
    return 0;
}

struct sr_files sr_files(void)
{
    counted = (struct sr_files){ 0 };
    ck_assert_int_eq(nftw(sr_folder, count_one, 8, FTW_PHYS), 0);
    return counted;
}
