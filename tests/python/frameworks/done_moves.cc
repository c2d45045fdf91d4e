/* SPDX-License-Identifier: Apache-2.0 */
/* bindings/tensorflow/done.c with functions as TensorFlow hands them out: on the stack of a kernel,
 * which ends them when it returns. Each is to be called once, and to end once. */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>

extern "C" {
#include "done.h"
struct hlf_abi hlf_tf;
}

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "line %d: %s\n", __LINE__, #what);                                     \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

using Function = std::function<void()>;

static int calls;

static void run(TF_AsyncOpKernelDoneCallback *at)
{
    (*reinterpret_cast<Function *>(at))();
}

static TF_AsyncOpKernelDoneCallback *as_given(void *at)
{
    return static_cast<TF_AsyncOpKernelDoneCallback *>(at);
}

__attribute__((noinline)) static int kernel(struct hlf_done *done, const Function &given)
{
    Function own = given;
    return hlf_done_take(done, as_given(&own));
}

__attribute__((noinline)) static void overwrite()
{
    volatile char stack[4096];
    memset(const_cast<char *>(stack), 0xa5, sizeof stack);
}

static void moves(const Function &given, const std::shared_ptr<int> &token)
{
    struct hlf_done done;
    long before = token.use_count();
    calls = 0;
    CHECK(kernel(&done, given) == 1 && done.moved);
    overwrite();
    CHECK(calls == 0);
    struct hlf_done copy = done; /* as a request is moved before it ends */
    copy.given = as_given(copy.words);
    hlf_done_call(&copy);
    CHECK(calls == 1 && token.use_count() == before);
}

int main()
{
    hlf_tf.RunAsyncOpKernelDoneCallback = run;
    auto token = std::make_shared<int>(0);
    moves([token] { calls++; }, token); /* what it holds is on the heap */
    int *small = &calls;
    moves([small] { ++*small; }, token); /* in its own words */

    struct hlf_done done;
    auto kept = std::make_unique<Function>([token] { calls++; });
    calls = 0;
    CHECK(hlf_done_take(&done, as_given(kept.get())) == 1 && !done.moved);
    hlf_done_call(&done);
    CHECK(calls == 1 && *kept && token.use_count() == 2); /* ours to leave alone */

    void *words[4] = {nullptr, nullptr, words, words}, *before[4];
    memcpy(before, words, sizeof before);
    CHECK(hlf_done_take(&done, as_given(words)) == 0 && !memcmp(before, words, sizeof before));
    Function none;
    CHECK(hlf_done_take(&done, as_given(&none)) == 0);
    puts("good");
    return 0;
}
