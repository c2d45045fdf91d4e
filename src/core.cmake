# SPDX-License-Identifier: Apache-2.0
# In the order of the layers: each uses those above it in this list, and none below.
target_sources(halay_core PRIVATE
  base/device.c base/mutex.c base/process.c base/record.c base/stack.c base/util.c
  comm/comm.c comm/ranks.c comm/shape.c
  select/between.c select/explain.c select/select.c select/selection.c
  wire/land.c wire/match.c wire/message.c wire/news.c wire/peer.c wire/register.c wire/rendezvous.c wire/send.c wire/tags.c
  exec/call_cache.c exec/device_comm.c exec/execute.c exec/group_step.c exec/layout.c exec/plan_cache.c exec/post.c exec/record.c exec/relaxed.c exec/request.c exec/staging.c exec/work.c
  fault/survivors.c fault/call.c fault/deadlock.c fault/events.c fault/leave.c fault/stall.c fault/revoke.c fault/verdict.c
  run/call.c run/comm.c run/comm_make.c run/describe.c run/explain_run.c run/group.c run/group_library.c run/group_run.c run/message.c run/op.c run/pair.c run/persistent.c run/progress.c run/request.c run/returned.c run/waiting.c
  start/kept.c start/launcher.c start/loader.c start/settings.c start/tables.c start/transports.c
  api/check.c api/collectives.c api/comm.c api/comm_make.c api/context.c api/current.c api/local.c api/memory.c api/message.c api/pair.c api/recover.c api/scaled.c api/stream.c)
halay_has_build_id(halay_core)
target_compile_definitions(halay_core PRIVATE _GNU_SOURCE)
