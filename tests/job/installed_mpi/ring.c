/* SPDX-License-Identifier: Apache-2.0 */
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    int rank, size, token = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const int next = (rank + 1) % size, before = (rank + size - 1) % size;
    if (rank == 0)
        MPI_Send(&token, 1, MPI_INT, next, 3, MPI_COMM_WORLD);
    MPI_Recv(&token, 1, MPI_INT, before, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    token += rank + 1;
    if (rank != 0)
        MPI_Send(&token, 1, MPI_INT, next, 3, MPI_COMM_WORLD);
    if (rank == 0)
        printf("ring of %d: %d\n", size, token);
    return MPI_Finalize();
}
