package entityapi

import (
	"encoding/binary"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/hostd/hostd/abi"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/host/edge/codec"
	"github.com/hostd/hostd/host/entityapi/subscription"
	"github.com/hostd/hostd/journal"
)

// recordBytes returns the approximate size of a record in bytes.
func recordBytes(rec *journal.Record) int {
	n := 200 + len(rec.Reply)
	for i := range rec.Events {
		e := &rec.Events[i]
		n += 16 + len(e.Type) + len(e.Payload)
		for _, tag := range e.Tags {
			n += 2 + len(tag)
		}
	}
	for i := range rec.Sections {
		n += len(rec.Sections[i].Data)
	}
	return n
}

// message converts a record to an API message that shares no memory with it.
func (p *recordPage) message(rec *journal.Record) (*entityv1.ReadRecordsResponse_Record, error) {
	out := &entityv1.ReadRecordsResponse_Record{
		Sequence: uint64(rec.Last()), EventCount: uint32(len(rec.Events)), CommandId: string(rec.CommandID),
		RecordedAt: timestampOf(rec.RecordedAt), Principal: subscription.PrincipalOf(rec),
		Deleted: rec.Flags&journal.FlagTombstone != 0, Truncated: recordBytes(rec) > longRecordBytes,
	}
	if rec.Module != (journal.Digest{}) {
		out.ModuleDigest = rec.Module.String()
	}
	if fuel := rec.Section(journal.SectionFuel); len(fuel) == 8 {
		out.Fuel = binary.LittleEndian.Uint64(fuel)
	}
	for i := range rec.Events {
		if out.Truncated && i == longRecordParts {
			break
		}
		out.Events = append(out.Events, p.event(rec, i, out.Truncated))
	}
	if !out.Truncated {
		if v, data := p.render(rec.Reply); v != nil {
			out.Reply = &entityv1.ReadRecordsResponse_Record_Json{Json: v}
		} else if len(data) > 0 {
			out.Reply = &entityv1.ReadRecordsResponse_Record_Data{Data: data}
		}
	}
	var err error
	if out.Source, err = p.source(rec); err != nil {
		return nil, err
	}
	if out.Timers, err = timerChanges(rec, out.Truncated); err != nil {
		return nil, err
	}
	if out.Messages, err = messagesOf(rec, out.Truncated); err != nil {
		return nil, err
	}
	if data := rec.Section(journal.SectionRefusal); data != nil {
		r, err := journal.DecodeRefusal(data)
		if err != nil {
			return nil, err
		}
		out.Rejection = &entityv1.ReadRecordsResponse_Rejection{Code: string(r.Code), Message: string(r.Message), Command: string(r.Command)}
	}
	return out, nil
}

// render is codec.Render, but its result shares no memory with the record.
func (p *recordPage) render(payload []byte) (*structpb.Value, []byte) {
	v, data := codec.Render(p.kind, payload)
	return v, slices.Clone(data)
}

func (p *recordPage) event(rec *journal.Record, i int, short bool) *entityv1.ReadRecordsResponse_Event {
	e := &rec.Events[i]
	out := &entityv1.ReadRecordsResponse_Event{Sequence: uint64(rec.Expected) + uint64(i) + 1, EventType: e.Type}
	if short {
		return out
	}
	out.Tags = slices.Clone(e.Tags)
	if v, data := p.render(e.Payload); v != nil {
		out.Payload = &entityv1.ReadRecordsResponse_Event_Json{Json: v}
	} else if len(data) > 0 {
		out.Payload = &entityv1.ReadRecordsResponse_Event_Data{Data: data}
	}
	return out
}

// Kinds of command sources.
const (
	fromClient     = "client"
	fromTimer      = "timer"
	fromEntity     = "entity"
	fromDeadLetter = "dead-letter"
	fromOperator   = "operator"
)

