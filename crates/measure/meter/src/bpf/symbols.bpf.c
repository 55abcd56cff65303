/* The address of a kernel symbol. symbols.rs runs this. */
#include "core.h"
#include "symbols.layout.h"

static long (*bpf_kallsyms_lookup_name)(const u8 *name, s32 size, s32 flags, u64 *address) = (void *)179;

/* The name ends with a 0; so does its array. The helper takes memory of the stack, not the context. */
SEC("syscall")
int symbol_address(struct Asked *asked)
{
	u8 name[NAME];
	u64 address = 0;
	long error;

	__builtin_memcpy(name, asked->name, sizeof(name));
	error = bpf_kallsyms_lookup_name(name, sizeof(name), 0, &address);
	asked->address = address;
	return error;
}
