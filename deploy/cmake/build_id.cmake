# SPDX-License-Identifier: Apache-2.0
# cmake -D ROOT=... -D VERSION=... -D OUT=... -P build_id.cmake: HLY_BUILD, the version and a hash of
# all that the ranks of a job run. Two builds whose ids differ are not let into one job.
set(hashes ${VERSION})
foreach(folder include src transports boot pmix common)
  file(GLOB_RECURSE files RELATIVE ${ROOT} ${ROOT}/${folder}/*.[ch])
  list(SORT files)
  foreach(file ${files})
    file(SHA256 ${ROOT}/${file} hash)
    list(APPEND hashes ${file} ${hash})
  endforeach()
endforeach()
string(SHA256 id "${hashes}")
string(SUBSTRING ${id} 0 8 id)
file(CONFIGURE OUTPUT ${OUT} CONTENT "#ifndef HLY_BUILD
#define HLY_BUILD \"${VERSION}+${id}\"
/* It stands in the binary as text, for whoever looks for it: not folded into the code. */
static inline const char *hly_build(void)
{
    const char *text = HLY_BUILD;
    __asm__(\"\" : \"+r\"(text));
    return text;
}
#endif
")
