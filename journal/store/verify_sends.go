package store

import (
	"fmt"

	"github.com/hostd/hostd/journal"
)

// sendCounts are what a shard has of sends, as found.
type sendCounts struct {
	found  journal.SendTotals
	stated journal.SendTotals
	listed uint64 // sends, by the counts of their entities
}

func (v *verifier) sendPair(k Key, body []byte) error {
	c := &v.sends
	switch k.Class {
	case ClassOutbox:
		c.found.Sends++
		c.found.SendBytes += uint64(len(body))
		v.Sends++
		return v.outboxSend(k, body)
	case ClassLetter:
		c.found.Letters++
		c.found.LetterBytes += uint64(len(body))
		v.Letters++
		id, err := DecodeItemID(k.Rest)
		if err == nil {
			_, err = DecodeLetter(body, id)
		}
		return err
	case ClassInbox:
		_, err := DecodeCount(body)
		return err
	}
	if len(k.Rest) == 0 {
		var err error
		c.stated, err = DecodeTotals(body)
		return err
	}
	_, rest, err := SplitEntity(string(k.Rest))
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		_, err := DecodePairCount(body)
		return err
	}
	n, err := DecodeCount(body)
	c.listed += n
	return err
}

// outboxSend checks that a send's number was counted.
func (v *verifier) outboxSend(k Key, body []byte) error {
	id, err := DecodeItemID(k.Rest)
	if err != nil {
		return err
	}
	s, err := DecodeSend(body, id)
	if err != nil {
		return err
	}
	key := AppendEntityID(AppendEntityID(AppendPrefix(nil, k.Shard, k.Generation, ClassCount), s.Source), s.Destination)
	var count journal.PairCount
	_, err = v.view.Get(key, func(body []byte) (err error) {
		count, err = DecodePairCount(body)
		return err
	})
	if err == nil && (count.Last < s.Number || s.Number <= count.GivenUp) {
		v.problem(fmt.Sprintf("a send of shard %d", k.Shard), "its number is %d, %d were counted and %d given up", s.Number, count.Last, count.GivenUp)
	}
	return nil // a count that cannot be read is reported as such
}

func (v *verifier) endSends(where string) {
	if c := &v.sends; c.found != c.stated || c.listed != c.found.Sends {
		v.problem(where, "%d sends of %d bytes and %d dead letters of %d; its totals say %d, %d, %d and %d, its entities %d sends",
			c.found.Sends, c.found.SendBytes, c.found.Letters, c.found.LetterBytes,
			c.stated.Sends, c.stated.SendBytes, c.stated.Letters, c.stated.LetterBytes, c.listed)
	}
}
