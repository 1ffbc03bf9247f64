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

// ErrImporting: the shard is being imported and takes nothing else; a command
// may be sent again when that is over.
var ErrImporting = fmt.Errorf("%w: the shard is being imported", ErrInvalid)

// ErrNotEmpty: the shard has entities, or the import of another file has begun.
// An import needs a cluster that has never held anything.
var ErrNotEmpty = fmt.Errorf("%w: the shard is not empty", ErrInvalid)

// importStage is what the import entry being judged does beside its records
// and its pairs of messages.
type importStage struct {
	state     *store.Import // nil where the entry is none, or changes nothing
	snapshots []importedSnapshot
	timers    []importedTimer
	timerDue  map[string]struct{} // keys in timers
}

// importedSnapshot is an entity's snapshot in a chunk that is judged.
type importedSnapshot struct {
	head *head
	seq  journal.Sequence
	raw  []byte
}

// importedTimer is an entity's timer in a chunk that is judged.
type importedTimer struct {
	head *head
	step timers.Step
}

func (s *importStage) reset() { *s = importStage{} }

// openImport reads from the store how far the shard's import has come.
func (sh *shard) openImport(view kv.View) error {
	sh.imported = nil
	_, err := view.Get(store.AppendPrefix(nil, sh.id, sh.generation, store.ClassImport), func(body []byte) error {
		i, err := store.DecodeImport(body)
		sh.imported = &i
		return err
	})
	return err
}

// takes refuses entries of a shard that is being imported.
func (sh *shard) takes(kind journal.EntryKind) error {
	if !sh.inImport() {
		return nil
	}
	switch kind {
	case journal.EntryImport, journal.EntryBindings, journal.EntryProof:
		return nil
	}
	return ErrImporting
}

