/* SPDX-License-Identifier: Apache-2.0 */
/* options.c - halayrun's command line; the first word that is no option is the program. */
#define _GNU_SOURCE
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../common/printed.h"
#include "agent_options.h"
#include "elastic_options.h"
#include "note.h"

enum { GRACE_S = 30 };

static const char help[] =
    "Usage: halayrun -np N [options] program [arguments...]\n"
    "Starts N ranks of a program and waits for them: on this machine, or on several by handing "
    "over\n"
    "to srun (in a Slurm allocation), jsrun (in an LSF job), or prterun or mpirun (with hosts).\n"
    "\n"
    "  -np N, -n N, --num-proc N\n"
    "                       how many ranks; with hosts or in an allocation: its slots if not "
    "given\n"
    "  -H, --hosts LIST     where: host[:slots],... (one slot if not given)\n"
    "  --hostfile FILE      where: lines of \"host slots=N\"\n"
    "  --launcher NAME      who starts them: local, srun, jsrun, prterun or mpirun\n"
    "  --dry-run, --print   print the command that would be run, and do not run it\n"
    "  -l, --prefix-output  begin each line of output with \"[rank] \"\n"
    "  --prefix-timestamp   begin it with the time, too\n"
    "  --whole-lines        lines of different ranks do not mix, with nothing in front\n"
    "  --output-filename FOLDER\n"
    "                       keep what ranks print in FOLDER/rank.N/stdout and stderr, too\n"
    "  -x, --env NAME=VALUE set a variable for the ranks (again for more)\n"
    "  --bind auto|none     auto, the default: each rank to an equal share of the processors, or\n"
    "                       with twice (...) as many ranks to one in turn; none: to no processor\n"
    "  --horovod            Python programs that import horovod get Halay's\n"
    "  --mpi                programs for MPI, and mpi4py, find Halay's MPI library first\n"
    "  --keep-going         a rank that fails does not end the job (see "
    "halay_comm_shrink)\n" HLY_ELASTIC_HELP HLY_AGENT_HELP
    "  --record FOLDER      write the ranks' flight records there if the job fails\n"
    "  --timeout S          end the job after S seconds\n"
    "  --grace S            how long ranks have from a signal to halayrun to SIGKILL (30)\n"
    "  -v, --verbose        say what is started and how it ended\n"
    "  --notes-fd N         what halayrun says itself goes to this descriptor, too; the job ends\n"
    "                       with the process that has started it\n"
    "  --help, --version\n"
    "\n"
    "Rank 0 reads halayrun's standard input, the others read nothing.\n"
    "The first rank that fails ends the job: the others have 1 s to say what they saw, get "
    "SIGTERM,\n"
    "and 1 s later SIGKILL. SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on, and ranks have "
    "--grace\n"
    "seconds to end; a second one, 0.2 s later or more, ends the job at once. SIGUSR1 and SIGUSR2 "
    "are\n"
    "passed on. What nohup and the like ignore stays ignored. Processes that ranks have started\n"
    "end with the job, also if halayrun is killed, unless they left their rank's process group\n"
    "(setsid). A job that was handed over ends as its launcher ends jobs.\n"
    "\n"
    "Exit status: the first failed rank's, or 128 + the signal that ended it or halayrun; 1 what "
    "the\n"
    "ranks print could not all be written; 2 wrong usage; 124 --timeout; 125 halayrun failed; 126 "
    "the\n"
    "program cannot be run; 127 there is no such program. A job that was handed over: its "
    "launcher's.\n"
    "\n"
    "Environment: TMPDIR (where the session's folder is made, /tmp), HALAY_PLUGIN_DIR, "
    "HALAY_BIND,\n"
    "HALAY_RECORD (as --record).\n";

static int bad(const char *format, const char *text)
{
    hly_note(format, text);
    return HLY_EXIT_USAGE;
}

int hly_options_refuse(const char *option, const char *why)
{
    hly_note("%s %s", option, why);
    return HLY_EXIT_USAGE;
}

int hly_options_number(const char *text, int least, int most, int *number)
{
    char *end;
    errno = 0;
    long n = strtol(text, &end, 10);
    if (errno || end == text || *end || n < least || n > most)
        return 0;
    *number = (int)n;
    return 1;
}

