# SPDX-License-Identifier: Apache-2.0
target_sources(halay_core PRIVATE
  ahead.c api.c api_move.c api_pair.c api_reduce.c api_scaled.c between.c both.c channel.c comm.c comm_make.c context.c engine.c
  series.c straight.c fault.c group.c group_call.c layout.c loader.c match.c mem.c op.c out.c peer.c persistent.c plancache.c readers.c
  progress.c request.c select.c selection.c explain.c
  explain_run.c settings.c
  shape.c util.c way.c)
target_compile_definitions(halay_core PRIVATE _GNU_SOURCE)
