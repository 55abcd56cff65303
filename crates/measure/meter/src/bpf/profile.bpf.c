/* Call chains of whatever runs when a sampling event fires. profile.rs opens the events.
 *
 * A stack is kept under a hash of its addresses. The kernel's own map for stacks (BPF_MAP_TYPE_STACK_TRACE) has one
 * place for each hash modulo its size, and what finds it taken is lost (-EEXIST): with n stacks in 16,384 places
 * each new one with probability n / 16,384. */
#include "core.h"
#include "profile.layout.h"

#define BPF_MAP_TYPE_HASH 1
#define BPF_MAP_TYPE_PERCPU_ARRAY 6
#define BPF_F_USER_STACK (1ULL << 8)
#define BPF_NOEXIST 1
#define STACKS 16384

struct {
	NUMBER(type, BPF_MAP_TYPE_HASH);
	NUMBER(max_entries, STACKS);
	TYPE(key, struct Key);
	TYPE(value, u64);
} samples SEC(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_HASH);
	NUMBER(max_entries, STACKS);
	TYPE(key, u64);
	TYPE(value, struct Stack);
} stacks SEC(".maps");

/* A stack is larger than a program's own. */
struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct Stack);
} scratch SEC(".maps");

/* The hash of the stack that is now in the map; 0: there is none. */
static inline u64 keep(void *ctx, u64 flags)
{
	u64 hash = 0;
	u32 zero = 0, frames;
	struct Stack *stack = bpf_map_lookup_elem(&scratch, &zero);
	long bytes;

	if (!stack)
		return 0;
	bytes = bpf_get_stack(ctx, stack->frames, sizeof(stack->frames), flags);
	if (bytes <= 0)
		return 0;
	frames = bytes / sizeof(u64);
	for (u32 i = 0; i < FRAMES; i++) {
		if (i < frames) {
			hash = (hash ^ stack->frames[i]) * 0x9e3779b97f4a7c15;
			hash ^= hash >> 32;
		} else {
			stack->frames[i] = 0;
		}
	}
	if (!hash)
		hash = 1;
	if (!bpf_map_lookup_elem(&stacks, &hash))
		bpf_map_update_elem(&stacks, &hash, stack, BPF_NOEXIST);
	return hash;
}

SEC("perf_event")
int sample(void *ctx)
{
	struct Key key = {};
	u64 one = 1, *count;

	key.tgid = bpf_get_current_pid_tgid() >> 32;
	bpf_get_current_comm(key.comm, sizeof(key.comm));
	key.kernel_stack = keep(ctx, 0);
	key.user_stack = keep(ctx, BPF_F_USER_STACK);
	count = bpf_map_lookup_elem(&samples, &key);
	if (count)
		__sync_fetch_and_add(count, 1);
	else
		bpf_map_update_elem(&samples, &key, &one, BPF_NOEXIST);
	return 0;
}
