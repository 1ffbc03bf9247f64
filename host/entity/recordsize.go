package entity

import (
	"errors"

	"github.com/hostd/hostd/abi"
)

// The output of a command is stored in one record, and a record in one entry
// of the log. Events, reply and messages are limited so that they always fit
// into an entry together. A durable state may be so large that it does not
// fit into the entry with them.

const (
	// maxEntryBytes is the journal's limit for an entry.
	maxEntryBytes = 1 << 20
	// room is an upper bound for the bytes of a record and of its entry, not
	// counting the guest's output.
	room = 64 << 10
)

// errRecordTooLarge means that an output does not fit into an entry.
var errRecordTooLarge = errors.New("the state, reply, messages and timers exceed the size of a record")

// recordFits reports whether the record of an output fits into an entry that
// already has entryBytes.
func recordFits(entryBytes int, out *abi.Output) bool {
	return entryBytes+outputBytes(out)+room <= maxEntryBytes
}

// outputBytes returns about how many bytes an output needs in its record.
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

// messageBytes returns about how many bytes a message needs in the outbox.
func messageBytes(s *abi.Send) int {
	return len(s.EntityType) + len(s.EntityID) + len(s.Command) + len(s.OnReply) + len(s.OnReject) + len(s.Token) + len(s.Payload) + 128
}
