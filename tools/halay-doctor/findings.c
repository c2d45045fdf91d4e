/* SPDX-License-Identifier: Apache-2.0 */
/* findings.c - findings and facts of one host. */
#include <stdarg.h>
#include <string.h>

#include "doctor.h"

const char *const hly_severity_names[HLY_SEVERITIES] = {"ok", "note", "warning", "error"};

/* One line, whatever a file had in it. */
static void put(char *text, size_t bytes, const char *format, va_list list)
{
    vsnprintf(text, bytes, format, list);
    for (; *text; text++)
        if ((unsigned char)*text < ' ')
            *text = ' ';
}

struct hly_finding *hly_find(struct hly_report *report, enum hly_severity severity,
                             const char *check, const char *where, const char *format, ...)
{
    bool full = report->nfindings == HLY_FINDINGS;
    struct hly_finding *f = &report->findings[full ? HLY_FINDINGS - 1 : report->nfindings++];
    va_list list;
    *f = (struct hly_finding){.severity = severity};
    snprintf(f->check, sizeof f->check, "%s", full ? "doctor" : check);
    snprintf(f->where, sizeof f->where, "%s", full ? "" : where);
    va_start(list, format);
    if (full) {
        f->severity = HLY_WARNING;
        snprintf(f->what, sizeof f->what, "there are more findings than %d", HLY_FINDINGS - 1);
    } else {
        put(f->what, sizeof f->what, format, list);
    }
    va_end(list);
    return f;
}

void hly_advise(struct hly_finding *finding, const char *why, const char *format, ...)
{
    va_list list;
    snprintf(finding->why, sizeof finding->why, "%s", why);
    va_start(list, format);
    put(finding->remedy, sizeof finding->remedy, format, list);
    va_end(list);
}

void hly_fact(struct hly_report *report, const char *name, const char *format, ...)
{
    va_list list;
    if (report->nfacts == HLY_FACTS)
        return;
    struct hly_fact *fact = &report->facts[report->nfacts++];
    snprintf(fact->name, sizeof fact->name, "%s", name);
    va_start(list, format);
    put(fact->value, sizeof fact->value, format, list);
    va_end(list);
}

#define END(text) ((text)[sizeof(text) - 1] = '\0')

void hly_report_tame(struct hly_report *report)
{
    END(report->host);
    if (report->nfindings > HLY_FINDINGS)
        report->nfindings = HLY_FINDINGS;
    if (report->nfacts > HLY_FACTS)
        report->nfacts = HLY_FACTS;
    for (uint32_t i = 0; i < report->nfindings; i++) {
        struct hly_finding *f = &report->findings[i];
        if (f->severity < 0 || f->severity >= HLY_SEVERITIES)
            f->severity = HLY_ERROR;
        END(f->check);
        END(f->where);
        END(f->what);
        END(f->why);
        END(f->remedy);
    }
    for (uint32_t i = 0; i < report->nfacts; i++) {
        END(report->facts[i].name);
        END(report->facts[i].value);
    }
}
