package entity

import (
	"encoding/binary"
	"slices"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/journal"
)

// A durable-state entity has no events of its own: what a command stores is
// the whole state, as one event whose type names the state's version, so that
// the sequence is the state's revision, and the chain, apply and replication
// are those of every entity. A load hands the last one to the guest as it does
// a snapshot.

// mostNames bounds the event types that a Builder knows.
const mostNames = 4096

// recordBuilder makes one record after the other in the same memory:
//
//	Begin, then Fuel, Principal, Trace, Section, Messages and Evolve, each at most once, then End
//
// The zero Builder is ready.
type recordBuilder struct {
	record  journal.Record
	chain   journal.Chain
	fuel    [8]byte
	trace   []byte
	encoded []byte
	names   map[string]string // event types, so that a record costs no string
}

// Begin begins a record with what is known of it before its events and
// sections. It can be added to until End, and is valid until the next Begin.
func (b *recordBuilder) Begin(head journal.Record) *journal.Record {
	head.Events, head.Sections = b.record.Events[:0], b.record.Sections[:0]
	b.record = head
	return &b.record
}

// Fuel notes what the command has cost, if anything.
func (b *recordBuilder) Fuel(fuel uint64) {
	if fuel > 0 {
		binary.LittleEndian.PutUint64(b.fuel[:], fuel)
		b.Section(journal.SectionFuel, b.fuel[:])
	}
}

// Principal notes who made the command, if anybody.
func (b *recordBuilder) Principal(who []byte) {
	if len(who) > 0 {
		b.Section(journal.SectionPrincipal, who)
	}
}

// Trace notes the span in which the command is carried out, if any.
func (b *recordBuilder) Trace(in *journal.TraceContext) {
	if in != nil {
		b.trace = journal.AppendTraceContext(b.trace[:0], in)
		b.Section(journal.SectionTrace, b.trace)
	}
}

// Section adds a section. Sections may come in any order.
func (b *recordBuilder) Section(kind journal.SectionKind, data []byte) {
	b.record.Sections = append(b.record.Sections, journal.Section{Kind: kind, Data: data})
}

// Messages adds what the guest sends, and returns about what that takes in the
// outbox.
func (b *recordBuilder) Messages(made []abi.Send) (bytes int) {
	var data []byte
	for i := range made {
		o := &made[i]
		data = journal.AppendMessageOp(data, &journal.MessageOp{
			Type: o.EntityType, ID: o.EntityID, Command: o.Command, OnReply: o.OnReply, OnReject: o.OnReject, Payload: o.Payload,
		})
		bytes += messageBytes(o)
	}
	if len(made) > 0 {
		b.Section(journal.SectionMessages, data)
	}
	return bytes
}

// Evolve adds the events of an output, or its state as an event of a type, and
// the end of the entity where the output deletes it. One that does not exist
// leaves no event by that.
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

// End returns the link of the record's last event and the record's bytes, which
// are valid until the next End.
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
