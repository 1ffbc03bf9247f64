package eventlog

import (
	"bytes"
	"fmt"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog/history"
	"github.com/hostd/hostd/journal/eventlog/kv"
	"github.com/hostd/hostd/journal/eventlog/timers"
	"github.com/hostd/hostd/journal/eventlog/verdict"
	"github.com/hostd/hostd/journal/store"
)

// ErrImporting: the shard is being imported and accepts no other entries. Retry
// after the import.
var ErrImporting = fmt.Errorf("%w: the shard is being imported", ErrInvalid)

// ErrNotEmpty: the shard has entities, or an import of a different file has
// started. Imports require a cluster that has never held any data.
var ErrNotEmpty = fmt.Errorf("%w: the shard is not empty", ErrInvalid)

// importStage collects the effects of the import entry being checked, apart
// from its records and message pairs.
type importStage struct {
	state     *store.Import // nil if there is no import entry or it changes nothing
	snapshots []importedSnapshot
	timers    []importedTimer
	timerDue  map[string]struct{} // keys in timers
}

// importedSnapshot is an entity's snapshot in the chunk being checked.
type importedSnapshot struct {
	head *entityRow
	seq  journal.Sequence
	raw  []byte
}

// importedTimer is an entity's timer in the chunk being checked.
type importedTimer struct {
	head *entityRow
	step timers.Step
}

func (s *importStage) reset() { *s = importStage{} }

// openImport reads the progress of the shard's import from the store.
func (sh *shard) openImport(view kv.View) error {
	sh.imported = nil
	_, err := view.Get(store.AppendPrefix(nil, sh.id, sh.generation, store.ClassImport), func(body []byte) error {
		i, err := store.DecodeImport(body)
		sh.imported = &i
		return err
	})
	return err
}

// checkAccepts rejects entries for a shard that is being imported.
func (sh *shard) checkAccepts(kind journal.EntryKind) error {
	if !sh.isImporting() {
		return nil
	}
	switch kind {
	case journal.EntryImport, journal.EntryBindings, journal.EntryProof:
		return nil
	}
	return ErrImporting
}

// checkImport checks an import entry and stages its effects.
func (m *Machine) checkImport(sh *shard, e *journal.Committed, body []byte) error {
	i, err := journal.DecodeImport(body)
	if err != nil {
		return err
	}
	state := store.Import{ID: i.ID}
	if sh.imported != nil {
		state = *sh.imported
	} else if sh.applied.Heads > 0 || sh.outbox.Totals() != (journal.MessageTotals{}) {
		return ErrNotEmpty
	}
	switch {
	case state.ID != i.ID:
		return fmt.Errorf("%w: an import of a different file has started", ErrNotEmpty)
	case i.Chunk < state.Next:
		return nil // already applied
	case i.Chunk > state.Next || state.Complete:
		return fmt.Errorf("%w: import chunk %d is out of order, expected %d", ErrInvalid, i.Chunk, state.Next)
	}
	state.Next++
	state.Complete = i.Last
	m.checkID++
	for n, rest := uint32(0), i.Parts; len(rest) > 0; n++ {
		var kind journal.PartKind
		var data []byte
		if kind, data, rest, err = journal.NextPart(rest); err != nil {
			return err
		}
		if err := m.checkPart(sh, journal.ItemID{Index: e.Index, Ordinal: n}, kind, data); err != nil {
			return err
		}
	}
	m.imports.state = &state
	var before []byte
	if sh.imported != nil {
		before = store.AppendImport(nil, sh.imported)
	}
	m.outbox.Set(m.outbox.Key(store.ClassImport), store.AppendImport(nil, &state), before)
	return nil
}

func (m *Machine) checkPart(sh *shard, at journal.ItemID, kind journal.PartKind, data []byte) error {
	switch kind {
	case journal.PartRecord:
		return m.checkImportedRecord(sh, data)
	case journal.PartSnapshot:
		return m.checkImportedSnapshot(sh, data)
	case journal.PartTimer:
		return m.checkImportedTimer(sh, data)
	case journal.PartEnd:
		return m.checkImportedEnd(sh, data)
	case journal.PartMessage, journal.PartDeadLetter:
		return m.outbox.Transfer(at, kind, data)
	case journal.PartPair, journal.PartInbox:
		return m.outbox.Number(kind, data)
	}
	return fmt.Errorf("%w: import part of kind %d", journal.ErrUnsupported, kind)
}

// importedRow returns the entity's row. Its checkedBy, seq and hash reflect the
// parts of the entry so far.
func (m *Machine) importedRow(sh *shard, typ, id []byte) (*entityRow, error) {
	if err := verdict.CheckName(typ, id, "an entity's name"); err != nil {
		return nil, err
	}
	h, err := m.row(sh, typ, id)
	if err != nil {
		return nil, err
	}
	if h.checkedBy != m.checkID {
		h.beginCheck(m.checkID)
	}
	return h, nil
}

