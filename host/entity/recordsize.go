package entity

import (
	"errors"

	"github.com/hostd/hostd/abi"
)

// What a command stores is one record, and a record is in one entry of the
// log. Events, reply and messages are bounded so that they always fit; a
// durable state may be so large that they do not fit beside it.

const (
	// maxEntryBytes bounds an entry: the journal refuses larger ones.
	maxEntryBytes = 1 << 20
	// room is more than a record and its entry take beside what the guest has
	// put out.
	room = 64 << 10
)

// errRecordTooLarge says that an output fits into no entry.
var errRecordTooLarge = errors.New("the state, the reply, the sends and the timers together are too large to be stored")

// recordFits reports that an entry which has so many bytes has room for the record of
// an output.
func recordFits(entryBytes int, out *abi.Output) bool {
	return entryBytes+outputBytes(out)+room <= maxEntryBytes
}

// outputBytes is about what an output takes in its record.
func outputBytes(out *abi.Output) int {
	n := len(out.State) + len(out.Reply)
	for i := range out.Events {
		e := &out.Events[i]
		n += len(e.Type) + len(e.Payload)
		for _, tag := range e.Tags {
			n += len(tag)
		}
	}
	for i := range out.Sends {
		n += messageBytes(&out.Sends[i])
	}
	for i := range out.Timers {
		t := &out.Timers[i]
		n += len(t.Name) + len(t.Command) + len(t.Payload) + len(t.Expression) + len(t.Zone)
	}
	return n
}

// messageBytes is about what a message takes in the outbox.
func messageBytes(s *abi.Send) int {
	return len(s.EntityType) + len(s.EntityID) + len(s.Command) + len(s.OnReply) + len(s.OnReject) + len(s.Payload) + 128
}
