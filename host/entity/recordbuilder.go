package entity

import (
	"encoding/binary"
	"slices"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/journal"
)

// A durable-state entity has no events of its own. A command stores the whole
// state as one event, whose type has the version of the state. So the sequence
// is the revision of the state, and hash chain, apply and replication work as
// for every entity. A load passes the last state to the guest like a snapshot.

// mostNames bounds the event types that a recordBuilder interns.
const mostNames = 4096

// recordBuilder builds one record after another in the same memory:
//
//	Begin, then Fuel, Principal, Trace, Section, Messages and Evolve, each at most once, then End
//
// The zero value is ready to use.
type recordBuilder struct {
	record  journal.Record
	chain   journal.Chain
	fuel    [8]byte
	trace   []byte
	encoded []byte
	names   map[string]string // interned event types, so that a record allocates no string
}

// Begin begins a record with the fields of head. The record may be changed
// until End, and is valid until the next Begin.
func (b *recordBuilder) Begin(head journal.Record) *journal.Record {
	head.Events, head.Sections = b.record.Events[:0], b.record.Sections[:0]
	b.record = head
	return &b.record
}

// Fuel adds the fuel that the command has spent, if any.
func (b *recordBuilder) Fuel(fuel uint64) {
	if fuel > 0 {
		binary.LittleEndian.PutUint64(b.fuel[:], fuel)
		b.Section(journal.SectionFuel, b.fuel[:])
	}
}

// Principal adds the caller of the command, if it is recorded.
func (b *recordBuilder) Principal(who []byte) {
	if len(who) > 0 {
		b.Section(journal.SectionPrincipal, who)
	}
}

// Trace adds the span of the command, if there is one.
func (b *recordBuilder) Trace(in *journal.TraceContext) {
	if in != nil {
		b.trace = journal.AppendTraceContext(b.trace[:0], in)
		b.Section(journal.SectionTrace, b.trace)
	}
}

// Section adds a section. Sections may be added in any order.
func (b *recordBuilder) Section(kind journal.SectionKind, data []byte) {
	b.record.Sections = append(b.record.Sections, journal.Section{Kind: kind, Data: data})
}

// Messages adds the messages that the guest sends, and returns about how many
// bytes they need in the outbox.
func (b *recordBuilder) Messages(made []abi.Send) (bytes int) {
	var data, tokens []byte
	for i := range made {
		o := &made[i]
		data = journal.AppendMessageOp(data, &journal.MessageOp{
			Type: o.EntityType, ID: o.EntityID, Command: o.Command, OnReply: o.OnReply, OnReject: o.OnReject, Payload: o.Payload,
		})
		if len(o.Token) > 0 {
			tokens = journal.AppendTokenOp(tokens, journal.TokenOp{Item: uint16(i), Token: o.Token})
		}
		bytes += messageBytes(o)
	}
	if len(made) > 0 {
		b.Section(journal.SectionMessages, data)
	}
	if len(tokens) > 0 {
		b.Section(journal.SectionTokens, tokens)
	}
	return bytes
}

// Evolve adds the events of an output, or its state as an event whose type is
// the string state, and a tombstone if the output deletes the entity. If the
// entity does not exist and the output has no events, the tombstone is only a
// flag.
func (b *recordBuilder) Evolve(out *abi.Output, state string, exists bool) {
	rec := &b.record
	for i := range out.Events {
		ev := &out.Events[i]
		var tags []string
		for _, t := range ev.Tags {
			tags = append(tags, string(t))
		}
		rec.Events = append(rec.Events, journal.Event{Type: b.name(ev.Type), Payload: ev.Payload, Tags: tags})
	}
	if out.HasState {
		rec.Events = append(rec.Events, journal.Event{Type: state, Payload: out.State})
	}
	if !out.Delete {
		return
	}
	rec.Flags |= journal.FlagTombstone
	if exists || len(rec.Events) > 0 {
		rec.Events = append(rec.Events, journal.Event{Type: journal.TombstoneEvent})
	}
}

// End returns the chain's hash after the record and the encoded record, which
// is valid until the next End.
func (b *recordBuilder) End() (link journal.Hash, encoded []byte) {
	if s := b.record.Sections; len(s) > 1 {
		slices.SortFunc(s, func(a, b journal.Section) int { return int(a.Kind) - int(b.Kind) })
	}
	link = b.chain.After(&b.record)
	b.encoded = journal.AppendRecord(b.encoded[:0], &b.record)
	return link, b.encoded
}

// name interns an event type.
func (b *recordBuilder) name(name []byte) string {
	if s, ok := b.names[string(name)]; ok {
		return s
	}
	if b.names == nil {
		b.names = make(map[string]string)
	}
	if len(b.names) >= mostNames {
		clear(b.names)
	}
	s := string(name)
	b.names[s] = s
	return s
}
