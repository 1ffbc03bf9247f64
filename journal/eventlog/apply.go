package eventlog

import (
	"errors"
	"fmt"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog/history"
	"github.com/hostd/hostd/journal/eventlog/verdict"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// checkedRecord is a record of the current entry that has passed the checks.
type checkedRecord struct {
	head       *entityRow
	raw        []byte
	seq        journal.Sequence
	hash       journal.Hash
	recordedAt int64
	deleted    bool
	stopped    bool
	run        store.HeadRun
	cut        *store.Cut // of an imported entity's first record
	events     bool
	steps      int // number of staged steps in m.timers, including the steps of preceding records
}

// Apply applies committed entries of a shard in order and returns a result for
// each. An entry takes effect completely or not at all. The data of the entries
// is retained until it is in the store and must never be modified.
//
// While a snapshot of the shard is being installed, Apply returns no results:
// the entries wait, and Work returns their results later.
//
// If the shard has stopped, the results wrap ErrStopped. After a failure of the
// store, the results for all shards wrap ErrStopped, and Err returns the
// failure.
func (m *Machine) Apply(id sharding.ShardID, entries []journal.Committed) []ApplyResult {
	if !m.started && m.failed == nil {
		m.failed = m.start()
	}
	m.stopSuspects()
	sh := m.shard(id)
	if in := sh.installing; in != nil {
		m.background.awaitInstall(in, entries)
		return nil
	}
	out := make([]ApplyResult, len(entries))
	for i := range entries {
		e, v := &entries[i], &out[i]
		v.Shard, v.Index, v.Term = id, e.Index, e.Term
		m.checked = m.checked[:0]
		m.timers.Reset()
		m.outbox.Begin(sh.outbox)
		before := sh.applied.Index / checksumInterval
		m.applyEntry(sh, e, v)
		v.Owing = m.workOff(sh, m.timers.Changes())
		if sh.applied.Index/checksumInterval != before {
			v.Proof = m.takeChecksum(sh)
		}
		v.Clock, v.Revision = sh.applied.Clock, sh.applied.Revision
		m.subs.Notify(id, len(m.checked), func(i int) string { return m.checked[i].head.key })
		m.evictRows()
	}
	return out
}

func (m *Machine) applyEntry(sh *shard, e *journal.Committed, v *ApplyResult) {
	if m.failed != nil {
		v.Err = &StoppedError{Shard: sh.id, Index: sh.applied.Index, Cause: m.failed}
		return
	}
	if sh.stopped != nil {
		v.Err = sh.stopped
		return
	}
	if e.Index <= sh.applied.Index {
		panic(fmt.Sprintf("eventlog: shard %d: index %d applied after %d", sh.id, e.Index, sh.applied.Index))
	}
	var stop error
	if len(e.Data) == 0 {
		v.NoOp = true
		m.commit(sh, e)
	} else {
		stop = m.applyData(sh, e, v)
	}
	if stop == nil {
		return
	}
	m.checked = m.checked[:0]
	m.outbox.Reset()
	m.imports.reset()
	v.Err = m.stop(sh, stop)
}

// applyData returns an error if this replica cannot determine the effect of the
// entry. A rejection on which all replicas agree is in the result instead.
func (m *Machine) applyData(sh *shard, e *journal.Committed, v *ApplyResult) (stop error) {
	entry, err := journal.DecodeEntry(e.Data)
	if err != nil {
		return fmt.Errorf("index %d: %w", e.Index, err)
	}
	v.Fence, v.Proposal, v.Kind = entry.Fence, entry.Proposal, entry.Kind
	switch {
	case entry.Fence != e.Term:
		v.Err = ErrFenced
	case len(e.Data) > maxEntryBytes:
		v.Err = fmt.Errorf("%w: the entry has %d bytes", ErrInvalid, len(e.Data))
	case (entry.Kind == journal.EntryMeta) != (sh.id == sharding.MetaShard):
		v.Err = fmt.Errorf("%w: entry kind %d in shard %d", ErrInvalid, entry.Kind, sh.id)
	case sh.checkAccepts(entry.Kind) != nil:
		v.Err = sh.checkAccepts(entry.Kind)
	case entry.Kind == journal.EntryImport:
		err = m.checkImport(sh, e, entry.Body)
	case entry.Kind == journal.EntryMeta:
		return m.applyMeta(sh, e, entry.Body, v)
	case entry.Kind == journal.EntryBindings:
		v.Err = m.applyBindings(sh, &entry)
	case entry.Kind == journal.EntrySnapshot:
		err = m.applySnapshot(sh, entry.Body, entry.Paced)
	case entry.Kind == journal.EntryProof:
		err = m.compareChecksum(sh, entry.Body)
	case entry.Kind == journal.EntryOutbox:
		err = m.outbox.Ops(e, entry.Body)
	case entry.Kind == journal.EntryWork:
		if len(entry.Body) != 0 {
			v.Err = fmt.Errorf("%w: a work entry has %d bytes, it must be empty", ErrInvalid, len(entry.Body))
		}
	default:
		m.checkID++
		err = m.checkRecords(sh, e, &entry)
	}
	if err != nil && !verdict.IsDefinite(err) {
		m.failStore(err)
		return fmt.Errorf("index %d: %w", e.Index, err)
	}
	if err != nil {
		v.Err = err
	}
	if v.Err != nil {
		m.checked = m.checked[:0]
		m.timers.Reset()
		m.outbox.Reset()
		m.imports.reset()
	}
	v.Messages = m.outbox.HasMessages()
	v.Imported = m.imports.state != nil && m.imports.state.Complete
	m.commit(sh, e)
	return nil
}

func (m *Machine) applyMeta(sh *shard, e *journal.Committed, body []byte, v *ApplyResult) error {
	if m.opts.Metadata == nil {
		return fmt.Errorf("index %d: %w: no metadata state machine", e.Index, journal.ErrUnsupported)
	}
	writes, result, err := m.opts.Metadata.Apply(e.Index, body)
	if err != nil {
		return fmt.Errorf("index %d: %w", e.Index, err)
	}
	v.Meta = result
	for _, w := range writes {
		m.meta = append(m.meta, w)
		m.unflushed.Add(int64(len(w.Key) + len(w.Value) + memtableRecordBytes))
		m.mu.Lock()
		m.checksums.Meta(sh.rows, w.Key, w.Value)
		m.mu.Unlock()
	}
	m.commit(sh, e)
	return nil
}

// applyBindings raises the shard's binding revision, which never decreases.
func (m *Machine) applyBindings(sh *shard, entry *journal.Entry) error {
	revision, ok := entry.BindingsRevision()
	if !ok {
		return fmt.Errorf("%w: malformed bindings of %d bytes", ErrInvalid, len(entry.Body))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	sh.applied.Revision = max(sh.applied.Revision, revision)
	return nil
}

// checkRecords checks all records of the entry and collects them in m.checked.
// It changes nothing that readers can see.
func (m *Machine) checkRecords(sh *shard, e *journal.Committed, entry *journal.Entry) error {
	body := entry.Body
	if len(body) == 0 {
		return fmt.Errorf("%w: the entry has no records", ErrInvalid)
	}
	for len(body) > 0 {
		raw, rest, err := journal.SplitRecord(body)
		if err != nil {
			return err
		}
		body = rest
		v := &m.record
		if err := v.Parse(raw); err != nil {
			return err
		}
		if err := checkRecord(v, e.Term); err != nil {
			return err
		}
		h, err := m.row(sh, v.Type, v.ID)
		if err != nil {
			return err
		}
		if h.checkedBy != m.checkID {
			h.beginCheck(m.checkID)
		}
		if v.Expected != h.seq {
			return fmt.Errorf("%w: the entity is at sequence %d, the record expects %d", ErrSequence, h.seq, v.Expected)
		}
		if v.Prev != h.hash {
			return ErrChain
		}
		h.seq, h.hash = v.Last(), m.chain.AfterView(v.Prev, v)
		before := len(m.timers.Steps())
		deleted := v.Flags&journal.FlagTombstone != 0
		if v.HasSections() {
			if err := m.timers.Record(h.timers(), v); err != nil {
				return err
			}
			if err := m.outbox.Record(v, journal.Position{Index: e.Index, Ordinal: uint32(len(m.checked))}); err != nil {
				return err
			}
		}
		if deleted {
			if err := m.timers.Delete(h.timers(), entry.Paced); err != nil {
				return err
			}
		}
		if err := m.checkRun(h, v); err != nil {
			return err
		}
		j := newCheckedRecord(h, v)
		j.steps = len(m.timers.Steps()) - before
		m.checked = append(m.checked, j)
	}
	return nil
}

// checkRun stages the run status in a record, and the run's entry in the index
// of open runs. A deletion ends the run.
func (m *Machine) checkRun(h *entityRow, v *journal.RecordView) error {
	before, data := h.run, v.Section(journal.SectionRun)
	switch {
	case v.Flags&journal.FlagTombstone != 0:
		h.run = ""
	case data != nil:
		if _, err := journal.CheckRunStatus(data); err != nil {
			return err
		}
		began := v.RecordedAt
		if before.IsOpen() {
			began = before.Began()
		}
		h.run = store.NewHeadRun(began, data)
	}
	if before.IsOpen() == h.run.IsOpen() {
		return nil
	}
	return m.outbox.Run(h.key, h.run.IsOpen(), h.run.Began())
}

// newCheckedRecord returns a record that has passed the checks. The record's
// row holds the entity's state after the record.
func newCheckedRecord(h *entityRow, v *journal.RecordView) checkedRecord {
	return checkedRecord{
		head: h, raw: v.Raw, seq: h.seq, hash: h.hash, recordedAt: v.RecordedAt, run: h.run,
		deleted: v.Flags&journal.FlagTombstone != 0, stopped: v.Flags&journal.FlagStopped != 0, events: v.EventCount > 0,
	}
}

// failStore stores an error that is not limited to the data of one shard.
func (m *Machine) failStore(err error) {
	if !errors.Is(err, journal.ErrDamaged) && !errors.Is(err, journal.ErrUnsupported) {
		m.failed = err
	}
}

// checkRecord rejects records that would not fit into a key or a value of the
// store.
func checkRecord(v *journal.RecordView, term sharding.Term) error {
	if v.Term != term {
		return fmt.Errorf("%w: a record was proposed in term %d", ErrFenced, v.Term)
	}
	if len(v.Raw) > MaxRecordBytes {
		return fmt.Errorf("%w: a record has %d bytes", ErrInvalid, len(v.Raw))
	}
	return verdict.CheckName(v.Type, v.ID, "an entity's name")
}

// commit makes the checked records visible and advances the shard's applied
// index.
func (m *Machine) commit(sh *shard, e *journal.Committed) {
	size, steps := 0, m.timers.Steps()
	fingerprints := m.opts.ClusterVersion() >= sharding.VersionFingerprints
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.checked {
		j := &m.checked[i]
		at := journal.Position{Index: e.Index, Ordinal: uint32(i)}
		r := m.appendRecord(j, at)
		size += len(j.raw) + memtableRecordBytes
		if j.events {
			if fingerprints {
				r.Fingerprint = j.hash.Fingerprint()
			}
			sh.order = append(sh.order, r)
		}
		if j.steps > 0 {
			size += m.timers.Commit(j.head.timers(), steps[:j.steps])
			steps = steps[j.steps:]
		}
		sh.countEntity(j.head, j.deleted)
		j.head.exists = true
		hd := &j.head.Head
		hd.Sequence, hd.Hash, hd.Last, hd.Deleted, hd.Stopped = j.seq, j.hash, at, j.deleted, j.stopped
		hd.UpdatedAt, hd.Run = j.recordedAt, j.run
		if j.cut != nil {
			hd.Cut = j.cut
		}
		if j.deleted && hd.Snapshots.Len() > 0 {
			j.head.dropSnapshots(append([]journal.Sequence{}, hd.Snapshots[:hd.Snapshots.Len()]...))
			hd.Snapshots = store.Snapshots{}
		}
		hd.Records++
		hd.Bytes += uint64(len(j.raw))
		sh.applied.Bytes += uint64(len(j.raw))
		sh.applied.Clock = max(sh.applied.Clock, j.recordedAt)
	}
	size += m.outbox.Commit() + m.commitImport(sh)
	sh.applied.Clock = max(sh.applied.Clock, m.outbox.Clock())
	sh.applied.Index, sh.applied.Term = e.Index, e.Term
	if !sh.moved {
		sh.moved = true
		m.moved = append(m.moved, sh)
	}
	m.unflushed.Add(int64(size))
}

// memtableRecordBytes is the memory overhead of a record in the memtable.
const memtableRecordBytes = 96

// appendRecord appends a record to its entity's part of the memtable.
func (m *Machine) appendRecord(j *checkedRecord, at journal.Position) *history.Record {
	if len(m.slab) == 0 {
		m.slab = make([]history.Record, 128)
	}
	r := &m.slab[0]
	m.slab = m.slab[1:]
	h := j.head
	r.At, r.Seq, r.Raw, r.KeyBytes = at, j.seq, j.raw, uint32(len(j.head.key))
	if h.pending == nil {
		h.pending = r
		m.listDirty(h)
	}
	if h.first == nil {
		h.first, h.base = r, h.Last
	} else {
		h.last.Next = r
	}
	h.last = r
	return r
}

// countEntity maintains the shard's numbers of entity rows and of existing
// entities.
func (sh *shard) countEntity(h *entityRow, deleted bool) {
	existed := h.exists && !h.Deleted
	if !h.exists {
		sh.applied.Heads++
	}
	if !existed && !deleted {
		sh.applied.Entities++
	}
	if existed && deleted {
		sh.applied.Entities--
	}
}
