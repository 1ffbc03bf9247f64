package eventlog

import (
	"fmt"

	"github.com/hostd/hostd/journal/eventlog/rows"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// An entry must not take long to apply, since all shards of the node wait
// meanwhile. What may take long is left: the head of an entity says how many
// timers of earlier lives it has, and up to which event its records are to be
// truncated. Each entry of the shard, whatever it is, then works off a slice of
// that, of the first entity by its key. Since heads are the same on all
// replicas as of an entry, so are the slices, and the sums of rows with them. A
// leader whose shard is idle writes entries that do nothing else,
// journal.EntryWork.
//
// Not done: removing rows in the background of each replica. The sums of
// replicas could not be compared then, and a replica that is slow would keep
// rows that others do not have in snapshots of the shard.
const (
	// workTimers are removed by one entry, and as many more as it had changes of
	// timers: so what is left never becomes more than the timers there ever were
	// at once.
	workTimers = 256
	// workRecords and workBytes are truncated by one entry: until either is
	// reached, at least one record.
	workRecords = 256
	workBytes   = 256 << 10
)

// workOff works off a slice of what earlier entries have left, for an entry
// that had so many changes of timers, and reports whether anything is left.
func (m *Machine) workOff(sh *shard, changes int) (owing bool) {
	key, owed, ok := sh.rows.Owing()
	if !ok || m.failed != nil || sh.stopped != nil || sh.id == sharding.MetaShard {
		return false
	}
	if err := m.work(sh, key, owed, changes); err != nil {
		m.failStore(err)
		m.stop(sh, fmt.Errorf("index %d: %w", sh.applied.Index, err))
		return false
	}
	_, _, owing = sh.rows.Owing()
	return owing
}

func (m *Machine) work(sh *shard, key string, owed *rows.Owed, changes int) error {
	e, _, err := store.SplitEntity(key)
	if err != nil {
		return err
	}
	h, err := m.head(sh, []byte(e.Type), []byte(e.ID))
	if err != nil {
		return err
	}
	m.listDirty(h)
	if h.Left > 0 {
		size, err := m.timers.Sweep(h.timers(), owed, workTimers+changes, m.locked)
		m.unflushed.Add(int64(size))
		return err
	}
	return m.truncate(sh, h, e)
}

// locked takes the lock for a change.
func (m *Machine) locked() (unlock func()) {
	m.lockLong()
	return m.unlockLong
}

// truncate cuts the next records of an entity that are to be truncated.
func (m *Machine) truncate(sh *shard, h *head, id sharding.EntityID) error {
	e, err := m.entity(sh.id, id)
	if err != nil {
		return err
	}
	defer e.View.Close()
	cut, done, err := e.CutSlice(h.CutTo, workRecords, workBytes)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	h.takeCut(&cut)
	if done {
		h.CutTo = 0
		sh.rows.Owe(h.key, &h.Head)
	}
	m.unflushed.Add(overlayBytes)
	return nil
}
