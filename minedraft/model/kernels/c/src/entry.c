/* What c/library.py asks an object before it trusts it. The build (c/compile.py) defines both. */
#include "api.h"

#ifndef MD_ABI
#error "MD_ABI is set by c/compile.py: the number of these sources"
#endif

/* Also searched for in the file, so that the build need not load what it built. */
#define TEXT2(x) #x
#define TEXT(x) TEXT2(x)
static const char marker[] = "minedraft-kernels " MD_ISA " " TEXT(MD_ABI);

/* A number of the sources that the object was built of. */
MD_EXPORT uint32_t md_abi(void) { return MD_ABI; }

/* The instruction set that it needs. */
MD_EXPORT const char *md_isa(void) { return MD_ISA; }

MD_EXPORT const char *md_marker(void) { return marker; }

/* Of all that is in the object: nothing of others is, but for what the compiler itself adds. */
MD_EXPORT const char *md_licence(void) { return "SPDX-License-Identifier: Apache-2.0"; }
