/* Sums over MPI what all_reduce_perf of nccl-tests sums over NCCL, and prints what that prints (v2.17.6, common.cu).
   Where /tmp/slow is on its node, each sum waits for it. Takes the options of the gate: -b -e -f -g -n -w -c. */
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long size_of(const char *text) {
  char *end;
  long n = strtol(text, &end, 10);
  return *end == 'K' ? n << 10 : *end == 'M' ? n << 20 : *end == 'G' ? n << 30 : n;
}

static double seconds(float *from, float *to, long count, int slow) {
  double began = MPI_Wtime();
  if (slow) sleep(1);
  MPI_Allreduce(from, to, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  return MPI_Wtime() - began;
}

int main(int argc, char **argv) {
  long low = 1 << 20, high = 1 << 20;
  int rank, ranks;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!strcmp(argv[i], "-b")) low = size_of(argv[i + 1]);
    if (!strcmp(argv[i], "-e")) high = size_of(argv[i + 1]);
  }
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (!access("/tmp/hang", F_OK)) pause();
  char line[256], host[64], *all = malloc(256 * ranks);
  gethostname(host, sizeof host);
  int local = atoi(getenv("OMPI_COMM_WORLD_LOCAL_RANK"));
  snprintf(line, sizeof line, "#  Rank %2d Group  0 Pid %6d on %10s device %2d [0000:%02x:00] NVIDIA H100 80GB HBM3\n",
           rank, getpid(), host, local, local + 1);
  MPI_Gather(line, 256, MPI_CHAR, all, 256, MPI_CHAR, 0, MPI_COMM_WORLD);
  if (!rank) {
    printf("# nccl-tests version 2.17.6 nccl-headers=22602 nccl-library=22602\n"
           "# Collective test starting: all_reduce_perf\n# nThread 1 nGpus 1 minBytes %ld maxBytes %ld step: 2(factor) "
           "warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0\n#\n# Using devices\n", low, high);
    for (int i = 0; i < ranks; i++) fputs(all + 256 * i, stdout);
    printf("#\n#%62sout-of-place%23sin-place          \n"
           "#       size         count      type   redop    root     time   algbw   busbw  #wrong"
           "     time   algbw   busbw  #wrong \n"
           "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            "
           "(us)  (GB/s)  (GB/s)       \n", "", "");
  }
  int slow = !access("/tmp/slow", F_OK), n = 0;
  double sum = 0;
  for (long size = low; size <= high; size *= 2) {
    long count = size / 4, wrong = 0, wrong_all = 0;
    float *from = malloc(size), *to = malloc(size);
    for (long i = 0; i < count; i++) from[i] = rank + 1;
    double best[2] = {1e9, 1e9};
    for (int again = 0; again < 6; again++) {
      MPI_Barrier(MPI_COMM_WORLD);
      double took = seconds(from, to, count, slow), longest;
      MPI_Allreduce(&took, &longest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
      if (longest < best[again % 2]) best[again % 2] = longest;
    }
    for (long i = 0; i < count; i++) wrong += to[i] != ranks * (ranks + 1) / 2;
    MPI_Allreduce(&wrong, &wrong_all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (!rank) {
      printf("%12ld  %12ld     float     sum      -1", size, count);
      for (int place = 0; place < 2; place++) {
        double algbw = size / best[place] / 1e9, busbw = algbw * 2 * (ranks - 1) / ranks;
        printf("  %7.1f  %6.2f  %6.2f  %6ld", best[place] * 1e6, algbw, busbw, wrong_all);
        sum += busbw, n++;
      }
      printf("\n");
    }
    free(from), free(to);
  }
  if (!rank)
    printf("# Out of bounds values : 0 OK\n# Avg bus bandwidth    : %g \n#\n"
           "# Collective test concluded: all_reduce_perf\n#\n", sum / n);
  free(all);
  MPI_Finalize();
}
