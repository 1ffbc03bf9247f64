package journal

import (
	"encoding/binary"
	"fmt"
)

// SectionSchedules says which of the timers that a record sets are schedules:
// ScheduleOp.
const SectionSchedules SectionKind = 7

// Schedule is what makes a timer repeat: whoever leads the shard when it fires
// sets it again, in the record of the command that it made, to the next time
// that the expression names. That time is in the record, so nobody else has to
// know the expression, or the rules of the zone.
type Schedule struct {
	Expression []byte // at most 255 bytes
	Zone       []byte // IANA name, at most 255 bytes; empty is UTC
	Missed     uint8  // what becomes of missed ticks
	Made       uint16 // missed ticks that were fired in a row so far
}

// AppendSchedule appends a schedule: expression (len u8), zone (len u8), missed
// u8, made u16.
func AppendSchedule(dst []byte, s *Schedule) []byte {
	dst = append8(dst, string(s.Expression))
	dst = append8(dst, string(s.Zone))
	dst = append(dst, s.Missed)
	return binary.LittleEndian.AppendUint16(dst, s.Made)
}

// DecodeSchedule reads a schedule; its slices alias data.
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

func errSchedule() error { return fmt.Errorf("%w: a schedule is cut short", ErrDamaged) }

// ScheduleOp makes one op of the same record's timers section a schedule.
type ScheduleOp struct {
	Op uint16 // which, counted from 0; it sets its timer
	Schedule
}

// AppendScheduleOp appends one op to the data of a schedules section: op u16,
// then the schedule. Ops ascend.
func AppendScheduleOp(dst []byte, op *ScheduleOp) []byte {
	return AppendSchedule(binary.LittleEndian.AppendUint16(dst, op.Op), &op.Schedule)
}

// NextScheduleOp takes the first op off the data of a schedules section; it
// must not be empty. The slices alias data.
func NextScheduleOp(data []byte) (op ScheduleOp, rest []byte, err error) {
	d := decoder{b: data}
	op.Op = d.u16()
	op.Schedule = *d.schedule()
	if d.bad {
		return op, nil, errSchedule()
	}
	return op, d.b, nil
}
