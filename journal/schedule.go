package journal

import (
	"encoding/binary"
	"fmt"
)

// SectionSchedules turns timers that the record sets into schedules:
// ScheduleOp.
const SectionSchedules SectionKind = 7

// Schedule makes a timer repeat. When the timer fires, the shard's leader sets
// it again, in the record of the command that it triggers, to the next time of
// the expression. The record contains that time, so no other replica needs to
// evaluate the expression or time zone rules.
type Schedule struct {
	Expression []byte // at most 255 bytes
	Zone       []byte // IANA name, at most 255 bytes; empty is UTC
	Missed     uint8  // policy for missed ticks
	Made       uint16 // missed ticks fired in a row so far
}

// AppendSchedule appends a schedule: expression (len u8), zone (len u8), missed
// u8, made u16.
func AppendSchedule(dst []byte, s *Schedule) []byte {
	dst = append8(dst, string(s.Expression))
	dst = append8(dst, string(s.Zone))
	dst = append(dst, s.Missed)
	return binary.LittleEndian.AppendUint16(dst, s.Made)
}

// DecodeSchedule decodes a schedule. Its slices alias data.
func DecodeSchedule(data []byte) (*Schedule, error) {
	d := decoder{b: data}
	s := d.schedule()
	if d.bad || len(d.b) != 0 {
		return nil, errSchedule()
	}
	return s, nil
}

func (d *decoder) schedule() *Schedule {
	return &Schedule{Expression: d.take(int(d.u8())), Zone: d.take(int(d.u8())), Missed: d.u8(), Made: d.u16()}
}

func errSchedule() error { return fmt.Errorf("%w: truncated schedule", ErrDamaged) }

// ScheduleOp turns one operation of the same record's timers section into a
// schedule.
type ScheduleOp struct {
	Op uint16 // index of the operation, which must set a timer
	Schedule
}

// AppendScheduleOp appends one operation to the data of a schedules section: op
// u16, then the schedule. Indexes ascend.
func AppendScheduleOp(dst []byte, op *ScheduleOp) []byte {
	return AppendSchedule(binary.LittleEndian.AppendUint16(dst, op.Op), &op.Schedule)
}

// NextScheduleOp decodes the first operation of a schedules section, which must
// not be empty. The slices alias data.
func NextScheduleOp(data []byte) (op ScheduleOp, rest []byte, err error) {
	d := decoder{b: data}
	op.Op = d.u16()
	op.Schedule = *d.schedule()
	if d.bad {
		return op, nil, errSchedule()
	}
	return op, d.b, nil
}
