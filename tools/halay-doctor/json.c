/* SPDX-License-Identifier: Apache-2.0 */
/* json.c - the same as JSON: every host's findings as they are, and the whole matrix. */
#include "../common/json.h"
#include "doctor.h"

static void put_pair(FILE *out, const char *name, const char *value, const char *after)
{
    hly_json_string(out, name);
    fputs(": ", out);
    hly_json_string(out, value);
    fputs(after, out);
}

static void put_findings(FILE *out, const struct hly_report *report, const char *indent)
{
    fputs("\"findings\": [", out);
    for (uint32_t i = 0; i < report->nfindings; i++) {
        const struct hly_finding *f = &report->findings[i];
        fprintf(out, "%s\n%s{", i ? "," : "", indent);
        put_pair(out, "severity", hly_severity_names[f->severity], ", ");
        put_pair(out, "check", f->check, ", ");
        put_pair(out, "where", f->where, ", ");
        put_pair(out, "what", f->what, ", ");
        put_pair(out, "why", f->why, ", ");
        put_pair(out, "remedy", f->remedy, "}");
    }
    fputs("]", out);
}

static void put_hosts(FILE *out, const struct hly_job *job)
{
    fputs("\"hosts\": [", out);
    for (int s = 0; s < job->nseats; s++) {
        const struct hly_report *report = &job->reports[s];
        fprintf(out, "%s\n  {\"rank\": %d, \"node\": %d, ", s ? "," : "", job->seats[s].rank,
                job->seats[s].node);
        put_pair(out, "host", job->seats[s].host, ",\n   \"facts\": {");
        for (uint32_t i = 0; i < report->nfacts; i++)
            put_pair(out, report->facts[i].name, report->facts[i].value,
                     i + 1 < report->nfacts ? ", " : "");
        fputs("},\n   ", out);
        put_findings(out, report, "    ");
        fputs("}", out);
    }
    fputs("\n ]", out);
}

static void put_number(FILE *out, const char *name, double value)
{
    fprintf(out, value > 0 ? "\"%s\": %.3f, " : "\"%s\": null, ", name, value);
}

static void put_pairs(FILE *out, const struct hly_job *job)
{
    int n = job->matrix.n;
    bool first = true;
    fputs("\"pairs\": [", out);
    for (int a = 0; a < n; a++)
        for (int b = 0; b < n; b++) {
            const struct hly_cell *cell = hly_cell(job, a, b);
            if (a == b)
                continue;
            fprintf(out, "%s\n  {\"from\": %d, \"to\": %d, ", first ? "" : ",", job->seats[a].rank,
                    job->seats[b].rank);
            put_pair(out, "transport", hly_transport(job, a, b), ", ");
            put_number(out, "latency_us", cell->latency_us);
            put_number(out, "bandwidth_mb_per_s", cell->bandwidth_mbs);
            put_pair(out, "result",
                     cell->code < 0 ? "failed"
                     : cell->code   ? "not tried"
                                    : "ok",
                     ", ");
            put_pair(out, "reason", cell->reason, "}");
            first = false;
        }
    fputs("\n ]", out);
}

void hly_print_json(const struct hly_job *job, FILE *out)
{
    fputs("{", out);
    put_pair(out, "halay", halay_version(), ",\n ");
    put_pair(out, "launcher", job->topology.launcher, ",\n ");
    fprintf(out, "\"ranks\": %d, \"nodes\": %d,\n ", job->topology.nranks, job->topology.nnodes);
    put_hosts(out, job);
    fputs(",\n \"job\": {", out);
    put_findings(out, &job->across, "   ");
    fputs("},\n ", out);
    put_pairs(out, job);
    fputs("}\n", out);
}
