package sim

import (
	"math/rand/v2"

	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/store"
)

// liars draws the wrong answers (lies) of stores. On a real disk, a bad block
// hides rows or returns their earlier versions. In the simulation, a lookup
// sometimes misses an existing row or returns an older version, and a scan
// omits rows. For each lie, the state machine has to stop the shard on that
// node, and must not answer requests from the wrong row. Its apply results and
// its messages are compared with the model and the ledger. The process then
// ends, and the next process reads the correct data.
type liars struct {
	rng *rand.Rand
	// often is the rate of lies: one in this many lookups is answered with a lie.
	// 0 means none.
	often int
	scans *rand.Rand // random source for the rows that scans omit
}

// chooseLies draws, from a random source of its own, how often the stores of a
// world lie.
func (w *World) chooseLies() {
	r := rand.New(rand.NewPCG(w.Seed, 4))
	w.liars = liars{rng: r, scans: rand.New(rand.NewPCG(w.Seed, 6))}
	if w.messages != nil && r.IntN(6) == 0 {
		w.liars.often = []int{300, 1000, 4000}[r.IntN(3)]
	}
}

// lie may answer a lookup of an existing row with a lie.
func (v *memView) lie(key string, body []byte) (other []byte, found, lied bool) {
	s := v.s
	l := &s.w.liars
	if l.often == 0 || s.w.healing || !s.running {
		return nil, false, false
	}
	k, err := store.ParseKey([]byte(key))
	if err != nil || l.rng.IntN(l.often) > 0 {
		return nil, false, false
	}
	if _, proven := store.SumOf(k); !proven {
		return nil, false, false
	}
	// The state machine cannot verify the command of a timer, so timers are hidden
	// but never returned in an older version.
	if k.Class != store.ClassTimer && l.rng.IntN(2) == 0 {
		if older, was := s.before(key, v.version); was && s.differs(k, older, body) {
			other, found = older, true
		}
	}
	s.w.count.lies++
	s.lied[k.Shard] = true
	s.w.note("lie %x %v", key, found)
	return other, found, true
}

// before returns the body of a key before its last write.
func (s *memStore) before(key string, version uint64) (body []byte, was bool) {
	list := s.versions[key]
	for i := len(list) - 1; i > 0; i-- {
		if list[i].version <= version {
			return list[i-1].body, list[i-1].body != nil
		}
	}
	return nil, false
}

// differs reports whether the checksums of two bodies of a row differ.
func (s *memStore) differs(k store.Key, a, b []byte) bool {
	var w store.RowHasher
	x, err := w.Any(k, a)
	if err != nil {
		return false
	}
	y, err := w.Any(k, b)
	return err == nil && x != y
}

// StrictGet implements kv.StrictView. It never lies, because the files
// themselves are undamaged.
func (v *memView) StrictGet(key []byte) (found bool, err error) {
	_, found = v.s.read(string(key), v.version)
	return found, nil
}

// stoppedByLie handles a shard that the machine has stopped.
func (n *node) stoppedByLie(stopped eventlog.Stopped) {
	n.w.note("stopped %d %d", n.id, stopped.Shard)
	if !n.store.lied[stopped.Shard] && !n.store.hid[stopped.Shard] {
		n.w.fail("node %d: shard %d stops, and nobody lied to it: %v", n.id, stopped.Shard, stopped.Err)
		return
	}
	n.w.count.caught++
}

// deceit ends a process after its store has answered with a lie. It fails the
// run if the machine did not find the lie.
func (n *node) deceit() {
	if len(n.store.lied)+len(n.store.hid) == 0 || !n.up {
		return
	}
	real := n.machine.product.machine
	for _, s := range sorted(n.store.lied) {
		real.Apply(s, nil) // handles the damage that reads have found
		if real.StopError(s) == nil {
			n.w.fail("I9: node %d: the store lied of shard %d, and was believed", n.id, s)
		}
	}
	stopped := len(n.store.lied) > 0
	for _, s := range sorted(n.store.hid) {
		real.Apply(s, nil)
		stopped = stopped || real.StopError(s) != nil
	}
	if stopped {
		n.crash(false)
	}
}

// hides reports whether a scan of messages or due timers omits a row. A scan
// that ends before the omitted row's successor cannot detect that, so the
// machine does not have to find this lie. The ledger checks that messages still
// arrive in order.
func (v *memView) hides(key string) bool {
	s := v.s
	l := &s.w.liars
	if l.often == 0 || s.w.healing || !s.running {
		return false
	}
	k, err := store.ParseKey([]byte(key))
	if err != nil || k.Class != store.ClassOutbox && k.Class != store.ClassDue || l.scans.IntN(l.often/10) > 0 {
		return false
	}
	s.w.count.hidden++
	s.hid[k.Shard] = true
	s.w.note("hide %x", key)
	return true
}
