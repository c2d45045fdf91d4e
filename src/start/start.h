/* SPDX-License-Identifier: Apache-2.0 */
/* start.h - what a process has for its job: settings, transports, plug-ins. */
#ifndef HLY_START_H
#define HLY_START_H

#include "start/launcher.h"
#include "wire/endpoint.h"

/* ---------------------------------------------------------------- settings.c, loader.c */

int hly_settings_read(struct hly_settings *settings, const halay_config_t *config, char *error,
                      size_t error_bytes);
void hly_settings_show(halay_context_t *context);
/* Loads a plug-in and finds its table. kind: "transport" or "boot". Why not goes to error. */
int hly_plugin_load(halay_context_t *context, const char *kind, const char *name,
                    const char *symbol_prefix, const void **table, char *error, size_t error_bytes);
/* launcher.c over this process's environment. */
struct hly_launcher hly_launcher_here(void);
const char *hly_launcher_denies_here(int nranks, int *most);

/* ---------------------------------------------------------------- tables.c */

/* HALAY_EINVAL: a table of the program's lacks a member; `why` names it. */
int hly_tables_check(const halay_config_t *config, char *why, size_t why_bytes);

/* ---------------------------------------------------------------- kept.c */

/* Before the ranks meet, unless the program or a variable chooses algorithms; and after. */
void hly_kept_read(halay_context_t *context);
void hly_kept_agree(halay_context_t *context);

/* ---------------------------------------------------------------- transports.c */

int hly_transports_open(halay_context_t *context, const halay_config_t *config, char *why,
                        size_t why_bytes);
void hly_transports_close(halay_context_t *context);
void hly_transports_text(const halay_context_t *context, char *text, size_t bytes);

#endif
