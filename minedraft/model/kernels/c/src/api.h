/* What every exported function shares: visibility, dtype codes, error numbers.
 *
 * Exported functions are named md_*, take raw pointers, int64_t, float and double, and return one of
 * the error numbers below. The Python side (c/library.py) turns a number into an exception.
 */
#ifndef MD_API_H
#define MD_API_H

#include <stdint.h>

#define MD_EXPORT __attribute__((visibility("default")))

/* dtype codes, of activations and of weights as stored */
enum { MD_FLOAT32 = 0, MD_BFLOAT16 = 1 };

/* error numbers; library.py has the words */
enum { MD_OK = 0, MD_BAD_ARGUMENT = 1, MD_BAD_DTYPE = 2, MD_NO_MEMORY = 3 };

#endif
