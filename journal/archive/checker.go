package archive

import (
	"fmt"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// checker verifies a shard's parts: the parts of an entity are contiguous, its
// records form a hash chain from the first record in the archive to the last,
// and its end part matches them.
type checker struct {
	open         bool
	entitiesDone bool // the entities are complete
	entity       sharding.EntityID
	seq          journal.Sequence
	hash         journal.Hash
	records      uint64
	snapshots    uint8
	timers       uint32

	chain journal.Chain
	view  journal.RecordView
}

func (c *checker) check(kind journal.PartKind, data []byte) error {
	e, err := journal.PartEntity(kind, data)
	if err != nil {
		return err
	}
	if err := e.Validate(); err != nil {
		return fmt.Errorf("%w: %w", journal.ErrDamaged, err)
	}
	if kind > journal.PartEnd {
		return c.checkSends(kind, data)
	}
	switch {
	case c.entitiesDone:
		return fmt.Errorf("%w: an entity part after message parts", journal.ErrDamaged)
	case !c.open:
		*c = checker{open: true, entity: e}
	case c.entity != e:
		return fmt.Errorf("%w: an entity starts before the previous one ended", journal.ErrDamaged)
	}
	switch kind {
	case journal.PartRecord:
		return c.record(data)
	case journal.PartSnapshot:
		c.snapshots++
	case journal.PartTimer:
		c.timers++
		_, err = journal.DecodePartialTimer(data)
	case journal.PartEnd:
		err = c.end(data)
	}
	return err
}

func (c *checker) record(data []byte) error {
	raw, rest, err := journal.SplitRecord(data)
	if err == nil {
		err = c.view.Parse(raw)
	}
	if err != nil {
		return err
	}
	v := &c.view
	if c.records == 0 { // earlier records may have been compacted
		c.seq, c.hash = v.Expected, v.Prev
	}
	if len(rest) > 0 || v.Expected != c.seq || v.Prev != c.hash {
		return fmt.Errorf("%w: a record does not follow the previous one", journal.ErrDamaged)
	}
	c.seq, c.hash = v.Last(), c.chain.AfterView(v.Prev, v)
	c.records++
	return nil
}

func (c *checker) end(data []byte) error {
	end, err := journal.DecodeEntityEnd(data)
	if err != nil {
		return err
	}
	if end.Sequence != c.seq || end.Hash != c.hash || end.Records != c.records || end.Snapshots != c.snapshots || end.Timers != c.timers {
		return fmt.Errorf("%w: the parts of an entity do not match its end part", journal.ErrDamaged)
	}
	c.open = false
	return nil
}

func (c *checker) checkSends(kind journal.PartKind, data []byte) (err error) {
	if c.open {
		return fmt.Errorf("%w: an entity has no end part", journal.ErrDamaged)
	}
	c.entitiesDone = true
	if kind == journal.PartPair || kind == journal.PartInbox {
		_, err = journal.DecodePartCount(data)
	} else {
		_, err = journal.DecodeTransfer(data)
	}
	return err
}
