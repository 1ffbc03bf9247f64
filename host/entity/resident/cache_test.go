package resident

import (
	"math/rand/v2"
	"testing"

	"github.com/hostd/hostd/sharding"
)

// member is an entity with a key and a name.
type member struct {
	key   uint32
	id    sharding.EntityID
	links Links[*member]
	seg   Segment
}

func (m *member) Key() uint32                        { return m.key }
func (m *member) ID() sharding.EntityID              { return m.id }
func (m *member) Place() (*Links[*member], *Segment) { return &m.links, &m.seg }

// lru is the policy that the cache is compared with: it evicts the least
// recently used entity.
type lru struct{ list[*member] }

func (l *lru) Add(n *member)    { l.push(n); n.seg = inWindow }
func (l *lru) Touch(n *member)  { l.take(n); l.push(n) }
func (l *lru) Remove(n *member) { l.take(n); n.seg = outside }
func (l *lru) Victim() *member  { return l.first }

type policy interface {
	Add(*member)
	Touch(*member)
	Remove(*member)
	Victim() *member
}

// trace returns a random sequence of keys, interrupted by scans of keys that
// are used only once if scan is set.
func trace(skew float64, scan bool, n int) []int {
	const keys = 100_000
	rng := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(rng, skew, 1, keys-1)
	out := make([]int, n)
	for i := range out {
		out[i] = int(zipf.Uint64())
		if scan && i/5000%4 == 3 {
			out[i] = keys + i
		}
	}
	return out
}

// hits returns the percentage of a trace whose entity is resident.
func hits(p policy, keys []int, room int) float64 {
	nodes := map[int]*member{}
	resident, hit := 0, 0
	for _, k := range keys {
		n := nodes[k]
		if n == nil {
			n = &member{key: uint32(k) * 0x9e3779b1}
			nodes[k] = n
		}
		if n.seg != outside {
			hit++
			p.Touch(n)
			continue
		}
		if resident == room {
			p.Remove(p.Victim())
			resident--
		}
		p.Add(n)
		resident++
	}
	return 100 * float64(hit) / float64(len(keys))
}

var traces = []struct {
	name string
	skew float64
	scan bool
	room int
	gain float64 // minimum lead of the cache over LRU, in percentage points
}{
	{"zipf 1.01 in 2%", 1.01, false, 2_000, 4},
	{"zipf 1.01 in 10%", 1.01, false, 10_000, 2},
	{"zipf 1.2 in 1%", 1.2, false, 1_000, 2},
	{"zipf 1.01 with scans in 5%", 1.01, true, 5_000, 4},
}

// TestCacheBeatsLRUOnSkewedTraces checks that the cache has a higher hit rate than
// LRU on skewed traces.
func TestCacheBeatsLRUOnSkewedTraces(t *testing.T) {
	for _, tt := range traces {
		keys := trace(tt.skew, tt.scan, 400_000)
		tiny, least := hits(&Cache[*member]{}, keys, tt.room), hits(&lru{}, keys, tt.room)
		t.Logf("%s: %.1f %% of requests find their entity, with LRU %.1f %%", tt.name, tiny, least)
		if tiny < least+tt.gain {
			t.Errorf("%s: %.1f %%, LRU %.1f %%", tt.name, tiny, least)
		}
	}
}

// TestCacheEvictsFormerlyPopularEntities checks that formerly popular entities are evicted.
func TestCacheEvictsFormerlyPopularEntities(t *testing.T) {
	var keys []int
	rng := rand.New(rand.NewPCG(3, 4))
	for phase := range 4 {
		for range 50_000 {
			keys = append(keys, phase*1000+rng.IntN(400))
		}
	}
	if got := hits(&Cache[*member]{}, keys, 500); got < 90 {
		t.Errorf("%.1f %% of requests find their entity when the set changes", got)
	}
}

// TestCacheListsAreConsistent checks after random operations that every entity is in
// exactly one list, and that there is a victim until the cache is empty.
func TestCacheListsAreConsistent(t *testing.T) {
	var c Cache[*member]
	rng := rand.New(rand.NewPCG(5, 6))
	nodes := make([]*member, 300)
	for i := range nodes {
		nodes[i] = &member{key: rng.Uint32()}
	}
	in := 0
	for range 20_000 {
		n := nodes[rng.IntN(len(nodes))]
		switch k := rng.IntN(10); {
		case n.seg == outside:
			c.Add(n)
			in++
		case k < 6:
			c.Touch(n)
		case k < 8:
			c.Remove(n)
			in--
		default:
			c.Remove(c.Victim())
			in--
		}
		if got := c.window.len + c.probation.len + c.protected.len; got != in || c.count != in {
			t.Fatalf("%d nodes in the lists, count %d, want %d", got, c.count, in)
		}
	}
	for ; in > 0; in-- {
		c.Remove(c.Victim())
	}
	if c.Victim() != nil {
		t.Error("a victim of an empty cache")
	}
}

// BenchmarkCache: one operation is one request of a Zipf trace; hit% is the
// percentage of requests whose entity is resident.
func BenchmarkCache(b *testing.B) {
	for _, tt := range traces {
		keys := trace(tt.skew, tt.scan, 400_000)
		for _, p := range []struct {
			name string
			make func() policy
		}{{"tinylfu", func() policy { return &Cache[*member]{} }}, {"lru", func() policy { return &lru{} }}} {
			b.Run(tt.name+"/"+p.name, func(b *testing.B) {
				var share float64
				for done := 0; done < b.N; done += len(keys) {
					share = hits(p.make(), keys[:min(b.N, len(keys))], tt.room)
				}
				b.ReportMetric(share, "hit%")
			})
		}
	}
}