// source describes the sender of a record's command: a client, a timer or
// another entity.
func (p *recordPage) source(rec *journal.Record) (*entityv1.ReadRecordsResponse_Source, error) {
	data := rec.Section(journal.SectionSource)
	if len(data) == 0 {
		if action, timer := p.Records.Action(rec); action != "" {
			return &entityv1.ReadRecordsResponse_Source{Kind: fromOperator, Action: action, Timer: timer}, nil
		}
		return &entityv1.ReadRecordsResponse_Source{Kind: fromClient}, nil
	}
	switch data[0] {
	case journal.SourceTimer:
		s, err := journal.DecodeTimerSource(data)
		return &entityv1.ReadRecordsResponse_Source{Kind: fromTimer, Timer: string(s.Name), Due: timestampOf(s.Due)}, err
	case journal.SourceDeadLetter:
		_, err := journal.DecodeDeadLetterSource(data)
		return &entityv1.ReadRecordsResponse_Source{Kind: fromDeadLetter}, err
	}
	s, err := journal.DecodeMessageSource(data)
	return &entityv1.ReadRecordsResponse_Source{Kind: fromEntity, EntityType: string(s.Type), EntityId: string(s.ID), Number: s.Number, Hops: uint32(s.Hops)}, err
}

// timerChanges returns the timers that a record sets and cancels.
func timerChanges(rec *journal.Record, short bool) (out []*entityv1.ReadRecordsResponse_TimerChange, err error) {
	schedules := rec.Section(journal.SectionSchedules)
	var next *journal.ScheduleOp // schedule of a later timer
	for n, ops := 0, rec.Section(journal.SectionTimers); len(ops) > 0; n++ {
		if short && n == longRecordParts {
			break
		}
		var op journal.TimerOp
		if op, ops, err = journal.NextTimerOp(ops); err != nil {
			return nil, err
		}
		if next == nil && len(schedules) > 0 {
			var s journal.ScheduleOp
			if s, schedules, err = journal.NextScheduleOp(schedules); err != nil {
				return nil, err
			}
			next = &s
		}
		t := &journal.Timer{Name: string(op.Name), Due: op.Due, Command: op.Command}
		if next != nil && int(next.Op) == n {
			t.Schedule, next = &next.Schedule, nil
		}
		change := &entityv1.ReadRecordsResponse_TimerChange{Timer: timerMessage(t), Cancelled: op.Cancel}
		if op.Cancel {
			change.Timer = &entityv1.Timer{Name: t.Name}
		}
		out = append(out, change)
	}
	return out, nil
}

// messagesOf returns the messages that a record sends.
func messagesOf(rec *journal.Record, short bool) (out []*entityv1.ReadRecordsResponse_Message, err error) {
	for n, ops := 0, rec.Section(journal.SectionMessages); len(ops) > 0; n++ {
		if short && n == longRecordParts {
			break
		}
		var op journal.MessageOp
		if op, ops, err = journal.NextMessageOp(ops); err != nil {
			return nil, err
		}
		send := &entityv1.ReadRecordsResponse_Message{
			EntityType: string(op.Type), EntityId: string(op.ID), Command: string(op.Command), OnReply: string(op.OnReply), OnReject: string(op.OnReject),
		}
		if !short {
			send.Data = slices.Clone(op.Payload)
		}
		out = append(out, send)
	}
	return out, nil
}

// timerMessage converts a pending timer to an API message.
func timerMessage(t *journal.Timer) *entityv1.Timer {
	out := &entityv1.Timer{Name: t.Name, Due: timestampOf(t.Due), Command: string(t.Command)}
	if s := t.Schedule; s != nil {
		out.Schedule, out.TimeZone, out.Missed = string(s.Expression), string(s.Zone), abi.Missed(s.Missed).String()
	}
	return out
}

func timestampOf(nanos int64) *timestamppb.Timestamp { return timestamppb.New(time.Unix(0, nanos)) }