func (m *Machine) checkImportedRecord(sh *shard, data []byte) error {
	raw, rest, err := journal.SplitRecord(data)
	if err != nil {
		return err
	}
	v := &m.record
	if err := v.Parse(raw); err != nil {
		return err
	}
	if err := checkRecord(v, v.Term); err != nil {
		return err
	}
	if len(rest) > 0 {
		return fmt.Errorf("%w: an import part contains more than one record", ErrInvalid)
	}
	h, err := m.importedRow(sh, v.Type, v.ID)
	if err != nil {
		return err
	}
	var cut *store.Cut
	if v.Expected > 0 && h.seq == 0 && m.countImportedRecords(h) == 0 {
		// The exporting cluster had truncated the entity's earlier records.
		cut = &store.Cut{Sequence: v.Expected, Hash: v.Prev}
		h.seq, h.hash = v.Expected, v.Prev
	}
	if v.Expected != h.seq {
		return fmt.Errorf("%w: the entity is at sequence %d, the record expects %d", ErrSequence, h.seq, v.Expected)
	}
	if v.Prev != h.hash {
		return ErrChain
	}
	h.seq, h.hash = v.Last(), m.chain.AfterView(v.Prev, v)
	if err := m.checkRun(h, v); err != nil {
		return err
	}
	j := newCheckedRecord(h, v)
	j.cut = cut
	m.checked = append(m.checked, j)
	return nil
}

func (m *Machine) checkImportedSnapshot(sh *shard, data []byte) error {
	var s journal.Snapshot
	if err := s.Decode(data); err != nil {
		return err
	}
	if len(data) > journal.MaxSnapshotBytes {
		return fmt.Errorf("%w: a snapshot has %d bytes", ErrInvalid, len(data))
	}
	h, err := m.importedRow(sh, []byte(s.Entity.Type), []byte(s.Entity.ID))
	if err != nil {
		return err
	}
	if s.Sequence > h.seq {
		return fmt.Errorf("%w: the entity is at sequence %d, the snapshot at %d", ErrSequence, h.seq, s.Sequence)
	}
	m.imports.snapshots = append(m.imports.snapshots, importedSnapshot{h, s.Sequence, data})
	return nil
}

func (m *Machine) checkImportedTimer(sh *shard, data []byte) error {
	t, err := journal.DecodePartialTimer(data)
	if err != nil {
		return err
	}
	h, err := m.importedRow(sh, []byte(t.Entity.Type), []byte(t.Entity.ID))
	if err != nil {
		return err
	}
	if bytes.IndexByte(t.Name, 0) >= 0 {
		return fmt.Errorf("%w: invalid timer name", ErrInvalid)
	}
	step, err := m.timers.Find(h.timers(), t.Name)
	if err != nil {
		return err
	}
	s := &m.imports
	if _, again := s.timerDue[step.Key()]; again || step.IsSet() || m.countImportedRecords(h) == 0 {
		return fmt.Errorf("%w: the timer exists already, or its entity does not", ErrInvalid)
	}
	if s.timerDue == nil {
		s.timerDue = make(map[string]struct{})
	}
	s.timerDue[step.Key()] = struct{}{}
	step.Set(store.Timer{Due: t.Due, Command: t.Command, Payload: t.Payload, Schedule: t.Schedule})
	s.timers = append(s.timers, importedTimer{h, step})
	return nil
}

// checkImportedEnd checks that an entity was imported completely.
func (m *Machine) checkImportedEnd(sh *shard, data []byte) error {
	end, err := journal.DecodeEntityEnd(data)
	if err != nil {
		return err
	}
	h, err := m.importedRow(sh, []byte(end.Entity.Type), []byte(end.Entity.ID))
	if err != nil {
		return err
	}
	records, snapshots, set := m.countImportedRecords(h), h.Snapshots.Len(), h.Timers
	for i := range m.imports.snapshots {
		if m.imports.snapshots[i].head == h {
			snapshots++
		}
	}
	for i := range m.imports.timers {
		if m.imports.timers[i].head == h {
			set++
		}
	}
	if end.Sequence != h.seq || end.Hash != h.hash || end.Records != records || int(end.Snapshots) != snapshots || end.Timers != set {
		return fmt.Errorf("%w: incomplete entity: at sequence %d of %d, with %d of %d records, %d of %d snapshots, %d of %d timers", ErrInvalid,
			h.seq, end.Sequence, records, end.Records, snapshots, end.Snapshots, set, end.Timers)
	}
	return nil
}

// countImportedRecords returns the number of the entity's records including the
// entry so far.
func (m *Machine) countImportedRecords(h *entityRow) uint64 {
	n := h.Records
	for i := len(m.checked) - 1; i >= 0 && m.checked[i].head == h; i-- { // an entity's records are contiguous
		n++
	}
	return n
}

// commitImport makes the staged effects visible after the records, and returns
// their size. The lock must be held.
func (m *Machine) commitImport(sh *shard) (size int) {
	s := &m.imports
	if s.state == nil {
		return 0
	}
	sh.imported = s.state
	for i := range s.snapshots {
		in := &s.snapshots[i]
		m.listDirty(in.head)
		in.head.Snapshots.Add(in.seq, journal.MaxSnapshots)
		in.head.dropSnapshots(nil)
		in.head.snaps.fresh = append(in.head.snaps.fresh, history.Snapshot{Seq: in.seq, Raw: in.raw})
		size += len(in.raw) + memtableRecordBytes
	}
	for i := range s.timers {
		in := &s.timers[i]
		m.listDirty(in.head)
		size += m.timers.Commit(in.head.timers(), []timers.Step{in.step})
	}
	s.reset()
	return size
}

// isImporting reports whether an import is in progress, during which the
// shard's timers and messages wait. The lock must be held.
func (sh *shard) isImporting() bool { return sh.imported != nil && !sh.imported.Complete }