static int add_env(struct hly_options *options, const char *text)
{
    const char *equals = strchr(text, '=');
    const size_t name = strcspn(text, "=");
    if (!name || strcspn(text, " \t\n\v\f\r") < name)
        return bad("-x takes NAME=VALUE, not '%s'", text);
    if (!equals && strchr(text, ','))
        return bad("-x takes NAME=VALUE, not '%s'", text);
    if (!strncmp(text, "HALAY_SECRET=", 13))
        return bad("%s", "-x HALAY_SECRET=... shows the secret to everybody on this machine (ps): "
                         "export HALAY_SECRET, and give -x HALAY_SECRET");
    if (options->nenv == HLY_ENV_MAX)
        return bad("-x %s: too many variables (256 at most)", text);
    options->env[options->nenv++] = text;
    return -1;
}

const char *hly_launcher_name(enum hly_launcher launcher)
{
    static const char *const names[HLY_LAUNCHERS] = {"any",   "local",  "srun",
                                                     "jsrun", "mpirun", "prterun"};
    return names[launcher];
}

static int copy_notes(const char *text)
{
    int fd = -1;
    if (!hly_options_number(text, 3, INT_MAX, &fd) || hly_note_copy(fd))
        return bad("--notes-fd takes the number of an open descriptor that can be written, from 3 "
                   "on, not '%s'",
                   text);
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* kept by what halayrun becomes */
    return -1;
}

static int set_launcher(struct hly_options *options, const char *name)
{
    for (enum hly_launcher i = HLY_LOCAL; i < HLY_LAUNCHERS; i++) {
        if (!strcmp(name, hly_launcher_name(i))) {
            options->launcher = i;
            return -1;
        }
    }
    return bad("--launcher must be local, srun, jsrun, prterun or mpirun, not '%s'", name);
}

static int set_bind(struct hly_options *options, const char *how, const char *name)
{
    options->bind = !strcmp(how, "auto");
    if (options->bind || !strcmp(how, "none"))
        return -1;
    hly_note("%s must be auto or none, not '%s'", name, how);
    return HLY_EXIT_USAGE;
}

static int set_seconds(int *to, const char *option, int least, const char *text)
{
    if (hly_options_number(text, least, 1000000, to))
        return -1;
    hly_note("%s must be a whole number of seconds from %d to 1000000, not '%s'", option, least,
             text);
    return HLY_EXIT_USAGE;
}

static int set_text(const char **to, const char *option, const char *text)
{
    if (*to)
        return bad("%s was given twice", option);
    *to = text;
    return -1;
}

/* A path from the folder of this program. */
static int beside(const char *relative, char path[PATH_MAX])
{
    char self[PATH_MAX], place[PATH_MAX + 64];
    ssize_t bytes = readlink("/proc/self/exe", self, sizeof self - 1);
    self[bytes > 0 ? bytes : 0] = '\0';
    char *slash = strrchr(self, '/');
    if (!slash)
        return 0;
    *slash = '\0';
    snprintf(place, sizeof place, "%s/%.60s", self, relative);
    return realpath(place, path) != NULL;
}

/* The package of a source tree, from its build folder. */
static int find_shim(char path[PATH_MAX])
{
    return beside("../../python/halay/horovod/shim", path);
}

static int is_folder(const char *folder, char path[PATH_MAX])
{
    struct stat is;
    return realpath(folder, path) && !stat(path, &is) && S_ISDIR(is.st_mode) &&
           !access(path, W_OK | X_OK);
}

/* A job does not fail for a variable that is left over. */
static void take_folder(struct hly_options *options, const char *folder)
{
    char path[PATH_MAX];
    if (is_folder(folder, path))
        options->record = folder;
    else
        hly_note("HALAY_RECORD: '%s' is no folder that can be written, so flight records will not "
                 "be kept: make it, or name another one",
                 folder);
}

/* Ranks write their own when a communicator breaks, under any launcher. */
static int ask_for_records(struct hly_options *options, const char *folder)
{
    static char assignment[PATH_MAX + 16];
    char path[PATH_MAX];
    const int status = set_text(&options->record, "--record", folder);
    if (status >= 0)
        return status;
    if (!is_folder(folder, path))
        return bad("--record: '%s' is no folder that can be written", folder);
    snprintf(assignment, sizeof assignment, "HALAY_RECORD=%s", path);
    return add_env(options, assignment);
}

