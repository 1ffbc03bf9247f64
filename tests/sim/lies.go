package sim

import (
	"math/rand/v2"

	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/store"
)

// liars are what reads of stores that lie are drawn from. A bad block hides the
// rows that are in it, or shows what they were before: now and then a lookup
// does not find a row that is there, or finds an older one, and a scan leaves
// rows out. The state machine has to stop the shard on that node for each lie,
// and to answer nothing by it: its verdicts and what it knows of messages are
// held to the model and the ledger. The process is ended then, and the next one
// reads what was written.
type liars struct {
	rng *rand.Rand
	// often: one lookup in so many is answered by a lie, 0 for none.
	often int
	scans *rand.Rand // the same, for rows that scans leave out
}

// chooseLies draws, from a source of its own, how often a world's stores lie.
func (w *World) chooseLies() {
	r := rand.New(rand.NewPCG(w.Seed, 4))
	w.liars = liars{rng: r, scans: rand.New(rand.NewPCG(w.Seed, 6))}
	if w.messages != nil && r.IntN(6) == 0 {
		w.liars.often = []int{300, 1000, 4000}[r.IntN(3)]
	}
}

// lie answers a lookup of a row that is there with another answer, or not.
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
	// What the command of a timer is, the state machine does not know.
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

// before is what a key held before it was written last.
func (s *memStore) before(key string, version uint64) (body []byte, was bool) {
	list := s.versions[key]
	for i := len(list) - 1; i > 0; i-- {
		if list[i].version <= version {
			return list[i-1].body, list[i-1].body != nil
		}
	}
	return nil, false
}

// differs says whether two bodies of a row are not alike in what counts.
func (s *memStore) differs(k store.Key, a, b []byte) bool {
	var w store.RowHasher
	x, err := w.Any(k, a)
	if err != nil {
		return false
	}
	y, err := w.Any(k, b)
	return err == nil && x != y
}

// StrictGet implements kv.StrictView: the files themselves are whole.
func (v *memView) StrictGet(key []byte) (found bool, err error) {
	_, found = v.s.read(string(key), v.version)
	return found, nil
}

// stoppedByLie follows a shard that the machine has stopped.
func (n *node) stoppedByLie(stopped eventlog.Stopped) {
	n.w.note("stopped %d %d", n.id, stopped.Shard)
	if !n.store.lied[stopped.Shard] && !n.store.hid[stopped.Shard] {
		n.w.fail("node %d: shard %d stops, and nobody lied to it: %v", n.id, stopped.Shard, stopped.Err)
		return
	}
	n.w.count.caught++
}

// deceit ends a process whose machine found that its store lies. A lie that it
// did not find is a fault.
func (n *node) deceit() {
	if len(n.store.lied)+len(n.store.hid) == 0 || !n.up {
		return
	}
	real := n.machine.product.machine
	for _, s := range sorted(n.store.lied) {
		real.Apply(s, nil) // it takes up what reads have met
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

// hides leaves a row out of a scan of messages, or of due timers, or not. A
// scan that ends before it could notice has not read behind the row: then
// nothing need be found, and the ledger says whether all came in its order.
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
