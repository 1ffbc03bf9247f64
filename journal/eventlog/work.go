package eventlog

import (
	"fmt"

	"github.com/hostd/hostd/journal/eventlog/rows"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// Deferred work. An entry must be applied quickly, because all shards of the
// node wait meanwhile. Work that may be slow is deferred: the entity row
// records how many timers of earlier incarnations are left to remove, and up to
// which event the history is to be truncated. Each later entry of the shard,
// whatever its kind, then does a slice of this work for the first such entity
// in key order. Entity rows are identical on all replicas after each entry.
// Therefore the slices and the checksums of the rows are identical too. If a
// shard is idle, its leader writes entries that do nothing else,
// journal.EntryWork.
//
// Rejected: letting each replica remove rows in the background. The checksums
// of replicas could then not be compared, and snapshots from a slow replica
// would contain rows that others no longer have.
const (
	// One entry removes workTimers timers, plus one for each timer change in
	// the entry. So the remaining work never exceeds the highest number of
	// timers that existed at once.
	workTimers = 256
	// One entry truncates workRecords records or workBytes bytes, whichever is
	// reached first, and at least one record.
	workRecords = 256
	workBytes   = 256 << 10
)

// workOff does a slice of the deferred work for an entry with this number of
// timer changes, and reports whether any work is left.
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
	h, err := m.row(sh, []byte(e.Type), []byte(e.ID))
	if err != nil {
		return err
	}
	m.listDirty(h)
	if h.Left > 0 {
		size, err := m.timers.Sweep(h.timers(), owed, workTimers+changes, m.lockForChange)
		m.unflushed.Add(int64(size))
		return err
	}
	return m.truncate(sh, h, e)
}

func (m *Machine) lockForChange() (unlock func()) {
	m.lockLong()
	return m.unlockLong
}

// truncate truncates the next slice of an entity's records.
func (m *Machine) truncate(sh *shard, h *entityRow, id sharding.EntityID) error {
	e, err := m.entity(sh.id, id)
	if err != nil {
		return err
	}
	defer e.View.Close()
	cut, done, err := e.TruncateSlice(h.CutTo, workRecords, workBytes)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	h.applyTruncation(&cut)
	if done {
		h.CutTo = 0
		sh.rows.Owe(h.key, &h.Head)
	}
	m.unflushed.Add(memtableRecordBytes)
	return nil
}