/* Options of horovodrun that have no counterpart here. */
static int is_horovodruns(const char *option)
{
    static const char *const names[] = {"check-build",
                                        "disable-cache",
                                        "start-timeout",
                                        "network-interface",
                                        "config-file",
                                        "ssh-port",
                                        "ssh-identity-file",
                                        "fusion-threshold-mb",
                                        "cycle-time-ms",
                                        "cache-capacity",
                                        "hierarchical-allreduce",
                                        "hierarchical-allgather",
                                        "torus-allreduce",
                                        "autotune",
                                        "timeline-",
                                        "stall-check",
                                        "mpi",
                                        "tcp",
                                        "binding-args",
                                        "num-nccl-streams",
                                        "thread-affinity",
                                        "gloo",
                                        "log-",
                                        "jsrun"};
    option += strspn(option, "-");
    if (!strncmp(option, "no-", 3))
        option += 3;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!strncmp(option, names[i], strlen(names[i])))
            return 1;
    return 0;
}

static int no_such(const char *option)
{
    return is_horovodruns(option)
               ? bad("%s is an option of horovodrun: start with that, or python -m halay.horovod "
                     "--run, and the same words",
                     option)
               : bad("there is no option %s; see halayrun --help", option);
}

static int take(struct hly_options *options, int option, char **argv)
{
    switch (option) {
    case 'n':
        if (!hly_options_number(optarg, 1, HLY_RANKS_HANDED_MAX, &options->nranks))
            return bad("-np must be a whole number from 1 to 1024, not '%s'", optarg);
        return -1;
    case 'l':
        options->prefix = 1;
        return -1;
    case 'T':
        options->prefix = options->timestamp = 1;
        return -1;
    case 'w':
        options->lines = 1;
        return -1;
    case 'O':
        return *optarg && strlen(optarg) < PATH_MAX - 64
                   ? set_text(&options->output, "--output-filename", optarg)
                   : bad("--output-filename takes the name of a folder, not '%s'", optarg);
    case 'v':
        options->verbose = 1;
        return -1;
    case 'x':
        return add_env(options, optarg);
    case 't':
        return set_seconds(&options->timeout_s, "--timeout", 1, optarg);
    case 'g':
        return set_seconds(&options->grace_s, "--grace", 0, optarg);
    case 'H':
        return set_text(&options->hosts, "-H", optarg);
    case 'f':
        return set_text(&options->host_file, "--hostfile", optarg);
    case 'L':
        return set_launcher(options, optarg);
    case 'd':
        options->dry_run = 1;
        return -1;
    case 'b':
        return set_bind(options, optarg, "--bind");
    case 'k':
        options->keep_going = 1;
        return -1;
    case 'N':
        return copy_notes(optarg);
    case 'r':
        return ask_for_records(options, optarg);
    case 'o':
        options->horovod = 1;
        return -1;
    case 'm':
        options->mpi = 1;
        return -1;
    case 'h':
        fputs(help, stdout);
        return hly_printed("halayrun", 0, HLY_EXIT_SELF);
    case 'V':
        puts("halayrun " HALAY_VERSION);
        return hly_printed("halayrun", 0, HLY_EXIT_SELF);
    case ':':
        return bad("option %s needs a value; see halayrun --help", argv[optind - 1]);
    default:
        if (option >= HLY_AGENT_FIRST)
            return hly_agent_take(options, option);
        if (option >= HLY_ELASTIC_FIRST)
            return hly_elastic_take(options, option, argv);
        return no_such(argv[optind - 1]);
    }
}

/* What the ranks would have in this variable. */
static const char *value_for_ranks(const struct hly_options *options, const char *name)
{
    const size_t length = strlen(name);
    const char *value = getenv(name);
    for (int i = 0; i < options->nenv; i++) {
        if (!strncmp(options->env[i], name, length) && options->env[i][length] == '=')
            value = options->env[i] + length + 1;
    }
    return value ? value : "";
}

/*
 * HALAY_HOROVOD=1 is enough where the Python package is installed: a .pth file of its own looks for
 * it. From a source tree it is found by PYTHONPATH. Both reach other machines as -x does.
 */
static int ask_for_horovod(struct hly_options *options)
{
    static char assignment[2 * PATH_MAX];
    char shim[PATH_MAX];
    const char *old = value_for_ranks(options, "PYTHONPATH");
    int status = add_env(options, "HALAY_HOROVOD=1");
    if (status >= 0 || !find_shim(shim))
        return status;
    int n =
        snprintf(assignment, sizeof assignment, "PYTHONPATH=%s%s%s", shim, *old ? ":" : "", old);
    return n < (int)sizeof assignment ? add_env(options, assignment)
                                      : bad("--horovod: PYTHONPATH is too long: %s", old);
}

