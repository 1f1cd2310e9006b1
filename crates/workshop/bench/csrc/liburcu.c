/* liburcu's readers as a C program has them that may inline them: LGPL-compatible, and not position-independent. */

#define _LGPL_SOURCE
#include <urcu/urcu-memb.h>

#include <stdint.h>

void mayfly_bench_liburcu_sections(uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		urcu_memb_read_lock();
		urcu_memb_read_unlock();
	}
}

int mayfly_bench_liburcu_uses_membarrier(void)
{
	return urcu_memb_has_sys_membarrier;
}
