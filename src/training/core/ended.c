/* SPDX-License-Identifier: Apache-2.0 */
/* ended.c - ends tensors, and the trainer. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "core.h"

void hlt_tensor_end(struct hlt_core *core, struct hlt_tensor *tensor, int code, const char *text)
{
    assert(!tensor->item && !tensor->next && !tensor->prev && !tensor->text);
    tensor->code = code;
    tensor->text = code && text && !tensor->stand_in ? strdup(text) : NULL;
    if (tensor->grouped && !code)
        tensor->grouped->agreed = 1;
    hlt_tensor_list_push(&core->ended, tensor);
}

void hlt_tensor_list_end(struct hlt_core *core, struct hlt_list *list, int code, const char *text)
{
    char whole[HLT_TEXT_BYTES + HALAY_TENSOR_NAME_MAX];
    struct hlt_tensor *tensor;
    while ((tensor = hlt_tensor_list_pop(list)) != NULL) {
        tensor->item = NULL;
        snprintf(whole, sizeof(whole), "tensor '%s': %s", tensor->name, text);
        hlt_tensor_end(core, tensor, code, whole);
    }
}

void hlt_core_break(struct hlt_core *core, int code, const char *text)
{
    if (core->broken)
        return;
    core->broken = code;
    snprintf(core->broken_text, sizeof(core->broken_text), "%s", text);
}

void hlt_core_leave_all(struct hlt_core *core, int code, const char *text)
{
    if (!core->broken)
        core->farewell = HLT_FAREWELL_DATA | HLT_FAREWELL_CONTROL;
    hlt_core_break(core, code, text);
}
