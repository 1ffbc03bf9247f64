package eventlog

import (
	"bytes"
	"fmt"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// ErrImporting: the shard is being imported and takes nothing else; a command
// may be sent again when that is over.
var ErrImporting = fmt.Errorf("%w: the shard is being imported", ErrInvalid)

// ErrNotEmpty: the shard has entities, or the import of another file has begun.
// An import needs a cluster that has never held anything.
var ErrNotEmpty = fmt.Errorf("%w: the shard is not empty", ErrInvalid)

// importStage is what the import entry being judged does beside its records
// and its pairs of sends.
type importStage struct {
	state     *store.Import // nil where the entry is none, or changes nothing
	snapshots []importedSnapshot
	timers    []importedTimer
	timerDue  map[string]struct{} // keys in timers
}

type importedSnapshot struct {
	head *head
	seq  journal.Sequence
	raw  []byte
}

type importedTimer struct {
	head *head
	step timerStep
}

func (s *importStage) reset() { *s = importStage{} }

// openImport reads from the store how far the shard's import has come.
func (sh *shard) openImport(view View) error {
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
	if !sh.importing() {
		return nil
	}
	switch kind {
	case journal.EntryImport, journal.EntryBindings:
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
	} else if sh.applied.Heads > 0 || sh.post.totals != (journal.SendTotals{}) {
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
	m.stage(m.postKey(store.ClassImport), store.AppendImport(nil, &state), sh.imported != nil)
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
	case journal.PartSend, journal.PartLetter:
		return m.judgeTransfer(sh, at, kind, data)
	case journal.PartPair, journal.PartInbox:
		return m.judgeCount(sh, kind, data)
	}
	return fmt.Errorf("%w: part %d", journal.ErrUnsupported, kind)
}

// importedHead returns the entity's head, and its state after the parts of the
// entry so far in judged, seq and hash.
func (m *Machine) importedHead(sh *shard, typ, id []byte) (*head, error) {
	if !validName(typ, sharding.MaxEntityTypeBytes) || !validName(id, sharding.MaxEntityIDBytes) {
		return nil, fmt.Errorf("%w: an entity's name cannot be a key", ErrInvalid)
	}
	h, err := m.head(sh, typ, id)
	if err != nil {
		m.failStore(err)
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
	v := &m.view
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
	step, err := m.timerStep(sh, h, t.Name)
	if err != nil {
		return err
	}
	s := &m.imports
	if _, again := s.timerDue[step.key]; again || step.has || m.importedRecords(h) == 0 {
		return fmt.Errorf("%w: a timer is there already, or its entity is not", ErrInvalid)
	}
	if s.timerDue == nil {
		s.timerDue = make(map[string]struct{})
	}
	s.timerDue[step.key] = struct{}{}
	step.timer = store.Timer{Due: t.Due, Command: t.Command, Payload: t.Payload, Schedule: t.Schedule}
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
	records, snapshots, timers := m.importedRecords(h), h.Snapshots.Len(), h.Timers
	for i := range m.imports.snapshots {
		if m.imports.snapshots[i].head == h {
			snapshots++
		}
	}
	for i := range m.imports.timers {
		if m.imports.timers[i].head == h {
			timers++
		}
	}
	if end.Sequence != h.seq || end.Hash != h.hash || end.Records != records || int(end.Snapshots) != snapshots || end.Timers != timers {
		return fmt.Errorf("%w: an entity is at %d of %d with %d of %d records, %d of %d snapshots, %d of %d timers", ErrInvalid,
			h.seq, end.Sequence, records, end.Records, snapshots, end.Snapshots, timers, end.Timers)
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

// judgeTransfer stages a send that waits for its acknowledgement, or a dead
// letter.
func (m *Machine) judgeTransfer(sh *shard, at journal.ItemID, kind journal.PartKind, data []byte) error {
	t, err := journal.DecodeTransfer(data)
	if err != nil {
		return err
	}
	if len(t.Body) > MaxRecordBytes {
		return fmt.Errorf("%w: a send has %d bytes", ErrInvalid, len(t.Body))
	}
	totals := m.changeTotals(sh)
	if kind == journal.PartLetter {
		l, err := store.DecodeLetter(t.Body, at)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrInvalid, err) // of the file, on all replicas alike
		}
		if l.Destination != t.Entity && (l.Number != 0 || l.Source != t.Entity) {
			return fmt.Errorf("%w: a dead letter of another entity", ErrInvalid)
		}
		totals.Letters++
		totals.LetterBytes += uint64(len(t.Body))
		m.stage(store.AppendItemID(m.postKey(store.ClassLetter), at), t.Body, false)
		return nil
	}
	s, err := store.DecodeSend(t.Body, at)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if s.Source != t.Entity {
		return fmt.Errorf("%w: a send of another entity", ErrInvalid)
	}
	totals.Sends++
	totals.SendBytes += uint64(len(t.Body))
	m.stage(store.AppendItemID(m.postKey(store.ClassOutbox), at), t.Body, false)
	_, err = m.count(sh, store.AppendEntityID(m.postKey(store.ClassCount), s.Source), 1)
	return err
}

func (m *Machine) judgeCount(sh *shard, kind journal.PartKind, data []byte) error {
	c, err := journal.DecodePartCount(data)
	if err != nil {
		return err
	}
	class := store.ClassCount
	if kind == journal.PartInbox {
		class = store.ClassInbox
	}
	for _, e := range []sharding.EntityID{c.Entity, c.Other} {
		if !validName([]byte(e.Type), sharding.MaxEntityTypeBytes) || !validName([]byte(e.ID), sharding.MaxEntityIDBytes) {
			return fmt.Errorf("%w: a pair cannot be a key", ErrInvalid)
		}
	}
	key := store.AppendEntityID(store.AppendEntityID(m.postKey(class), c.Entity), c.Other)
	_, has, err := m.find(sh, key)
	if err != nil {
		return err
	}
	if has {
		return fmt.Errorf("%w: a pair is there already", ErrInvalid)
	}
	m.stage(key, store.AppendPairCount(nil, &journal.PairCount{Last: c.Number, After: c.After, GivenUp: c.GivenUp}), false)
	return nil
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
		in.head.snaps.fresh = append(in.head.snaps.fresh, appliedSnapshot{in.seq, in.raw})
		size += len(in.raw) + overlayBytes
	}
	for i := range s.timers {
		in := &s.timers[i]
		m.listDirty(in.head)
		sh.changeTimers(in.head, []timerStep{in.step})
		size += timerBytes
	}
	s.reset()
	return size
}

// importing reports that the shard's timers and sends have to wait: an import
// of it goes on. The caller holds the lock.
func (sh *shard) importing() bool { return sh.imported != nil && !sh.imported.Complete }

// Heads is how many entities the shard has, the deleted ones too.
func (m *Machine) Heads(id sharding.ShardID) uint64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if sh := m.shards[id]; sh != nil {
		return sh.applied.Heads
	}
	return 0
}

// Imported is how far the import of a shard has come; false where none has
// begun.
func (m *Machine) Imported(id sharding.ShardID) (store.Import, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if sh := m.shards[id]; sh != nil && sh.imported != nil {
		return *sh.imported, true
	}
	return store.Import{}, false
}
