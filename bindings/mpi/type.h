/* SPDX-License-Identifier: Apache-2.0 */
/*
 * type.h - what the files type*.c, pack.c and op*.c share: basic types, layouts, shapes.
 *
 * A basic type is one of MPI's named types that is not a pair. A layout says where the bytes of an
 * element are: a tree of loops and lists, whose memory is that of the description. A shape is all
 * that is known about a type except for its name and how it was made; constructors compute shapes
 * from shapes. Each type keeps two layouts: `data` merges neighbours and serves copies; `map` keeps
 * each basic type apart and serves MPI_Pack_external, MPI_Get_elements and operations. They are one
 * layout if all data are of one basic type.
 */
#ifndef HLY_MPI_TYPE_H
#define HLY_MPI_TYPE_H

#include "core.h"

/* ---------------------------------------------------------------- named types: type_basic.c */

enum hly_mpi_class { /* what MPI says of a named type: which operations take it */
                     HLY_MPI_C_INTEGER,
                     HLY_MPI_FORTRAN_INTEGER,
                     HLY_MPI_MULTI, /* MPI_AINT, MPI_COUNT, MPI_OFFSET */
                     HLY_MPI_FLOATING,
                     HLY_MPI_LOGIC,
                     HLY_MPI_COMPLEX_NUMBER,
                     HLY_MPI_BYTES,
                     HLY_MPI_TEXT, /* MPI_WCHAR: no operation */
                     HLY_MPI_PAIR
};
enum hly_mpi_format { /* of an element in memory: which machine code adds and compares it */
                      HLY_MPI_I8,
                      HLY_MPI_U8,
                      HLY_MPI_I16,
                      HLY_MPI_U16,
                      HLY_MPI_I32,
                      HLY_MPI_U32,
                      HLY_MPI_I64,
                      HLY_MPI_U64,
                      HLY_MPI_I128,
                      HLY_MPI_F16,
                      HLY_MPI_F32,
                      HLY_MPI_F64,
                      HLY_MPI_FLONG, /* long double */
                      HLY_MPI_F128,
                      HLY_MPI_C16, /* complex numbers, of two F16, F32, ... */
                      HLY_MPI_C32,
                      HLY_MPI_C64,
                      HLY_MPI_CLONG,
                      HLY_MPI_C128,
                      HLY_MPI_FORMATS
};
struct hly_mpi_named {
    uint32_t number; /* of the standard's ABI */
    uint8_t of_class, format, size, align;
    int8_t halay;          /* halay_type_t, or -1 */
    uint8_t external;      /* bytes of an element in "external32"; of a pair: 0 */
    uint32_t value, index; /* numbers of a pair's types */
    const char *name;
};
extern const struct hly_mpi_named hly_mpi_named[];
extern const int hly_mpi_named_count;
/* Places in that table. HLY_MPI_MIXED: data of several basic types; _NONE: no data. */
enum { HLY_MPI_NONE = -1, HLY_MPI_MIXED = -2 };
/* The place of the named type that this is; -1: it is none. */
int hly_mpi_type_named(const struct hly_mpi_type *type);

/* ---------------------------------------------------------------- layouts: type_layout.c */

enum hly_mpi_layout_kind { HLY_MPI_LEAF, HLY_MPI_LOOP, HLY_MPI_LIST };
struct hly_mpi_item {
    int64_t offset, start; /* in memory; in the packed form. The next item's start is the end */
    struct hly_mpi_layout *child; /* NULL: bytes one after the other, of `basic` of the list */
};
struct hly_mpi_layout {
    int32_t refs;
    int16_t kind, basic; /* basic: a place in hly_mpi_named, or HLY_MPI_MIXED */
    int32_t depth;
    int64_t size;          /* bytes of data, more than 0 */
    int64_t count, stride; /* of a loop; a list has count items, and one more that is the end */
    struct hly_mpi_layout *child;
    struct hly_mpi_item items[];
};
struct hly_mpi_piece { /* a layout at a place; NULL: no data */
    int64_t offset;
    struct hly_mpi_layout *layout;
};
/* Deeper trees are refused: functions walk them by recursion. */
#define HLY_MPI_DEPTH_MAX 1024

/* Each makes a reference, which hly_mpi_piece_drop() ends. An error: MPI_ERR_*, *made unchanged. */
int hly_mpi_piece_leaf(int basic, int64_t bytes, struct hly_mpi_piece *made);
int hly_mpi_piece_repeat(struct hly_mpi_piece piece, int64_t n, int64_t stride,
                         struct hly_mpi_piece *made);
void hly_mpi_piece_hold(struct hly_mpi_piece piece);
void hly_mpi_piece_drop(struct hly_mpi_piece *piece);
/* Collects pieces in order. merge: neighbours become one, also of different basic types. */
struct hly_mpi_listing {
    struct hly_mpi_layout *list;
    int64_t room;
    bool merge;
};
int hly_mpi_listing_add(struct hly_mpi_listing *listing, struct hly_mpi_piece piece);
int hly_mpi_listing_end(struct hly_mpi_listing *listing, struct hly_mpi_piece *made);
void hly_mpi_listing_drop(struct hly_mpi_listing *listing);

/* ---------------------------------------------------------------- shapes: type_shape.c */

struct hly_mpi_hash { /* of a sequence of basic types: its polynomial, and the base's power */
    uint64_t value, power;
};
struct hly_mpi_shape {
    int64_t size, lb, ub, true_lb, true_ub;
    int64_t basics; /* how many basic types are in an element */
    bool bounded;   /* lb and ub mean something: there is data, or a marker */
    bool marked;    /* MPI_Type_create_resized, or an array, has set the bounds */
    int align;      /* of the basic type that needs the most; 1 for none */
    int unit;       /* the named type, also a pair, of all data; NONE or MIXED */
    struct hly_mpi_hash hash;
    struct hly_mpi_piece data, map;
};
struct hly_mpi_hash hly_mpi_hash_join(struct hly_mpi_hash a, struct hly_mpi_hash b);
struct hly_mpi_hash hly_mpi_hash_repeat(struct hly_mpi_hash a, int64_t n);

