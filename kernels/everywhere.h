/* What stands before a function of a header that hosts and devices have. */
#ifndef ZUG_KERNELS_EVERYWHERE_H
#define ZUG_KERNELS_EVERYWHERE_H

#ifdef __CUDACC__
#define ZK_EVERYWHERE static inline __host__ __device__
#else
#define ZK_EVERYWHERE static inline
#endif

#endif
