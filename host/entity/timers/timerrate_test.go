package timers

import (
	"testing"
	"time"
)

// TestTimerRateAdaptsToLoad checks that the rate of timers grows while there
// are no other requests, returns to the minimum with other requests, and
// falls below the minimum if commits take too long.
func TestTimerRateAdaptsToLoad(t *testing.T) {
	const least = 1000.0
	for _, c := range []struct {
		name    string
		from    float64
		asked   int
		waiting bool
		slowest time.Duration
		want    float64
	}{
		{"nobody asks", least, 0, false, time.Second, 1250},
		{"nobody asks for long", least * paceMost, 0, false, 0, least * paceMost},
		{"others ask", 2000, 1, false, 0, least},
		{"others wait for answers", 2000, 0, true, paceStrained, least},
		{"the machine is overloaded", 4000, 1, false, paceStrained + 1, least / 2},
		{"for long", least / paceYield, 1, false, time.Second, least / paceYield},
		{"not any more", least / paceYield, 1, false, paceStrained, least},
	} {
		now := int64(time.Hour)
		p := pacer{rate: c.from, counted: now, looked: now, asked: c.asked}
		p.noteCommit(int64(c.slowest))
		p.update(now+int64(paceLook), least, c.waiting)
		if p.rate != c.want {
			t.Errorf("%s: from %v to %v, want %v", c.name, c.from, p.rate, c.want)
		}
		if p.asked != 0 || p.slowest != 0 || p.isAlone() != (c.want > least) {
			t.Errorf("%s: %+v", c.name, p)
		}
	}
	p := pacer{rate: 8000, counted: 1, looked: 1}
	if p.update(1+int64(paceReset)+1, least, false); p.rate != least || p.allowed != least*paceBurst.Seconds() || p.spurt < p.allowed {
		t.Errorf("after a rest: %+v", p)
	}
	for range 100 {
		p.update(p.counted+int64(paceReset), least, true)
	}
	if p.allowed != least*(paceDebt+paceBurst).Seconds() || p.spurt != paceSpurt*least*paceBurst.Seconds() {
		t.Errorf("what adds up: %+v", p)
	}
	slow, fired := pacer{}, 0
	for now := int64(time.Hour); now < int64(time.Hour+10*time.Second); now += int64(Tick) {
		if slow.update(now, 1, true); slow.canAdmit() {
			slow.allowed, slow.spurt = slow.allowed-1, slow.spurt-1
			fired++
		}
	}
	if fired < 8 || fired > 10 {
		t.Errorf("%d timers fired in 10 s at one a second: %+v", fired, slow)
	}
}

// TestTimersYieldWhenCommitsAreSlow checks that no timer is admitted for a
// while when commits are slow, and that the delayed timers are admitted faster
// later.
func TestTimersYieldWhenCommitsAreSlow(t *testing.T) {
	const least = 1000.0
	now := int64(time.Hour)
	p := pacer{rate: least, counted: now, looked: now}
	admitted := 0
	during := func(d, commit time.Duration) (n int) {
		for end := now + int64(d); now < end; {
			now += int64(time.Millisecond)
			p.noteCommit(int64(commit))
			p.update(now, least, true)
			for p.canAdmit() {
				p.admit()
				n++
			}
			p.admitted = 0 // these timers fire immediately
		}
		admitted += n
		return n
	}
	during(time.Second, Slow)
	if n := during(paceDebt-paceBurst, Slow+1); n != 0 {
		t.Errorf("%d timers while others wait", n)
	}
	if n, most := during(paceBurst, Slow), int(paceSpurt*least*2*paceBurst.Seconds()); n < most/2 || n > most {
		t.Errorf("%d timers in a burst after that, at most %d", n, most)
	}
	if during(time.Second, Slow); admitted < int(least*2.28) || admitted > int(least*2.35) {
		t.Errorf("%d timers in 2.3 s", admitted)
	}
	if n := during(2*time.Second, paceStrained); n < int(least*(2-paceDebt.Seconds()-paceBurst.Seconds())) || n > int(2*least) {
		t.Errorf("%d timers in 2 s in which others wait", n)
	}
	for p.admitted = 0; p.canAdmit(); {
		p.admit()
	}
	p.spurt, p.allowed, p.latest = 100, 100, 0
	if p.admitted = int(least * paceBurst.Seconds()); p.canAdmit() {
		t.Error("more timers are on their way than fire in a burst")
	}
}
