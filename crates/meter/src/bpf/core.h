/* What our programs need of the kernel: the few fields read, relocated when loaded (CO-RE), and the
 * helpers called, by their numbers in uapi/linux/bpf.h. No vmlinux.h and no libbpf header, so that
 * an object depends on this folder and on clang alone. */
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed int s32;
typedef signed long long s64;

#define SEC(name) __attribute__((section(name), used))
#define CORE __attribute__((preserve_access_index))
#define inline inline __attribute__((always_inline))
/* The compiler keeps the order of loads and stores across it. */
#define barrier() asm volatile("" ::: "memory")

/* CPUs below this are known, as in libc's cpu_set_t. */
#define MAX_CPUS 1024

struct task_struct {
	int pid, tgid;
	u32 flags;
	char comm[16];
} CORE;

static u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static u32 (*bpf_get_smp_processor_id)(void) = (void *)8;

char LICENSE[] SEC("license") = "GPL";
