package journal_test

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

func schedule() journal.Schedule {
	return journal.Schedule{Expression: []byte("0 3 * * mon-fri"), Zone: []byte("Europe/Berlin"), Missed: 1, Made: 258}
}

// TestScheduleBytes pins the bytes of a record that sets a timer, a schedule
// and another timer.
func TestScheduleBytes(t *testing.T) {
	op := func(name string, due int64) []byte {
		return journal.AppendTimerOp(nil, journal.TimerOp{Name: []byte(name), Due: due, Command: []byte("go"), Payload: []byte("{}")})
	}
	r := journal.Record{Entity: sharding.EntityID{Type: "cart", ID: "c"}, Term: 2, RecordedAt: 5, CommandID: "c-1", Sections: []journal.Section{
		{Kind: journal.SectionTimers, Data: append(append(op("a", 1), op("b", 2)...), op("c", 3)...)},
		{Kind: journal.SectionSchedules, Data: journal.AppendScheduleOp(nil, &journal.ScheduleOp{Op: 1, Schedule: schedule()})},
	}}
	raw := journal.AppendRecord(nil, &r)
	var back journal.Record
	if err := back.Decode(raw); err != nil {
		t.Fatal(err)
	}
	if again := journal.AppendRecord(nil, &back); string(again) != string(raw) {
		t.Errorf("%x is written as %x", raw, again)
	}
	golden(t, "schedules.txt", hex.Dump(raw))
}

// TestScheduleIsWhole: truncated schedules and trailing bytes are damage.
func TestScheduleIsWhole(t *testing.T) {
	s := schedule()
	data := journal.AppendSchedule(nil, &s)
	back, err := journal.DecodeSchedule(data)
	if err != nil || string(journal.AppendSchedule(nil, back)) != string(data) || string(back.Zone) != "Europe/Berlin" || back.Made != 258 {
		t.Fatalf("%+v %v", back, err)
	}
	for n := range data {
		if _, err := journal.DecodeSchedule(data[:n]); !errors.Is(err, journal.ErrDamaged) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	if _, err := journal.DecodeSchedule(append(data, 0)); !errors.Is(err, journal.ErrDamaged) {
		t.Errorf("a byte more: %v", err)
	}
	if _, _, err := journal.NextScheduleOp([]byte(strings.Repeat("x", 20))); !errors.Is(err, journal.ErrDamaged) {
		t.Errorf("no schedule: %v", err)
	}
}
