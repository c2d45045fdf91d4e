/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handover.c - halayrun's options in the words of srun, jsrun, prterun and mpirun. Their signals
 * and exit status are their own from then on: halayrun is no longer there.
 *
 * What the command line printed by --dry-run does is what would be done: it changes the environment
 * with env(1), and the file of jsrun's ranks or srun's hosts is a here-document. In truth that file
 * is an unlinked one, which the launcher finds under its own process, so that nothing is left
 * behind; and no command line is too short for ten thousand hosts.
 */
#define _GNU_SOURCE
#include "handover.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../common/file_limit.h"
#include "../common/printed.h"
#include "note.h"
#include "output.h"
#include "spawn.h"

extern char **environ;

enum { PRINTED_FD = 9, FILE_BYTES = 64, LIST_BYTES = 65536 };

struct words {
    char **list; /* NULL-terminated */
    size_t n;
    int failed; /* no memory for one of them */
};

struct handover {
    const struct hly_place *place;
    const struct hly_options *options;
    struct words command;
    struct words set, unset; /* of the environment */
    char *ranks;             /* a file for it: jsrun's of ranks, hosts of the others; NULL: none */
};

/* ------------------------------------------------------------------ words */

static void add(struct words *words, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(struct words *words, const char *format, ...)
{
    char *word = NULL, **grown = realloc(words->list, (words->n + 2) * sizeof *grown);
    va_list args;
    va_start(args, format);
    if (grown)
        words->list = grown;
    if (!grown || vasprintf(&word, format, args) < 0) {
        words->failed = 1;
    } else {
        words->list[words->n++] = word;
        words->list[words->n] = NULL;
    }
    va_end(args);
}

static void free_words(struct words *words)
{
    for (size_t i = 0; i < words->n; i++)
        free(words->list[i]);
    free(words->list);
}

static void print_word(FILE *file, const char *word)
{
    if (*word && !word[strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                    "_@%+=:,./-")]) {
        fputs(word, file);
        return;
    }
    fputc('\'', file);
    for (; *word; word++) {
        if (*word == '\'')
            fputs("'\\''", file);
        else
            fputc(*word, file);
    }
    fputc('\'', file);
}

static void print_command(FILE *file, const struct handover *h)
{
    const char *blank = "";
    if (h->set.n || h->unset.n)
        fputs("env ", file);
    for (size_t i = 0; i < h->unset.n; i++)
        fprintf(file, "-u %s ", h->unset.list[i]);
    for (size_t i = 0; i < h->set.n; i++) {
        print_word(file, h->set.list[i]);
        fputc(' ', file);
    }
    for (size_t i = 0; i < h->command.n; i++, blank = " ") {
        fputs(blank, file);
        print_word(file, h->command.list[i]);
    }
}

/* ------------------------------------------------------------------ environment */

/* What would make ranks believe that they are of another job, or the launcher place them elsewhere.
 */
static void plan_environment(struct handover *h)
{
    static const char *const slurms[] = {"SLURM_NTASKS_PER_NODE=", "SLURM_HOSTFILE="};
    for (char **env = environ; *env; env++) {
        int drop = hly_env_of_another_job(*env);
        for (size_t i = 0; i < 2 && h->place->launcher == HLY_SRUN; i++)
            drop |= !strncmp(*env, slurms[i], strlen(slurms[i]));
        if (drop)
            add(&h->unset, "%.*s", (int)strcspn(*env, "="), *env);
    }
    for (int i = 0; i < h->options->nenv; i++)
        if (strchr(h->options->env[i], '='))
            add(&h->set, "%s", h->options->env[i]);
}

