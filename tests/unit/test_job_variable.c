/* SPDX-License-Identifier: Apache-2.0 */
/* test_job_variable.c - HALAY_JOB and HALAY_AUTOTUNE as they are read and written. */
#include <stdlib.h>
#include <string.h>

#include "../../common/autotune.h"
#include "../../common/job.h"
#include "../check.h"

static void finds(const char *text, const char *key, const char *wanted)
{
    char value[8];
    const char *found = hly_job_find(text, key, value, sizeof value);
    CHECK(!found == !wanted && (!found || !strcmp(found, wanted)), "%s of '%s': '%s', not '%s'",
          key, text ? text : "(none)", found ? found : "", wanted ? wanted : "");
}

/* Whatever is put in whatever order is found, once; what another launcher has set is replaced. */
static void puts_keys(void)
{
    char **env = calloc(2, sizeof *env), value[16];
    env[0] = strdup("HALAY_JOBS=slot=9");
    CHECK(hly_job_put(&env, "slot", "1") && hly_job_put(&env, "name", "n") &&
              hly_job_put(&env, "meet", "unix:/m") && hly_job_put(&env, "slot", "22"),
          "put");
    CHECK(!strcmp(env[0], "HALAY_JOBS=slot=9") && env[1] && !env[2], "other variables change");
    CHECK(!strcmp(env[1], "HALAY_JOB=name=n;meet=unix:/m;slot=22"), "%s", env[1]);
    CHECK(hly_job_put(&env, "meet", "a:1") && hly_job_put(&env, "name", "m"), "put");
    CHECK(!strcmp(env[1], "HALAY_JOB=slot=22;meet=a:1;name=m"), "%s", env[1]);
    CHECK(!hly_job_put(&env, "name", "a;slot=3"), "a value with a semicolon is taken");
    CHECK(hly_job_find(env[1] + 10, "slot", value, sizeof value) && !strcmp(value, "22"), "slot");
    free(env[0]);
    free(env[1]);
    free(env);
}

static void tunes(const char *text, bool right, bool on, uint64_t group)
{
    struct hly_autotune a;
    CHECK(hly_autotune_read(text, &a) == right, "'%s'", text ? text : "(none)");
    CHECK(!right || (a.on == on && a.group_bytes == group), "'%s': %d", text ? text : "(none)",
          a.on);
}

int main(void)
{
    struct hly_autotune a;
    finds(NULL, "slot", NULL);
    finds("", "slot", NULL);
    finds("none", "slot", NULL);
    finds("slot=1", "slot", "1");
    finds("a=b;slot=12;c=d", "slot", "12");
    finds("myslot=1;slots=2", "slot", NULL);
    finds("slot", "slot", NULL);
    finds("slot=;name=x", "slot", NULL);
    finds("slot=1234567", "slot", "1234567");
    finds("slot=12345678", "slot", NULL); /* more than there is room for */
    finds(";;slot=3;", "slot", "3");
    CHECK(hly_job_is_none("none") && !hly_job_is_none("nonesuch") && !hly_job_is_none(NULL),
          "none");
    puts_keys();
    tunes(NULL, true, false, HLY_AUTOTUNE_UNSET);
    tunes("0", true, false, HLY_AUTOTUNE_UNSET);
    tunes("1", true, true, HLY_AUTOTUNE_UNSET);
    tunes("group:0", true, false, 0);
    tunes("1,group:64", true, true, 64);
    tunes("steps:2", true, true, HLY_AUTOTUNE_UNSET);
    tunes("10", false, false, 0);
    tunes("warmup:18446744073709551616", false, false, 0);
    CHECK(hly_autotune_read("again,steps:7,warmup:0,log:a,b", &a) && a.again && a.steps == 7 &&
              !a.warmup && !strcmp(a.log, "a,b"),
          "all words");
    return 0;
}
