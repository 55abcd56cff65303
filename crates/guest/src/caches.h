/* A model of caches, for functions.c: which level serves each fetch, load and store.
 *
 * L1 for instructions, L1 for data, one second and one last level; lines of 64 bytes, true LRU, physical addresses, a line is filled on
 * every miss. There are no write-backs, no TLB and no branch predictor. A data miss that follows its page's last missed line by one,
 * twice in a row, counts as streamed, and a fetch of the line behind the one before as following: a prefetcher would have brought them.
 *
 * Option: caches=SETS/WAYS:SETS/WAYS:SETS/WAYS:SETS/WAYS, in the order above.
 */
struct qemu_plugin_hwaddr;
#ifndef QEMU_PLUGIN_IS_INCLUDED
enum { QEMU_PLUGIN_MEM_RW = 3 };
typedef uint32_t qemu_plugin_meminfo_t;
extern void *qemu_plugin_insn_haddr(const struct qemu_plugin_insn *);
extern void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, void (*)(unsigned, void *), int, void *);
extern void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *, void (*)(unsigned, qemu_plugin_meminfo_t, uint64_t, void *), int, int, void *);
extern struct qemu_plugin_hwaddr *qemu_plugin_get_hwaddr(qemu_plugin_meminfo_t, uint64_t);
extern _Bool qemu_plugin_hwaddr_is_io(const struct qemu_plugin_hwaddr *);
extern uint64_t qemu_plugin_hwaddr_phys_addr(const struct qemu_plugin_hwaddr *);
#endif

struct cache {
    uint32_t sets;
    uint32_t ways;
    uint32_t *lines;
};
static struct cache levels[4];
static int has_caches;

/* Lines of a block by what served them: the second level, the last level, memory. */
struct misses {
    uint64_t copied; /* executed `rep movs` and `rep stos`, of eight bytes each */
    uint64_t fetched[3];
    uint64_t following[3]; /* of fetched */
    uint64_t touched[3];
    uint64_t streamed[3]; /* of touched */
};
#define MISSES_NUMBERS (sizeof(struct misses) / sizeof(uint64_t))
static struct misses *missed;

/* True if a line is there. Afterwards it is, as the last used of its set. Line numbers are stored from 1. */
static inline int has(struct cache *cache, uint32_t line)
{
    uint32_t sets = cache->sets, last = cache->ways - 1, at = 0;
    uint32_t set = sets & (sets - 1) ? line % sets : line & (sets - 1);
    uint32_t *way = cache->lines + (size_t)set * cache->ways;
    int found;
    if (*way == line + 1)
        return 1;
    while (at < last && way[at] != line + 1)
        at++;
    found = way[at] == line + 1;
    memmove(way + 1, way, at * sizeof *way);
    *way = line + 1;
    return found;
}

/* 0 for the second level, 1 for the last, 2 for memory. */
static inline int behind_first(uint32_t line)
{
    return has(&levels[2], line) ? 0 : has(&levels[3], line) ? 1 : 2;
}

/* A translated block: its lines in memory follow one another. */
struct place {
    struct misses *misses;
    uint32_t first;
    uint32_t count;
    int is_copy;
};

static void fetched(unsigned cpu, void *data)
{
    static uint32_t before;
    struct place *place = data;
    (void)cpu;
    place->misses->copied += place->is_copy;
    for (uint32_t at = 0; at < place->count; at++) {
        uint32_t line = place->first + at, follows = line - before <= 1;
        before = line;
        if (has(&levels[0], line))
            continue;
        int from = behind_first(line);
        place->misses->fetched[from]++;
        place->misses->following[from] += follows;
    }
}

/* True if a missed line goes on from the two before. */
static int is_streamed(uint32_t line)
{
    static struct { uint32_t page, line, run; } streams[32];
    static uint32_t next;
    uint32_t page = line >> 6, at;
    int goes_on = 0;
    for (int n = 0; n < 32; n++) {
        if (streams[n].page == page) {
            uint32_t step = line - streams[n].line;
            streams[n].run = step == 1 ? streams[n].run + 1 : step == 0 ? streams[n].run : 0;
            streams[n].line = line;
            return streams[n].run >= 2;
        }
        /* One that ran to its page's end goes on in the next. */
        goes_on |= streams[n].page == page - 1 && streams[n].line == line - 1 && streams[n].run >= 2;
    }
    at = next++ & 31;
    streams[at].page = page;
    streams[at].line = line;
    streams[at].run = goes_on ? 2 : 0;
    return goes_on;
}