/* Results are MPI_ERR_* without a text: MPI_ERR_ARG for sums beyond 64 bits, MPI_ERR_NO_MEM, and
 * MPI_ERR_TYPE for a tree that is too deep. The result is dropped by hly_mpi_shape_drop(). */
int hly_mpi_shape_named(int place, struct hly_mpi_shape *made);
int hly_mpi_shape_repeat(const struct hly_mpi_shape *shape, int64_t n, int64_t stride,
                         struct hly_mpi_shape *made);
void hly_mpi_shape_copy(const struct hly_mpi_shape *shape, struct hly_mpi_shape *copy);
int hly_mpi_shape_shift(struct hly_mpi_shape *shape, int64_t by);
void hly_mpi_shape_bound(struct hly_mpi_shape *shape, int64_t lb, int64_t ub);
void hly_mpi_shape_drop(struct hly_mpi_shape *shape);
/* One after the other: `count` of a shape, at a displacement, each. */
struct hly_mpi_sequence {
    struct hly_mpi_shape sum;
    struct hly_mpi_listing data, map;
    struct hly_mpi_shape block; /* the last `count` of `of`, kept: they often repeat */
    const struct hly_mpi_shape *of;
    int64_t count;
    bool mixed; /* of several basic types: `map` is not `data` */
};
void hly_mpi_sequence_open(struct hly_mpi_sequence *sequence, bool mixed);
int hly_mpi_sequence_add(struct hly_mpi_sequence *sequence, int64_t count, int64_t displacement,
                         const struct hly_mpi_shape *shape);
/* It ends the sequence, also after an error (rc), which it returns. */
int hly_mpi_sequence_end(struct hly_mpi_sequence *sequence, int rc, struct hly_mpi_shape *made);

/* ---------------------------------------------------------------- how a type was made: type.c */

/* The arguments of a constructor, in order, as MPI_Type_get_contents gives them: runs of numbers of
 * one sort. SIZES are int, and MPI_Count in the large forms; ADDRESSES MPI_Aint, and MPI_Count. */
enum hly_mpi_sort { HLY_MPI_INTS, HLY_MPI_SIZES, HLY_MPI_ADDRESSES };
#define HLY_MPI_RUNS_MAX 8
struct hly_mpi_made {
    int combiner;
    bool large;      /* by a large-count form: MPI_Type_..._c */
    int32_t handles; /* of the program: the attributes go with the last one */
    struct hly_mpi_shape shape;
    int nruns;
    struct {
        enum hly_mpi_sort sort;
        int64_t n;
    } runs[HLY_MPI_RUNS_MAX];
    int64_t nnumbers, ntypes;
    int64_t *numbers;
    struct hly_mpi_type **types;   /* held */
    struct hly_mpi_type *variants; /* of a named type: those of MPI_Type_create_f90_* like it */
    struct hly_mpi_type *next;     /* of the variants */
};
/* A type without numbers and types yet; NULL: no memory. It takes the shape. */
struct hly_mpi_type *hly_mpi_type_new(int combiner, struct hly_mpi_shape *shape);
/* What hly_mpi_object_release() calls for the last use of a type. */
void hly_mpi_type_end(void *object);
/* Keeps the types that it was made of; and room for n more numbers of a sort. MPI_ERR_NO_MEM. */
int hly_mpi_type_keep(struct hly_mpi_type *type, struct hly_mpi_type *const types[], int64_t n);
int hly_mpi_type_run(struct hly_mpi_type *type, enum hly_mpi_sort sort, int64_t n);
/* The end of a constructor: makes the type of a shape (which it takes) and of the arguments; or
 * reports rc, if the shape could not be made. */
struct hly_mpi_part {
    enum hly_mpi_sort sort;
    int64_t n;
    struct hly_mpi_ints from;
};
#define HLY_MPI_PART(sort, n, array) ((struct hly_mpi_part){sort, n, {array, true}})
int hly_mpi_type_finish(const char *function, int combiner, int rc, struct hly_mpi_shape *shape,
                        const struct hly_mpi_part parts[], int nparts,
                        struct hly_mpi_type *const types[], int64_t ntypes,
                        struct hly_mpi_type **newtype);
/* Says why a constructor has failed; returns mpi_class. */
int hly_mpi_type_failed(const char *function, int mpi_class);

/* Calls fn for each run of one basic type in bytes of count elements, in order; stops when it
 * returns false. pack.c. */
typedef bool hly_mpi_run_fn(void *arg, int basic, char *at, int64_t bytes);
bool hly_mpi_type_walk(const struct hly_mpi_type *type, uintptr_t buffer, int64_t count,
                       hly_mpi_run_fn *fn, void *arg);

/* Is there room for `bytes` more at *position of the `size` of a packed buffer? MPI_ERR_*. */
int hly_mpi_pack_room(const char *function, const void *packed, int64_t size, int64_t bytes,
                      const int64_t *position);

/* ---------------------------------------------------------------- arithmetic of operations */

/* op_kernels.c: dst[i] = left[i] op right[i], of packed elements of a named type. NULL: MPI does
 * not allow it, or this machine has not the type. dst may be right; addresses need no alignment. */
typedef void hly_mpi_kernel(void *dst, const void *left, const void *right, size_t count);
hly_mpi_kernel *hly_mpi_op_kernel(uint32_t op, int place);

#endif
