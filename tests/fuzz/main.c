/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - gives a target the files of a folder, where libFuzzer is not linked in. */
#include <dirent.h>
#include <stdio.h>

#include "fuzz.h"

static int give(const char *folder, const char *name)
{
    static uint8_t data[1 << 20];
    char path[1024];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    if (!file) {
        perror(path);
        return 1;
    }
    size_t bytes = fread(data, 1, sizeof(data), file);
    fclose(file);
    uint8_t *exact = malloc(bytes + !bytes); /* so that the address sanitizer sees its end */
    FUZZ_WANT(exact);
    memcpy(exact, data, bytes);
    LLVMFuzzerTestOneInput(exact, bytes);
    free(exact);
    return 0;
}

int main(int argc, char **argv)
{
    int n = 0, failed = 0;
    DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;
    if (!folder) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    for (struct dirent *one; (one = readdir(folder));) {
        if (one->d_name[0] == '.')
            continue;
        failed += give(argv[1], one->d_name);
        n++;
    }
    closedir(folder);
    printf("%d inputs\n", n);
    return failed || !n;
}
