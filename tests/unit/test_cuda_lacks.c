/* SPDX-License-Identifier: Apache-2.0 */
/* test_cuda_lacks.c - a libcuda that lacks calls, or is too old: a GPU's memory is not taken for
 * the host's, and the words say what is missing. */
#include <stdlib.h>
#include <string.h>

#include "device/device_builtin.h"
#include "device_body.h"

extern int cuInit(unsigned flags);

static void refused(const char *version, const char *const words[2])
{
    const halay_device_ops_t *ops = &hly_device_cuda;
    halay_memory_t memory = {.size = sizeof(memory)};
    halay_device_t *device;
    char local;
    CHECK(!setenv("CUDA_LACKS_VERSION", version, 1));
    CHECK(ops->open(NULL, NULL, &device) == HALAY_OK);
    CHECK(ops->query(device, &local, 1, &memory) == HALAY_EDEVICE);
    for (int i = 0; i < 2; i++)
        CHECK(strstr(ops->why(device), words[i]));
    ops->close(device);
    struct hly_device_cuda_arg first = {.ordinal = 1};
    CHECK(ops->open(&first, NULL, &device) == HALAY_EUNSUPPORTED);
}

int main(void)
{
    CHECK(!cuInit(0)); /* so that it is linked with that library */
    refused("13000", (const char *const[2]){"lacks cuGetErrorName", "LD_LIBRARY_PATH"});
    refused("10020", (const char *const[2]){"CUDA 10.2", "it lacks cuGetErrorName"});
    return 0;
}