static void touched(unsigned cpu, qemu_plugin_meminfo_t info, uint64_t address, void *data)
{
    struct qemu_plugin_hwaddr *at = qemu_plugin_get_hwaddr(info, address);
    struct misses *misses = data;
    uint32_t line;
    int from;
    (void)cpu;
    if (!at || qemu_plugin_hwaddr_is_io(at))
        return;
    line = (uint32_t)(qemu_plugin_hwaddr_phys_addr(at) >> 6);
    if (has(&levels[1], line))
        return;
    from = behind_first(line);
    misses->touched[from]++;
    misses->streamed[from] += is_streamed(line);
}

/* Physical address of a fetch: the offset in the mapping of QEMU that its host address lies in. */
static uint64_t physical(uint64_t host)
{
    static struct { uint64_t from, to; } maps[8];
    static int known;
    unsigned long long from, to;
    char line[512];
    FILE *file;
    for (int n = 0; n < known; n++)
        if (host >= maps[n].from && host < maps[n].to)
            return host - maps[n].from;
    file = fopen("/proc/self/maps", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "%llx-%llx", &from, &to) == 2 && host >= from && host < to && known < 8) {
            maps[known].from = from;
            maps[known++].to = to;
            host -= from;
            break;
        }
    if (file)
        fclose(file);
    return host;
}

/* True if an instruction repeats a move or a store of memory. */
static int repeats(const unsigned char *byte)
{
    int is_repeated = 0;
    for (; *byte == 0xf3 || *byte == 0x48 || *byte == 0x66; byte++)
        is_repeated |= *byte == 0xf3;
    return is_repeated && (*byte == 0xa4 || *byte == 0xa5 || *byte == 0xaa || *byte == 0xab);
}

/* Adds the callbacks of a translated block. Each repetition of an instruction is a block of its own. */
static void count_misses(struct qemu_plugin_tb *tb, struct misses *misses)
{
    size_t length = qemu_plugin_tb_n_insns(tb), bytes = 0;
    struct place *place = malloc(sizeof *place);
    unsigned char first[16] = { 0 };
    uint64_t at;
    if (!place)
        return;
    for (size_t n = 0; n < length; n++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, n);
        bytes += qemu_plugin_insn_size(insn);
        qemu_plugin_register_vcpu_mem_cb(insn, touched, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW, misses);
    }
    bytes_of(qemu_plugin_tb_get_insn(tb, 0), first, sizeof first - 1);
    at = physical((uint64_t)(uintptr_t)qemu_plugin_insn_haddr(qemu_plugin_tb_get_insn(tb, 0)));
    place->misses = misses;
    place->first = (uint32_t)(at >> 6);
    place->count = (uint32_t)(((at + bytes - 1) >> 6) - (at >> 6) + 1);
    place->is_copy = length == 1 && repeats(first);
    qemu_plugin_register_vcpu_tb_exec_cb(tb, fetched, QEMU_PLUGIN_CB_NO_REGS, place);
}

/* Reads the option. 0 if it is wrong or there is no memory. */
static int make_caches(const char *text)
{
    for (int n = 0; n < 4; n++) {
        int length = 0;
        struct cache *cache = &levels[n];
        if (sscanf(text, "%" SCNu32 "/%" SCNu32 "%n", &cache->sets, &cache->ways, &length) != 2 || !cache->sets || !cache->ways)
            return 0;
        text += length + (text[length] == ':');
        cache->lines = calloc((size_t)cache->sets * cache->ways, sizeof *cache->lines);
        if (!cache->lines)
            return 0;
    }
    missed = calloc(BLOCKS, sizeof *missed);
    has_caches = 1;
    return missed != NULL;
}