// judgeImport looks at an import entry and stages what it does.
func (m *Machine) judgeImport(sh *shard, e *journal.Committed, body []byte) error {
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
		return fmt.Errorf("%w: the import of another file has begun", ErrNotEmpty)
	case i.Chunk < state.Next:
		return nil // it has taken effect
	case i.Chunk > state.Next || state.Complete:
		return fmt.Errorf("%w: chunk %d of an import comes in the place of %d", ErrInvalid, i.Chunk, state.Next)
	}
	state.Next++
	state.Complete = i.Last
	m.judging++
	for n, rest := uint32(0), i.Parts; len(rest) > 0; n++ {
		var kind journal.PartKind
		var data []byte
		if kind, data, rest, err = journal.NextPart(rest); err != nil {
			return err
		}
		if err := m.judgePart(sh, journal.ItemID{Index: e.Index, Ordinal: n}, kind, data); err != nil {
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

func (m *Machine) judgePart(sh *shard, at journal.ItemID, kind journal.PartKind, data []byte) error {
	switch kind {
	case journal.PartRecord:
		return m.judgeImportedRecord(sh, data)
	case journal.PartSnapshot:
		return m.judgeImportedSnapshot(sh, data)
	case journal.PartTimer:
		return m.judgeImportedTimer(sh, data)
	case journal.PartEnd:
		return m.judgeImportedEnd(sh, data)
	case journal.PartMessage, journal.PartDeadLetter:
		return m.outbox.Transfer(at, kind, data)
	case journal.PartPair, journal.PartInbox:
		return m.outbox.Number(kind, data)
	}
	return fmt.Errorf("%w: part %d", journal.ErrUnsupported, kind)
}

// importedHead returns the entity's head, and its state after the parts of the
// entry so far in judged, seq and hash.
func (m *Machine) importedHead(sh *shard, typ, id []byte) (*head, error) {
	if err := verdict.Name(typ, id, "an entity's name"); err != nil {
		return nil, err
	}
	h, err := m.head(sh, typ, id)
	if err != nil {
		return nil, err
	}
	if h.judged != m.judging {
		h.judged, h.seq, h.hash = m.judging, h.Sequence, h.Hash
	}
	return h, nil
}

func (m *Machine) judgeImportedRecord(sh *shard, data []byte) error {
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
		return fmt.Errorf("%w: a part is more than one record", ErrInvalid)
	}
	h, err := m.importedHead(sh, v.Type, v.ID)
	if err != nil {
		return err
	}
	var cut *store.Cut
	if v.Expected > 0 && h.seq == 0 && m.importedRecords(h) == 0 {
		// What came before had been cut where it was exported.
		cut = &store.Cut{Sequence: v.Expected, Hash: v.Prev}
		h.seq, h.hash = v.Expected, v.Prev
	}
	if v.Expected != h.seq {
		return fmt.Errorf("%w: it is at %d, the record expects %d", ErrSequence, h.seq, v.Expected)
	}
	if v.Prev != h.hash {
		return ErrChain
	}
	h.seq, h.hash = v.Last(), m.chain.AfterView(v.Prev, v)
	j := judgedRecord(h, v)
	j.cut = cut
	m.judged = append(m.judged, j)
	return nil
}

func (m *Machine) judgeImportedSnapshot(sh *shard, data []byte) error {
	var s journal.Snapshot
	if err := s.Decode(data); err != nil {
		return err
	}
	if len(data) > journal.MaxSnapshotBytes {
		return fmt.Errorf("%w: a snapshot has %d bytes", ErrInvalid, len(data))
	}
	h, err := m.importedHead(sh, []byte(s.Entity.Type), []byte(s.Entity.ID))
	if err != nil {
		return err
	}
	if s.Sequence > h.seq {
		return fmt.Errorf("%w: it is at %d, the snapshot at %d", ErrSequence, h.seq, s.Sequence)
	}
	m.imports.snapshots = append(m.imports.snapshots, importedSnapshot{h, s.Sequence, data})
	return nil
}

func (m *Machine) judgeImportedTimer(sh *shard, data []byte) error {
	t, err := journal.DecodePartialTimer(data)
	if err != nil {
		return err
	}
	h, err := m.importedHead(sh, []byte(t.Entity.Type), []byte(t.Entity.ID))
	if err != nil {
		return err
	}
	if bytes.IndexByte(t.Name, 0) >= 0 {
		return fmt.Errorf("%w: a timer's name cannot be a key", ErrInvalid)
	}
	step, err := m.timers.Find(h.timers(), t.Name)
	if err != nil {
		return err
	}
	s := &m.imports
	if _, again := s.timerDue[step.Key()]; again || step.Is() || m.importedRecords(h) == 0 {
		return fmt.Errorf("%w: a timer is there already, or its entity is not", ErrInvalid)
	}
	if s.timerDue == nil {
		s.timerDue = make(map[string]struct{})
	}
	s.timerDue[step.Key()] = struct{}{}
	step.Set(store.Timer{Due: t.Due, Command: t.Command, Payload: t.Payload, Schedule: t.Schedule})
	s.timers = append(s.timers, importedTimer{h, step})
	return nil
}

// judgeImportedEnd checks that an entity has come as it was.
func (m *Machine) judgeImportedEnd(sh *shard, data []byte) error {
	end, err := journal.DecodeEntityEnd(data)
	if err != nil {
		return err
	}
	h, err := m.importedHead(sh, []byte(end.Entity.Type), []byte(end.Entity.ID))
	if err != nil {
		return err
	}
	records, snapshots, set := m.importedRecords(h), h.Snapshots.Len(), h.Timers
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
		return fmt.Errorf("%w: an entity is at %d of %d with %d of %d records, %d of %d snapshots, %d of %d timers", ErrInvalid,
			h.seq, end.Sequence, records, end.Records, snapshots, end.Snapshots, set, end.Timers)
	}
	return nil
}

// importedRecords is how many records the entity has after the entry so far.
func (m *Machine) importedRecords(h *head) uint64 {
	n := h.Records
	for i := len(m.judged) - 1; i >= 0 && m.judged[i].head == h; i-- { // they follow one another
		n++
	}
	return n
}

// commitImport makes what was staged visible, after the records, and returns
// its size. The caller holds the lock.
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
		size += len(in.raw) + overlayBytes
	}
	for i := range s.timers {
		in := &s.timers[i]
		m.listDirty(in.head)
		size += m.timers.Commit(in.head.timers(), []timers.Step{in.step})
	}
	s.reset()
	return size
}

// inImport reports that the shard's timers and messages have to wait: an import
// of it goes on. The caller holds the lock.
func (sh *shard) inImport() bool { return sh.imported != nil && !sh.imported.Complete }
