/* SPDX-License-Identifier: Apache-2.0 */
/* info.h - halay-info: its parts. */
#ifndef HLY_INFO_H
#define HLY_INFO_H

#include <stddef.h>

enum { HLY_EXIT_USAGE = 2 };

/* The plug-ins that are expected, and those that lie beside them: found, or missing and why. */
void hly_info_plugins(void);
/* Would halay_init() take the variables as they are? 0, or HALAY_E* and its reason. */
int hly_info_check(char *reason, size_t bytes);
/* Instruction sets are tried where the variables are in order. */
void hly_info_processor(int accepted);
void hly_info_planners(void);
void hly_info_variables(void);
/* The file that a job here would use, if all its ranks had the same. */
void hly_info_calibration(void);

extern const char hly_info_plan_help[], hly_info_explain_help[], hly_info_ps_help[];

/* `halay-info plan ...`: argv[0] is "plan". Returns the exit status. */
int hly_info_plan(int argc, char **argv);
/* `halay-info explain ...`, the same. */
int hly_info_explain(int argc, char **argv);
/* `halay-info ps ...`, the same. */
int hly_info_ps(int argc, char **argv);

#endif
