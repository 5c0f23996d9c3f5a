#include "cli/answer.h"

#include <stdint.h>
#include <stdio.h>

static const double SECONDS_MAX = 1e12; /* 30,000 years */

/* Where the check is: "sessions[3]", in a text that is cut rather than outgrown. */
struct check {
    char *why;
    size_t why_bytes;
    char path[200];
    size_t len;
};

static const char *const names[] = {
    [MD_ANSWER_COUNT] = "a count",
    [MD_ANSWER_SECONDS] = "a number of seconds",
    [MD_ANSWER_ID] = "an ID",
    [MD_ANSWER_ID_OR_NULL] = "an ID or null",
    [MD_ANSWER_TEXT] = "a string",
    [MD_ANSWER_TEXT_OR_NULL] = "a string or null",
    [MD_ANSWER_BOOL] = "true or false",
    [MD_ANSWER_TRUE] = "true",
    [MD_ANSWER_OBJECT] = "an object",
    [MD_ANSWER_LIST] = "a list",
    [MD_ANSWER_OBJECT_OR_NULL] = "an object or null",
};

static bool is_whole(yyjson_val *v, uint64_t low)
{
    return yyjson_is_uint(v) && yyjson_get_uint(v) >= low && yyjson_get_uint(v) <= INT64_MAX;
}

static bool has_type(yyjson_val *v, enum md_answer_type type)
{
    switch (type) {
    case MD_ANSWER_COUNT: return is_whole(v, 0);
    case MD_ANSWER_SECONDS:
        return yyjson_is_num(v) && yyjson_get_num(v) >= 0 && yyjson_get_num(v) <= SECONDS_MAX;
    case MD_ANSWER_ID: return is_whole(v, 1);
    case MD_ANSWER_ID_OR_NULL: return is_whole(v, 1) || yyjson_is_null(v);
    case MD_ANSWER_TEXT: return yyjson_is_str(v);
    case MD_ANSWER_TEXT_OR_NULL: return yyjson_is_str(v) || yyjson_is_null(v);
    case MD_ANSWER_BOOL: return yyjson_is_bool(v);
    case MD_ANSWER_TRUE: return yyjson_is_true(v);
    case MD_ANSWER_OBJECT: return yyjson_is_obj(v);
    case MD_ANSWER_OBJECT_OR_NULL: return yyjson_is_obj(v) || yyjson_is_null(v);
    case MD_ANSWER_LIST: return yyjson_is_arr(v);
    case MD_ANSWER_AND: break;
    }
    return true;
}

static bool wrong(struct check *c, yyjson_val *v, const char *name, enum md_answer_type type)
{
    const char *dot = c->len > 0 && name[0] != '\0' ? "." : "";
    if (v == NULL)
        snprintf(c->why, c->why_bytes, "'%s%s%s' is missing in its answer", c->path, dot, name);
    else
        snprintf(c->why, c->why_bytes, "'%s%s%s' in its answer is not %s", c->path, dot, name, names[type]);
    return false;
}

static void enter(struct check *c, const char *name)
{
    const size_t room = sizeof c->path - c->len;
    const int n = snprintf(c->path + c->len, room, "%s%s", c->len > 0 && name[0] != '[' ? "." : "", name);
    c->len += (size_t)n < room ? (size_t)n : room - 1;
}

static void leave(struct check *c, size_t len)
{
    c->len = len;
    c->path[len] = '\0';
}

static bool check_object(struct check *c, yyjson_val *object, const struct md_answer_field *fields);

static bool check_list(struct check *c, yyjson_val *list, const struct md_answer_field *fields)
{
    const size_t len = c->len;
    yyjson_arr_iter it = yyjson_arr_iter_with(list);
    yyjson_val *v;
    for (size_t i = 0; (v = yyjson_arr_iter_next(&it)) != NULL; i++) {
        char index[24];
        snprintf(index, sizeof index, "[%zu]", i);
        enter(c, index);
        if (!yyjson_is_obj(v))
            return wrong(c, v, "", MD_ANSWER_OBJECT);
        if (!check_object(c, v, fields))
            return false;
        leave(c, len);
    }
    return true;
}

/* As deep as the tables are. */
static bool check_object(struct check *c, yyjson_val *object, const struct md_answer_field *fields)
{
    const size_t len = c->len;
    for (const struct md_answer_field *f = fields; f->type != 0; f++) {
        if (f->type == MD_ANSWER_AND) {
            if (!check_object(c, object, f->inside))
                return false;
            continue;
        }
        yyjson_val *v = yyjson_obj_get(object, f->name);
        if (!has_type(v, f->type))
            return wrong(c, v, f->name, f->type);
        if (f->inside == NULL || yyjson_is_null(v))
            continue;
        enter(c, f->name);
        if (!(f->type == MD_ANSWER_LIST ? check_list(c, v, f->inside) : check_object(c, v, f->inside)))
            return false;
        leave(c, len);
    }
    return true;
}

bool md_answer_check(yyjson_val *answer, const struct md_answer_field *fields, char *why, size_t why_bytes)
{
    struct check c = { .why = why, .why_bytes = why_bytes };
    if (yyjson_is_obj(answer))
        return check_object(&c, answer, fields);
    snprintf(why, why_bytes, "its answer is no JSON object");
    return false;
}
