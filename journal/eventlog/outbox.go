package eventlog

import (
	"fmt"
	"slices"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// What a shard has of sends is a set of pairs: those that wait for their
// acknowledgement and dead letters by the entry that made them, numbers by the
// entities that they are counted for. Entries are judged against it through a
// stage that is thrown away when an entry is refused:
//
//	stage ─commit─▶ fresh ─TakeBatch─▶ taken ─Flushed─▶ store

// post is what a shard has of sends and is not in the store yet, and its totals.
type post struct {
	fresh, taken postLayer
	totals       journal.SendTotals
}

// postLayer is changed pairs, under their class and the rest of their key.
type postLayer struct {
	pairs map[string]postChange
	// outbox and letters are the keys of those classes in the order they were
	// made, which is theirs, with some that are gone.
	outbox, letters []string
}

// postChange is a pair as it is now; without a value it is gone.
type postChange struct {
	value []byte
	below bool // the layer below has it
}

// postStage is what the entry being judged does.
type postStage struct {
	pairs  map[string]postChange
	order  []string // of pairs, as they were touched
	totals journal.SendTotals
	moved  bool // totals differ
	clock  int64
	sends  bool // it made some
	key    []byte
	full   []byte
}

func (s *postStage) reset() {
	clear(s.pairs)
	s.order, s.moved, s.clock, s.sends = s.order[:0], false, 0, false
}

// find returns a pair as the entry being judged leaves it so far. The value is
// only lent.
func (m *Machine) find(sh *shard, key []byte) (value []byte, has bool, err error) {
	if c, ok := m.post.pairs[string(key)]; ok {
		return c.value, c.value != nil, nil
	}
	return m.findBelow(sh, key)
}

func (m *Machine) findBelow(sh *shard, key []byte) (value []byte, has bool, err error) {
	for _, layer := range [...]*postLayer{&sh.post.fresh, &sh.post.taken} {
		if c, ok := layer.pairs[string(key)]; ok {
			return c.value, c.value != nil, nil
		}
	}
	view, err := m.st.ViewAt(m.readAt)
	if err != nil {
		m.failStore(err)
		return nil, false, err
	}
	defer view.Close()
	full := append(store.AppendPrefix(m.post.full[:0], sh.id, sh.generation, store.Class(key[0])), key[1:]...)
	m.post.full = full
	has, err = view.Get(full, func(body []byte) error {
		value = append([]byte{}, body...)
		return nil
	})
	if err != nil {
		m.failStore(err)
	}
	return value, has, err
}

// stage changes a pair; a nil value takes it away. had says whether it is
// there before the change.
func (m *Machine) stage(key, value []byte, had bool) {
	s := &m.post
	c, again := s.pairs[string(key)]
	if !again {
		if s.pairs == nil {
			s.pairs = make(map[string]postChange)
		}
		c.below = had
		s.order = append(s.order, string(key))
	}
	c.value = value
	s.pairs[string(key)] = c
}

// count changes a counter by delta and returns what it was before; at 0 it is
// taken away.
func (m *Machine) count(sh *shard, key []byte, delta int64) (before uint64, err error) {
	value, has, err := m.find(sh, key)
	if err != nil {
		return 0, err
	}
	if has {
		if before, err = store.DecodeCount(value); err != nil {
			return 0, err
		}
	}
	after := before + uint64(delta)
	if after == 0 {
		m.stage(key, nil, has)
		return before, nil
	}
	m.stage(key, store.AppendCount(make([]byte, 0, 8), after), has)
	return before, nil
}

// changeTotals returns the shard's totals, to be changed.
func (m *Machine) changeTotals(sh *shard) *journal.SendTotals {
	if s := &m.post; !s.moved {
		s.totals, s.moved = sh.post.totals, true
	}
	return &m.post.totals
}

func (m *Machine) postKey(class store.Class) []byte {
	m.post.key = append(m.post.key[:0], byte(class))
	return m.post.key
}

// judgeSends checks what a record says about sends and stages the changes.
func (m *Machine) judgeSends(sh *shard, v *journal.RecordView, at journal.Position) error {
	if err := m.judgeSource(sh, v, at); err != nil {
		return err
	}
	item := uint16(0)
	for ops := v.Section(journal.SectionSends); len(ops) > 0; item++ {
		op, rest, err := journal.NextSendOp(ops)
		if err != nil {
			return err
		}
		ops = rest
		if item == journal.MaxSends || !validName(op.Type, sharding.MaxEntityTypeBytes) || !validName(op.ID, sharding.MaxEntityIDBytes) {
			return fmt.Errorf("%w: a send cannot be stored", ErrInvalid)
		}
		id := journal.ItemID{Index: at.Index, Ordinal: at.Ordinal, Item: item}
		if err := m.addSend(sh, v.Entity(), &op, v.RecordedAt, id); err != nil {
			return err
		}
	}
	return nil
}

// addSend gives a send its number and puts it into the outbox.
func (m *Machine) addSend(sh *shard, source sharding.EntityID, op *journal.SendOp, now int64, id journal.ItemID) error {
	to := sharding.EntityID{Type: string(op.Type), ID: string(op.ID)}
	pair, err := m.changePair(sh, source, to, func(c *journal.PairCount) { c.Last++ })
	if err != nil {
		return err
	}
	if _, err = m.count(sh, store.AppendEntityID(m.postKey(store.ClassCount), source), 1); err != nil {
		return err
	}
	body := store.AppendSend(nil, &journal.Send{
		Source: source, Destination: to, Number: pair.Last, At: now,
		Command: string(op.Command), OnReply: string(op.OnReply), OnReject: string(op.OnReject), Payload: op.Payload,
	})
	if len(body) > MaxRecordBytes {
		return fmt.Errorf("%w: a send has %d bytes", ErrInvalid, len(body))
	}
	m.stage(store.AppendItemID(m.postKey(store.ClassOutbox), id), body, false)
	t := m.changeTotals(sh)
	t.Sends++
	t.SendBytes += uint64(len(body))
	m.post.sends = true
	return nil
}

// changePair changes what is counted for a pair.
func (m *Machine) changePair(sh *shard, source, to sharding.EntityID, change func(*journal.PairCount)) (c journal.PairCount, err error) {
	key := store.AppendEntityID(store.AppendEntityID(m.postKey(store.ClassCount), source), to)
	value, has, err := m.find(sh, key)
	if err == nil && has {
		c, err = store.DecodePairCount(value)
	}
	if err != nil {
		return c, err
	}
	change(&c)
	m.stage(key, store.AppendPairCount(make([]byte, 0, 8), &c), has)
	return c, nil
}

// acknowledge takes a send out of the outbox and returns it, nil if it is not
// there any more.
func (m *Machine) acknowledge(sh *shard, id journal.ItemID) (*journal.Send, error) {
	key := store.AppendItemID(m.postKey(store.ClassOutbox), id)
	body, has, err := m.find(sh, key)
	if err != nil || !has {
		return nil, err
	}
	s, err := store.DecodeSend(body, id)
	if err != nil {
		return nil, err
	}
	m.stage(key, nil, true)
	t := m.changeTotals(sh)
	t.Sends--
	t.SendBytes -= uint64(len(body))
	_, err = m.count(sh, store.AppendEntityID(m.postKey(store.ClassCount), s.Source), -1)
	return &s, err
}

// judgePost checks an entry of steps and stages them.
func (m *Machine) judgePost(sh *shard, e *journal.Committed, body []byte) error {
	for n := uint32(0); len(body) > 0; n++ {
		p, rest, err := journal.NextPost(body)
		if err != nil {
			return err
		}
		body = rest
		switch p.Kind {
		case journal.PostAcknowledged:
			_, err = m.acknowledge(sh, p.ID)
		case journal.PostDiscarded:
			_, err = m.removeLetter(sh, p.ID)
		case journal.PostGivenUp:
			err = m.giveUp(sh, &p, journal.ItemID{Index: e.Index, Ordinal: n})
		case journal.PostSentAgain:
			err = m.sendAgain(sh, &p, e, n)
		default:
			err = m.refuse(sh, &p, journal.ItemID{Index: e.Index, Ordinal: n})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// commitPost makes what was staged visible and returns its size. The caller
// holds the lock.
func (m *Machine) commitPost(sh *shard) (bytes int) {
	s := &m.post
	if len(s.order) == 0 {
		return 0
	}
	if s.moved {
		m.stage(m.postKey(store.ClassCount), store.AppendTotals(nil, &s.totals), true)
		sh.post.totals = s.totals
	}
	fresh := &sh.post.fresh
	if fresh.pairs == nil {
		fresh.pairs = make(map[string]postChange)
	}
	for _, key := range s.order {
		c := s.pairs[key]
		old, again := fresh.pairs[key]
		if again {
			c.below = old.below
		}
		if c.value == nil && !c.below {
			delete(fresh.pairs, key)
			continue
		}
		fresh.pairs[key] = c
		bytes += len(key) + len(c.value) + overlayBytes
		if c.value == nil || again {
			continue
		}
		switch store.Class(key[0]) {
		case store.ClassOutbox:
			fresh.outbox = append(fresh.outbox, key)
		case store.ClassLetter:
			fresh.letters = append(fresh.letters, key)
		}
	}
	sh.applied.Clock = max(sh.applied.Clock, s.clock)
	return bytes
}

func (p *post) take() map[string]postChange {
	p.taken, p.fresh = p.fresh, postLayer{}
	return p.taken.pairs
}

// putPost writes the pairs of a shard that have changed.
func (b *Batch) putPost(w *shardWrite) {
	keys := b.keys[:0]
	for key := range w.post {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		c := w.post[key]
		full := append(b.prefix(w.shard, store.Class(key[0])), key[1:]...)
		if c.value == nil {
			b.kvs.Delete(full)
		} else {
			b.kvs.Put(full, c.value)
		}
	}
	b.keys = keys
}

// openPost reads a shard's totals from the store.
func (sh *shard) openPost(view View) error {
	_, err := view.Get(store.AppendPrefix(nil, sh.id, sh.generation, store.ClassCount), func(body []byte) (err error) {
		sh.post.totals, err = store.DecodeTotals(body)
		return err
	})
	return err
}
