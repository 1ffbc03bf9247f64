package store

import (
	"fmt"

	"github.com/hostd/hostd/journal"
)

// messageCounts counts the messages of a shard.
type messageCounts struct {
	found  journal.MessageTotals
	stated journal.MessageTotals
	listed uint64 // number of messages according to the counters of their entities
}

func (v *verifier) messagePair(k Key, body []byte) error {
	c := &v.generation.messages
	switch k.Class {
	case ClassOutbox:
		c.found.Messages++
		c.found.MessageBytes += uint64(len(body))
		v.Messages++
		return v.outboxMessage(k, body)
	case ClassDeadLetter:
		c.found.DeadLetters++
		c.found.DeadLetterBytes += uint64(len(body))
		v.DeadLetters++
		id, err := DecodeItemID(k.Suffix)
		if err == nil {
			_, err = DecodeDeadLetter(body, id)
		}
		return err
	case ClassInbox:
		_, err := DecodeCount(body)
		return err
	}
	if len(k.Suffix) == 0 {
		var err error
		c.stated, err = DecodeTotals(body)
		return err
	}
	_, rest, err := SplitEntity(string(k.Suffix))
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		_, err := DecodeChannelCounters(body)
		return err
	}
	n, err := DecodeCount(body)
	c.listed += n
	return err
}

// outboxMessage checks a message's number against the count of its channel.
func (v *verifier) outboxMessage(k Key, body []byte) error {
	id, err := DecodeItemID(k.Suffix)
	if err != nil {
		return err
	}
	s, err := DecodeMessage(body, id)
	if err != nil {
		return err
	}
	key := AppendEntityID(AppendEntityID(AppendPrefix(nil, k.Shard, k.Generation, ClassCount), s.Source), s.Destination)
	var count journal.ChannelCounters
	_, err = v.view.Get(key, func(body []byte) (err error) {
		count, err = DecodeChannelCounters(body)
		return err
	})
	if err == nil && (count.Last < s.Number || s.Number <= count.GivenUp) {
		v.problem(fmt.Sprintf("a message of shard %d", k.Shard), "its number is %d, but the channel counts %d messages, %d of them abandoned", s.Number, count.Last, count.GivenUp)
	}
	return nil // an unreadable count is reported with its own pair
}

// reportMismatches reports where the messages and their counters disagree.
func (c *messageCounts) reportMismatches(problem func(format string, args ...any)) {
	if c.found != c.stated || c.listed != c.found.Messages {
		problem("found %d messages with %d bytes and %d dead letters with %d bytes; the stored totals are %d, %d, %d and %d, and the entity rows count %d messages",
			c.found.Messages, c.found.MessageBytes, c.found.DeadLetters, c.found.DeadLetterBytes,
			c.stated.Messages, c.stated.MessageBytes, c.stated.DeadLetters, c.stated.DeadLetterBytes, c.listed)
	}
}