/* mpirun's ranks on other machines get what is named. Values are not shown on its command line. */
static int is_passed(const char *assignment)
{
    static const char *const heads[] = {
        "HALAY_",       "HOROVOD_",         "PYTHON",       "OMP_",
        "MKL_",         "OPENBLAS_",        "UCX_",         "NCCL_",
        "PATH=",        "LD_LIBRARY_PATH=", "VIRTUAL_ENV=", "VIRTUAL_ENV_PROMPT=",
        "CONDA_PREFIX="};
    if (!strncmp(assignment, "HALAY_JOB=", 10))
        return 0;
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
        if (!strncmp(assignment, heads[i], strlen(heads[i])))
            return 1;
    return 0;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void pass_environment(struct handover *h)
{
    struct words names = {0};
    const char *last = "";
    for (char **env = environ; *env; env++)
        if (is_passed(*env))
            add(&names, "%.*s", (int)strcspn(*env, "="), *env);
    for (int i = 0; i < h->options->nenv; i++) {
        const char *text = h->options->env[i];
        if (strchr(text, '=') || getenv(text))
            add(&names, "%.*s", (int)strcspn(text, "="), text);
    }
    if (names.n)
        qsort(names.list, names.n, sizeof *names.list, by_text);
    for (size_t i = 0; i < names.n; last = names.list[i++]) {
        if (!strcmp(names.list[i], last))
            continue;
        add(&h->command, "-x");
        add(&h->command, "%s", names.list[i]);
    }
    h->command.failed |= names.failed;
    free_words(&names);
}

/* ------------------------------------------------------------------ a file for the launcher */

/* The name of h->ranks for the launcher that this process becomes. 0 or -1, said. */
static int open_file(struct handover *h, char path[FILE_BYTES])
{
    size_t bytes = strlen(h->ranks), done = 0;
    if (h->options->dry_run) {
        snprintf(path, FILE_BYTES, "/dev/fd/%d", PRINTED_FD);
        return 0;
    }
    int fd = memfd_create("halayrun-ranks", 0);
    while (fd >= 0 && done < bytes) {
        ssize_t n = hly_file_fits(bytes) ? write(fd, h->ranks + done, bytes - done) : -1;
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    if (fd < 0 || done < bytes) {
        hly_note("cannot write a file for %s: %s", hly_launcher_name(h->place->launcher),
                 strerror(errno));
        return -1;
    }
    snprintf(path, FILE_BYTES, "/proc/%d/fd/%d", (int)getpid(), fd);
    return 0;
}

/* ------------------------------------------------------------------ srun */

/* Every rank's host, in order, one a line. */
static char *list_hosts_by_rank(const struct hly_hosts *hosts)
{
    char *text = NULL;
    size_t bytes;
    FILE *file = open_memstream(&text, &bytes);
    for (int i = 0; file && i < hosts->n; i++)
        for (int r = 0; r < hosts->list[i].ranks; r++)
            fprintf(file, "%s\n", hosts->list[i].name);
    if (file && !fclose(file))
        return text;
    free(text);
    return NULL;
}

/* srun takes them from a file, which a variable names. */
static int add_hosts_by_rank(struct handover *h)
{
    char path[FILE_BYTES];
    h->ranks = list_hosts_by_rank(&h->place->hosts);
    if (!h->ranks) {
        h->command.failed = 1;
        return 0;
    }
    if (open_file(h, path))
        return -1;
    add(&h->set, "SLURM_HOSTFILE=%s", path);
    return 0;
}

/* Lines of srun have no time, and what goes to files is shown nowhere else. */
static int keep_by_srun(struct handover *h)
{
    const struct hly_options *o = h->options;
    if (o->timestamp)
        hly_note("--prefix-timestamp: srun gives lines no time: they have the rank alone");
    if (!o->output)
        return 0;
    const int digits = hly_output_digits(h->place->nranks, 0);
    if (!o->dry_run && hly_output_folders(o->output, h->place->nranks, digits))
        return -1;
    add(&h->command, "--output=%s/rank.%%%dt/stdout", o->output, digits);
    add(&h->command, "--error=%s/rank.%%%dt/stderr", o->output, digits);
    return 0;
}

static int add_srun(struct handover *h)
{
    const struct hly_place *place = h->place;
    const char *cpus = getenv("SLURM_CPUS_PER_TASK");
    struct words *c = &h->command;
    add(c, "srun");
    add(c, "--mpi=pmix");
    add(c, "--export=ALL");
    add(c, "--input=0");
    if (h->options->prefix)
        add(c, "--label");
    if (place->hosts.n)
        add(c, "-N%d", hly_hosts_used(&place->hosts));
    else if (place->nodes)
        add(c, "-N%d", place->nodes);
    add(c, "-n%d", place->nranks);
    if (place->per_node)
        add(c, "--ntasks-per-node=%d", place->per_node);
    if (cpus && !getenv("SRUN_CPUS_PER_TASK")) /* srun does not take sbatch's */
        add(c, "--cpus-per-task=%s", cpus);
    if (keep_by_srun(h))
        return -1;
    if (!place->hosts.n)
        return 0;
    add(c, "--distribution=arbitrary");
    return add_hosts_by_rank(h);
}

/* ------------------------------------------------------------------ prterun, mpirun */

static int is_set(const char *one, const char *other)
{
    return getenv(one) || getenv(other);
}

/* All slots that the user named, as many as there are ranks of an allocation's: "a:2,b:2", or as a
 * file of hosts. A host without ranks need not be there. NULL: no memory. */
static char *list_hosts(const struct hly_place *place, int as_file)
{
    const struct hly_hosts *hosts = &place->hosts;
    char *text = NULL;
    size_t bytes;
    const char *comma = "";
    FILE *file = open_memstream(&text, &bytes);
    for (int i = 0; file && i < hosts->n; i++) {
        const struct hly_host *host = &hosts->list[i];
        const int slots = place->named && host->ranks ? host->slots : host->ranks;
        if (slots && as_file)
            fprintf(file, "%s slots=%d\n", host->name, slots);
        else if (slots)
            fprintf(file, strchr(host->name, ':') ? "%s[%s]:%d" : "%s%s:%d", comma, host->name,
                    slots),
                comma = ",";
    }
    if (file && !fclose(file))
        return text;
    free(text);
    return NULL;
}

/* An argument of 128 KiB is too long for the kernel. 0, or -1, said. */
static int add_hosts(struct handover *h)
{
    char path[FILE_BYTES];
    int status = 0;
    char *text = list_hosts(h->place, 0);
    if (text && strlen(text) < LIST_BYTES) {
        add(&h->command, "-H");
        add(&h->command, "%s", text);
    } else if (text && (h->ranks = list_hosts(h->place, 1))) {
        status = open_file(h, path);
        add(&h->command, "--hostfile");
        add(&h->command, "%s", path);
    } else {
        h->command.failed = 1;
    }
    free(text);
    return status;
}

/*
 * Where the other hosts find Open MPI: beside the daemon that is next to this launcher, unless that
 * is where every machine has it. A shell that is reached by ssh often has another PATH, and a wheel
 * lies elsewhere than it was built for.
 */
static void add_prefix(struct handover *h)
{
    static const char *const daemons[] = {"prted", "orted"};
    char path[HLY_PATH_BYTES], daemon[HLY_PATH_BYTES + 8];
    if (hly_hosts_here(&h->place->hosts) ||
        hly_search_program(hly_launcher_name(h->place->launcher), path) || *path != '/')
        return;
    *strrchr(path, '/') = '\0';
    char *bin = strrchr(path, '/');
    if (!bin || strcmp(bin, "/bin") || bin == path || !strcmp(path, "/usr/bin"))
        return;
    for (size_t i = 0; i < sizeof daemons / sizeof daemons[0]; i++) {
        snprintf(daemon, sizeof daemon, "%s/%s", path, daemons[i]);
        if (access(daemon, X_OK))
            continue;
        *bin = '\0';
        add(&h->command, "--prefix");
        add(&h->command, "%s", path);
        return;
    }
}

/* LSF's sites often have no ssh between nodes, and an Open MPI that was not built for LSF. */
static void use_blaunch(struct handover *h)
{
    char path[HLY_PATH_BYTES];
    if (!getenv("LSB_JOBID") || hly_search_program("blaunch", path) ||
        is_set("OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent"))
        return;
    add(&h->set, "OMPI_MCA_plm_rsh_agent=blaunch");
    add(&h->set, "PRTE_MCA_plm_ssh_agent=blaunch");
}

static void mark_by_prterun(struct handover *h)
{
    const struct hly_options *o = h->options;
    if (!o->prefix && !o->output)
        return;
    add(&h->command, "--output");
    add(&h->command, "%s%s%s%s%s", o->prefix ? "tag" : "", o->timestamp ? ",timestamp" : "",
        o->prefix && o->output ? "," : "", o->output ? "dir=" : "", o->output ? o->output : "");
}

/* In words of 4 that 5 still understands. */
static void mark_by_mpirun(struct handover *h)
{
    const struct hly_options *o = h->options;
    if (o->prefix)
        add(&h->command, "--tag-output");
    if (o->timestamp)
        add(&h->command, "--timestamp-output");
    if (!o->output)
        return;
    add(&h->command, "--output-filename");
    add(&h->command, "%s", o->output);
}

static int add_mpirun(struct handover *h)
{
    struct words *c = &h->command;
    use_blaunch(h);
    int prterun = h->place->launcher == HLY_PRTERUN;
    add(c, "%s", hly_launcher_name(h->place->launcher));
    if (geteuid() == 0)
        add(c, "--allow-run-as-root");
    add(c, "-n");
    add(c, "%d", h->place->nranks);
    if (h->place->hosts.n) {
        if (add_hosts(h))
            return -1;
        add_prefix(h);
    } else if (!h->place->nodes) { /* it would count processors, and refuse to have more ranks */
        add(c, "-H");
        add(c, "localhost:%d", h->place->nranks);
    }
    if (!is_set("OMPI_MCA_rmaps_base_mapping_policy", "PRTE_MCA_rmaps_default_mapping_policy")) {
        add(c, "--map-by");
        add(c, "slot");
    }
    /* By default one or two ranks get one core each, and all their threads with them. */
    if (!is_set("OMPI_MCA_hwloc_base_binding_policy", "PRTE_MCA_hwloc_default_binding_policy")) {
        add(c, "--bind-to");
        add(c, "none");
    }
    if (prterun)
        mark_by_prterun(h);
    else
        mark_by_mpirun(h);
    pass_environment(h);
    return 0;
}

/* ------------------------------------------------------------------ jsrun */

/* On the launch node, which is taken to be like the others. The kernel writes "0,4" or "0-3". */
static int threads_per_core(void)
{
    char text[256] = "", *at = text, *end;
    FILE *file = fopen("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "re");
    long threads = 0;
    if (file && !fgets(text, sizeof text, file))
        text[0] = '\0';
    if (file)
        fclose(file);
    for (; isdigit((unsigned char)*at); at = end + (*end == ',')) {
        long first = strtol(at, &end, 10);
        long last = *end == '-' ? strtol(end + 1, &end, 10) : first;
        threads += last - first + 1;
    }
    return threads > 0 && threads < 1024 ? (int)threads : 1;
}

/*
 * The rank file that horovodrun writes too: ranks by host, a host's processors divided among its
 * ranks, and all of its GPUs for each. LSF's slots are cores; a logical processor is a thread.
 */
static char *make_rank_file(const struct hly_hosts *hosts)
{
    char *text = NULL;
    size_t bytes;
    int rank = 0, threads = threads_per_core();
    FILE *file = open_memstream(&text, &bytes);
    if (!file)
        return NULL;
    fputs("overlapping_rs: allow\ncpu_index_using: logical\n", file);
    for (int i = 0; i < hosts->n; i++) {
        const struct hly_host *host = &hosts->list[i];
        if (!host->ranks)
            continue;
        fputc('\n', file);
        int each = host->slots / host->ranks * threads;
        assert(each > 0);
        for (int r = 0; r < host->ranks; r++)
            fprintf(file, "rank: %d: { hostname: %s; cpu: {%d-%d} ; gpu: * ; mem: * }\n", rank++,
                    host->name, r * each, (r + 1) * each - 1);
    }
    if (!fclose(file))
        return text;
    free(text);
    return NULL;
}

/* Files of each rank, or lines with ranks. */
static int keep_by_jsrun(struct handover *h)
{
    const struct hly_options *o = h->options;
    if (o->timestamp)
        hly_note("--prefix-timestamp: jsrun gives lines no time: they have the rank alone");
    if (o->prefix || o->output) {
        add(&h->command, "--stdio_mode");
        add(&h->command, o->output ? "individual" : "prepended");
    }
    if (!o->output)
        return 0;
    if (!o->dry_run && hly_output_folders(o->output, h->place->nranks, 1))
        return -1;
    add(&h->command, "--stdio_stdout");
    add(&h->command, "%s/rank.%%t/stdout", o->output);
    add(&h->command, "--stdio_stderr");
    add(&h->command, "%s/rank.%%t/stderr", o->output);
    return 0;
}

static int add_jsrun(struct handover *h)
{
    char path[FILE_BYTES];
    struct words *c = &h->command;
    h->ranks = make_rank_file(&h->place->hosts);
    if (!h->ranks) {
        c->failed = 1;
        return 0;
    }
    if (open_file(h, path))
        return -1;
    add(c, "jsrun");
    add(c, "--erf_input");
    add(c, "%s", path);
    add(c, "-X"); /* the first rank that fails ends the job */
    add(c, "1");
    return keep_by_jsrun(h);
}

/* ------------------------------------------------------------------ altogether */

static void add_local(struct handover *h)
{
    struct words *c = &h->command;
    add(c, "halayrun");
    add(c, "--launcher");
    add(c, "local");
    add(c, "-np");
    add(c, "%d", h->place->nranks);
    if (h->options->prefix)
        add(c, h->options->timestamp ? "--prefix-timestamp" : "-l");
    if (h->options->lines)
        add(c, "--whole-lines");
    if (h->options->output)
        add(c, "--output-filename"), add(c, "%s", h->options->output);
    if (h->options->timeout_s)
        add(c, "--timeout"), add(c, "%d", h->options->timeout_s);
    if (h->options->has_grace)
        add(c, "--grace"), add(c, "%d", h->options->grace_s);
}

static int make_command(struct handover *h)
{
    struct words *c = &h->command;
    enum hly_launcher launcher = h->place->launcher;
    plan_environment(h);
    if (h->options->timeout_s && launcher != HLY_LOCAL) {
        add(c, "timeout"); /* whose exit status, 124, is that of halayrun */
        add(c, "--foreground");
        add(c, "--kill-after=10");
        add(c, "%d", h->options->timeout_s);
    }
    if (launcher == HLY_LOCAL)
        add_local(h);
    else if (launcher == HLY_SRUN    ? add_srun(h)
             : launcher == HLY_JSRUN ? add_jsrun(h)
                                     : add_mpirun(h))
        return -1;
    for (char **word = h->options->command; *word; word++)
        add(c, "%s", *word);
    if (!c->failed && !h->set.failed && !h->unset.failed)
        return 0;
    hly_note("no memory for the command line of %s", hly_launcher_name(launcher));
    return -1;
}

static int print(const struct handover *h)
{
    print_command(stdout, h);
    if (h->ranks)
        printf(" %d<<'END'\n%sEND", PRINTED_FD, h->ranks);
    putchar('\n');
    return hly_printed("halayrun", 0, HLY_EXIT_SELF);
}

static int become(const struct handover *h)
{
    assert(h->command.n);
    if (h->options->verbose) {
        char *text = NULL;
        size_t bytes;
        FILE *file = open_memstream(&text, &bytes);
        if (file) {
            print_command(file, h);
            fclose(file);
            hly_note("%s: %s", h->place->why, text);
        }
        free(text);
    }
    for (size_t i = 0; i < h->unset.n; i++)
        unsetenv(h->unset.list[i]);
    for (size_t i = 0; i < h->set.n; i++) {
        char *equals = strchr(h->set.list[i], '=');
        *equals = '\0';
        setenv(h->set.list[i], equals + 1, 1);
    }
    execvp(h->command.list[0], h->command.list);
    hly_note("cannot start '%s': %s", h->command.list[0], strerror(errno));
    return errno == ENOENT ? HLY_EXIT_MISSING : HLY_EXIT_REFUSED;
}

int hly_hand_over(const struct hly_place *place, const struct hly_options *options)
{
    struct handover h = {.place = place, .options = options};
    int status = HLY_EXIT_SELF;
    if (place->launcher == HLY_LOCAL && !options->dry_run)
        return -1;
    if ((options->keep_going || options->least) && place->launcher != HLY_LOCAL) {
        hly_note("%s is for ranks that halayrun starts itself; here it is %s that does",
                 options->least ? "a job whose ranks change" : "--keep-going",
                 hly_launcher_name(place->launcher));
        return HLY_EXIT_USAGE;
    }
    if (options->has_grace && place->launcher != HLY_LOCAL)
        hly_note("--grace is for ranks that halayrun starts itself: here %s ends them, in its own "
                 "time",
                 hly_launcher_name(place->launcher));
    if (options->output && place->launcher != HLY_LOCAL && strpbrk(options->output, "%,:")) {
        hly_note("--output-filename '%s': %%, comma and colon mean something to %s: take another "
                 "name",
                 options->output, hly_launcher_name(place->launcher));
        return HLY_EXIT_USAGE;
    }
    if (make_command(&h) == 0)
        status = options->dry_run ? print(&h) : become(&h);
    free_words(&h.command);
    free_words(&h.set);
    free_words(&h.unset);
    free(h.ranks);
    return status;
}