/* The loader finds Halay's MPI before another one, unless a program names its own by DT_RPATH. */
static int ask_for_mpi(struct hly_options *options)
{
    static char folders[2 * PATH_MAX], mpi4py[PATH_MAX + 32];
    const char *old = value_for_ranks(options, "LD_LIBRARY_PATH");
    char library[PATH_MAX];
    if (!beside("../" HALAY_LIBDIR "/halay-mpi/libmpi.so.12", library) &&
        !beside("../lib/halay-mpi/libmpi.so.12", library))
        return bad("--mpi: there is no %s beside halayrun: this Halay was built without its MPI "
                   "library, since CMake found no Python",
                   "../" HALAY_LIBDIR "/halay-mpi");
    snprintf(mpi4py, sizeof mpi4py, "MPI4PY_LIBMPI=%s", library);
    *strrchr(library, '/') = '\0';
    int n =
        snprintf(folders, sizeof folders, "LD_LIBRARY_PATH=%s%s%s", library, *old ? ":" : "", old);
    if (n >= (int)sizeof folders)
        return bad("--mpi: LD_LIBRARY_PATH is too long: %s", old);
    const int status = add_env(options, folders);
    return status >= 0 ? status : add_env(options, mpi4py);
}

int hly_options_parse(int argc, char **argv, struct hly_options *options)
{
    static const struct option names[] = {{"np", 1, 0, 'n'},
                                          {"num-proc", 1, 0, 'n'},
                                          {"prefix-output", 0, 0, 'l'},
                                          {"prefix-timestamp", 0, 0, 'T'},
                                          {"prefix-output-with-timestamp", 0, 0, 'T'},
                                          {"whole-lines", 0, 0, 'w'},
                                          {"output-filename", 1, 0, 'O'},
                                          {"timeout", 1, 0, 't'},
                                          {"grace", 1, 0, 'g'},
                                          {"env", 1, 0, 'x'},
                                          {"verbose", 0, 0, 'v'},
                                          {"help", 0, 0, 'h'},
                                          {"version", 0, 0, 'V'},
                                          {"hosts", 1, 0, 'H'},
                                          {"host", 1, 0, 'H'},
                                          {"hostfile", 1, 0, 'f'},
                                          {"launcher", 1, 0, 'L'},
                                          {"dry-run", 0, 0, 'd'},
                                          {"print", 0, 0, 'd'},
                                          {"horovod", 0, 0, 'o'},
                                          {"mpi", 0, 0, 'm'},
                                          {"bind", 1, 0, 'b'},
                                          {"record", 1, 0, 'r'},
                                          {"keep-going", 0, 0, 'k'},
                                          {"notes-fd", 1, 0, 'N'},
                                          HLY_ELASTIC_NAMES,
                                          HLY_AGENT_NAMES,
                                          {0, 0, 0, 0}};
    int option;
    const char *bind = getenv("HALAY_BIND"), *folder = getenv("HALAY_RECORD");
    memset(options, 0, sizeof *options);
    options->grace_s = -1;
    hly_elastic_default(options);
    hly_agent_default(options);
    int wrong = set_bind(options, bind && *bind ? bind : "auto", "HALAY_BIND");
    if (wrong >= 0)
        return wrong;
    opterr = 0;
    while ((option = getopt_long_only(argc, argv, "+:n:lvx:hH:", names, NULL)) != -1) {
        int taken = take(options, option, argv);
        if (taken >= 0)
            return taken;
    }
    if (!options->record && folder && *folder)
        take_folder(options, folder);
    int status = options->horovod ? ask_for_horovod(options) : -1;
    if (status < 0 && options->mpi)
        status = ask_for_mpi(options);
    if (status >= 0)
        return status;
    if (options->hosts && options->host_file)
        return bad("%s", "-H and --hostfile both say where: give one of them");
    options->has_grace = options->grace_s >= 0;
    if (!options->has_grace)
        options->grace_s = GRACE_S;
    options->command = argv + optind;
    status = hly_agent_check(options);
    if (status >= 0)
        return status;
    if (optind >= argc && (options->agents < 0 || options->nranks))
        return bad("say what to run: %s", "halayrun -np N program [arguments...]");
    return hly_elastic_check(options);
}
