package window

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hostd/hostd/journal"
)

// TestFirstAttemptIsLowerBound checks that the computed time of a first
// attempt is never after the log clock at that time, for leaders whose clocks
// differ or are set.
func TestFirstAttemptIsLowerBound(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	clock := func(n int) int64 { return at.Add(ms(n)).UnixNano() }
	for _, tt := range []struct {
		name   string
		led    int   // when this executor began to lead, by its clock
		before int64 // the log clock at that time
		now    int   // time by the executor's clock
		age    int
		latest int64 // the log clock at the first attempt
		exact  bool  // the result must be close to latest
	}{
		{"within a term", 0, clock(-50), 5000, 2000, clock(3000), true},
		{"just sent", 0, clock(-50), 5000, 0, clock(5000), true},
		{"behind the log clock", 0, clock(9000), 5000, 2000, clock(9000), false},
		{"behind the log clock, which continues", 0, clock(1000), 5000, 2000, clock(3000), true},
		// The clock of the previous leader was an hour behind.
		{"before a leap", 3_600_000, clock(1000), 3_600_500, 1500, clock(0), false},
		{"after a leap", 3_600_000, clock(1000), 3_600_500, 300, clock(3_600_200), true},
		// The clock of the previous leader was an hour ahead.
		{"before a standstill", 500, clock(3_600_000), 900, 900, clock(3_599_500), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			now := at.Add(ms(tt.now))
			led := Lead{at.Add(ms(tt.led)), tt.before}
			got := led.FirstAttempt(now, now.Add(-ms(tt.age)), max(now.UnixNano(), tt.before))
			if got > tt.latest {
				t.Errorf("%s after the first attempt", time.Duration(got-tt.latest))
			}
			if early := time.Duration(tt.latest - got); tt.exact && early > ms(tt.age/4)+2*onTheWay {
				t.Errorf("%s before the first attempt", early)
			}
		})
	}
}

// history returns random commands of an entity.
func history(rnd *rand.Rand, n int) (all []Command) {
	now := int64(time.Second)
	for i := range n {
		if now += rnd.Int64N(int64(300 * time.Millisecond)); rnd.IntN(40) == 0 {
			now += rnd.Int64N(int64(5 * time.Second)) // a quiet period
		}
		all = append(all, Command{
			ID: id(i), Reply: make([]byte, rnd.IntN(40)), RecordedAt: now, Sequence: journal.Sequence(i + 1), Events: 1, Server: rnd.IntN(3) == 0,
		})
	}
	return all
}

// TestRebuiltWindowBoundsForgottenCommands rebuilds windows from the records
// after a snapshot. If a command is missing in such a window, it must not be
// younger than the window's bound for forgotten commands. If the window is not
// full, the bound must be tighter than the time of the first record.
func TestRebuiltWindowBoundsForgottenCommands(t *testing.T) {
	older := 0
	for seed := range uint64(1000) {
		rnd := rand.New(rand.NewPCG(seed, 5))
		l := Limits{Commands: 5 + rnd.IntN(60), ReplyBytes: 200 + rnd.IntN(2000), ClientMaxAge: int64(6*time.Second) + rnd.Int64N(int64(10*time.Second)), ServerMaxAge: int64(6 * time.Second)}
		all := history(rnd, 2+rnd.IntN(300)>>rnd.IntN(8))
		taken, late := len(all)-rnd.IntN(len(all))>>rnd.IntN(8), all[len(all)-1].RecordedAt+rnd.Int64N(int64(time.Second))
		var live Window
		for i := range all[:taken] {
			live.Add(&l, all[i])
		}
		from, _ := live.Oldest()
		var batch Batch
		for i := range all[from-1:] {
			r := &all[int(from)-1+i]
			n := nameOf(r.ID)
			batch.packed = appendPacked(batch.packed, &n, r)
			batch.count++
		}
		var built Window
		built.AddAll(&l, batch, func(bool) *Filter { return nil })
		before := all[from-1].RecordedAt + rnd.Int64N(2) // time of the first record, which need not be the record of a command
		built.EndRebuild(&l, before, late, false)
		for i := range all {
			if _, ok, _ := built.Find(&l, all[i].ID, late); !ok && all[i].RecordedAt > built.forgot {
				t.Fatalf("seed %d: command %d of %d is not known, and younger than what is forgotten", seed, i, taken)
			}
		}
		if built.forgot < before {
			older++
		}
	}
	if older < 20 {
		t.Errorf("only %d windows said more than their first record", older)
	}
}
