// SPDX-License-Identifier: Apache-2.0
#include <halay/boot.h>
#include <halay/collectives.h>
#include <halay/device.h>
#include <halay/group.h>
#include <halay/halay.h>
#include <halay/launch.h>
#include <halay/local.h>
#include <halay/memory.h>
#include <halay/plan.h>
#include <halay/record.h>
#include <halay/request.h>
#include <halay/stats.h>
#include <halay/stream.h>
#include <halay/training.h>
#include <halay/transport.h>
#include <halay/types.h>

int main()
{
    halay_config_t config = HALAY_CONFIG_INIT;
    return config.size == sizeof(config) && halay_version() ? 0 : 1;
}
